// SPDX-License-Identifier: Apache-2.0
#pragma once
// Performs a rank's steps for their times alone: the performer of real runs without a rank's state around it, on instructions that
// are made when they are performed (protocols/program/lazy_program.hpp). For runs whose states would cost too much time or memory.
//
// It is an optimisation of state_rank, and has to cause the same events in the same order: tests/property/virtual_states_test.cpp compares
// the two, event by event.

#include <cstdint>
#include <deque>
#include <memory_resource>
#include <string>
#include <vector>

#include "actors/virtual/virtual_rank.hpp"
#include "protocols/program/lazy_program.hpp"

namespace troupe::actors {

class player;

/// Players, and the credits that they have given back.
class player_communicator final : public virtual_communicator {
public:
  using virtual_communicator::virtual_communicator;

  void settle() override;
  void give_back(std::uint32_t connection) { credits_.push_back(connection); }

  std::pmr::deque<player> players{&memory};

private:
  std::vector<std::uint32_t> credits_;  ///< connections, in order
};

/// @pre payload::none
class player final : public virtual_rank {
public:
  player(player_communicator& with, rank_t rank, lazy_program code)
      : virtual_rank(with, rank), all_(with), performers_(&with.memory), code_(std::move(code)) {}

  /// A message of this connection was consumed, and a lane had waited for that.
  void on_credit(std::uint32_t connection);
  std::vector<std::string> waits() override;

private:
  struct port;
  using performer = basic_performer<lazy_program>;

  void perform() override;
  void arrived(std::uint32_t connection, std::uint32_t message) override;
  void work_ended(int channel, int lane) override;
  void expect_arrival(std::uint32_t message, int n) override;
  /// Of this lane alone something has come; −1: nobody knows of which.
  void advance(int channel, int lane = -1);

  player_communicator& all_;
  std::pmr::vector<performer> performers_;  ///< by channel; none before its rank begins
  lazy_program code_;
};

}  // namespace troupe::actors
