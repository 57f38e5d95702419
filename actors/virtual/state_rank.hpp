// SPDX-License-Identifier: Apache-2.0
#pragma once
// Performs a rank's steps by the states of a real run: rank_state and its channels, and the communicator's membership_state. Only
// what their outboxes say goes another way: chunks through the modelled elements (traffic.hpp), work to the clock (virtual_rank.hpp).
//
// What takes no virtual time: credits, and what ranks and membership say to each other. A real engine lets agreement travel with the
// data where the score allows that (protocols/lower/agreement_round.hpp); a study performs the score as it is written, so every
// operation is agreed through the membership.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "actors/rank/membership_state.hpp"
#include "actors/rank/operation.hpp"
#include "actors/rank/rank_outbox.hpp"
#include "actors/rank/rank_state.hpp"
#include "actors/virtual/virtual_rank.hpp"
#include "memory/arena.hpp"

namespace troupe::actors {

class state_rank;

/// A type whose elements have this size.
std::optional<datatype> type_of_size(std::size_t bytes);

/// The ranks' states and their membership.
class state_communicator final : public virtual_communicator, private membership_outbox {
public:
  /// @pre the options' type has the size of the shape's elements
  state_communicator(const lazy_sizes& sizes, const hardware& on, const virtual_options& options, traffic& ways,
                     std::uint32_t part, recorder* record);
  ~state_communicator() override;

  void settle() override;
  void give_back(rank_t to, int channel, const credit& what) { due_.push_back(credit_due{to, channel, what}); }
  /// To the membership, or to another rank.
  void later(std::function<void()> what) { due_.emplace_back(std::move(what)); }

  /// A rank's part in the run's one operation.
  operation_ptr make_operation(rank_t rank) const;
  /// Throws the reason if it has failed, or cannot be performed.
  void check_failed() const;
  /// Throws unless it has ended on every rank.
  void check_ended() const;

  template <class Transition>
  void tell_membership(Transition transition) {
    later([this, transition = std::move(transition)] {
      transition(membership_, static_cast<membership_outbox&>(*this));
    });
  }
  state_rank& rank(rank_t which) const { return *ranks[static_cast<std::size_t>(which)]; }

  const plan_ptr how;
  arena memory;
  shared_spaces spaces;
  std::vector<std::unique_ptr<state_rank>> ranks;
  std::vector<chunk> under_way;  ///< by message of the traffic

private:
  struct credit_due {
    rank_t to;
    int channel;
    credit what;
  };

  void agreed(epoch_t epoch, const counts_ptr& counts) override;
  void ask(epoch_t epoch) override;
  void stop(epoch_t epoch) override;
  void failed(epoch_t epoch, const failure_ptr& why) override;
  void broken(const failure_ptr& why) override;
  void peer_left(rank_t rank, const sends_ptr& sent) override;
  void peer_lost(rank_t rank) override;
  void stuck(look_t look, bool nobody_else) override;
  void flush(rank_t rank) override;
  void bury(rank_t rank, const failure_ptr& why) override;
  void untold(const std::string&) override {}  ///< all ranks perform one plan
  void dissolve() override {}
  template <class Order>
  void tell_all(Order&& what);

  membership_state membership_;
  std::deque<std::variant<credit_due, std::function<void()>>> due_;  ///< what takes no time, in order
};

class state_rank final : public virtual_rank, private rank_outbox {
public:
  state_rank(state_communicator& with, rank_t rank);

  /// Calls transition(state, outbox), and completes what has ended with it.
  template <class Transition>
  void turn(Transition&& transition) {
    transition(state_, static_cast<rank_outbox&>(*this));
    if (state_.has_ended()) complete_ended();
    finish_if_done();
  }
  const operation_ptr& operation() const { return operation_; }
  std::vector<std::string> waits() override;

private:
  // -- virtual_rank --
  void perform() override;
  void arrived(std::uint32_t connection, std::uint32_t message) override;
  void work_ended(int channel, int lane) override;

  // -- rank_outbox --
  void called(epoch_t epoch, const call& what) override;
  void differs(epoch_t epoch) override;
  void withdraw(epoch_t epoch, const call* ahead) override;
  void fail(epoch_t epoch, const std::string& title, failure_ptr why) override;
  void stopped(epoch_t epoch, std::vector<std::string> waits, presence came) override;
  void left(epoch_t operations, call last, sends_ptr sent) override;
  void quiet() override;
  void abort(const failure_ptr& why) override;
  void perished() override;
  bool deliver(rank_t to, int channel, chunk&& what) override;
  void give_back(rank_t to, int channel, const credit& what) override;
  void revoke(rank_t receiver, epoch_t epoch, const failure_ptr& why) override;
  void revoked(rank_t sender, epoch_t epoch, bool received) override;
  void refuse(rank_t peer, epoch_t epoch, bool sending, const failure_ptr& why) override;
  void inquire(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else) override;
  bool transfer(const operation_key& which, int channel, int lane, std::byte* target, const std::byte* source,
                std::size_t bytes) override;
  void look_again(rank_t, bool) override {}  // of boards, which there are none of here
  bool flush(const operation_key& which) override;
  bool begin_work(const operation_key& which, int channel, int lane, const instruction& i,
                  lane_wait::reason lacked) override;
  steady_time now() const override;

  void complete_ended();
  int lane_of(std::uint32_t wire_lane) const { return static_cast<int>(wire_lane) % with_.lanes; }

  state_communicator& all_;
  rank_state state_;
  operation_ptr operation_;
  std::vector<std::string> stopped_waits_;
};

}  // namespace troupe::actors
