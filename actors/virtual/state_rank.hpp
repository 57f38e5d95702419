// SPDX-License-Identifier: Apache-2.0
#pragma once
// Performs a rank's steps by the states of a real run: rank_state and its channels, and the communicator's membership_state. Only
// what their outboxes say goes another way: chunks through the modelled elements (traffic.hpp), work to the clock (virtual_rank.hpp).
//
// What takes no virtual time: credits, and what ranks and membership say to each other. A real engine lets agreement travel with the
// data where the score allows that (protocols/lower/agreement_round.hpp); a study performs the score as it is written, so every
// operation is agreed through the membership.
//
// A lost rank (hardware::losses) turns its states no more; what elements already carry of it arrives. The membership's rank, the lowest that is left,
// hears of it when an empty message from there would have come (its connection was reset), or after the silence; then the membership and
// the ranks do what they do in a real run: operations under way are stopped and end with peer_lost. From the loss on every word of
// theirs takes as long as an empty message. That the membership's own process may be the lost one, and the next one has to ask again,
// is not charged.

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
  /// `from` says something to `to`.
  void tell(rank_t from, rank_t to, std::function<void()> what);

  /// A rank's part in the run's one operation.
  operation_ptr make_operation(rank_t rank) const;
  /// Throws the reason if it has failed, but by a loss, or cannot be performed.
  void check_failed() const;
  /// How it ended on each rank, where one was lost; else empty.
  std::vector<virtual_end> ends() const;
  /// Throws unless it has ended on every rank.
  void check_ended() const;

  /// `who` is lost from now on; it was known before.
  void lose(rank_t who);
  /// A word_event has come to a rank.
  void heard(std::uint32_t word);
  template <class Transition>
  void tell_membership(rank_t from, Transition transition) {
    tell(from, home_, [this, transition = std::move(transition)] {
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
  void tell_all(const std::function<void(rank_state&, rank_outbox&)>& what);
  void post(rank_t to, std::int64_t at, std::function<void()> what);
  /// Of an empty message.
  std::int64_t delay(rank_t from, rank_t to) const;

  membership_state membership_;
  rank_t home_ = 0;                                                  ///< where it is
  bool has_losses_ = false;                                          ///< somebody is lost already
  std::vector<std::function<void()>> words_;                         ///< after a loss, by word_event
  std::deque<std::variant<credit_due, std::function<void()>>> due_;  ///< what takes no time, in order
};

class state_rank final : public virtual_rank, private rank_outbox {
public:
  state_rank(state_communicator& with, rank_t rank);

  /// Calls transition(state, outbox), and completes what has ended with it.
  template <class Transition>
  void turn(Transition&& transition) {
    if (lost()) return;
    transition(state_, static_cast<rank_outbox&>(*this));
    if (state_.has_ended()) complete_ended();
    finish_if_done();
  }
  const operation_ptr& operation() const { return operation_; }
  std::vector<std::string> waits() override;
  bool is_lost() const { return lost(); }
  void on_word(std::uint32_t word) override { all_.heard(word); }

private:
  // -- virtual_rank --
  void tell_loss() override { all_.lose(rank_); }
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
