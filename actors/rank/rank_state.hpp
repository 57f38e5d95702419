#pragma once
// One rank of one communicator: takes the calls in their order, says them to the membership, starts them on the channels, and
// completes them. No CAF in here, so that every transition can be tested alone.
//
// Owner: the rank actor; nobody else touches it. What may arrive, in any order unless said:
//   submit(operation)              from the caller, in the order of the epochs but for those over slots (slot_desk.hpp)
//   agreed / stop / failed (epoch) from the membership; `failed` only after our `stopped`
//   broken / peer_left / peer_lost from the membership; `peer_lost` when the channels of that rank have ended too
//   performed / mismatch           from a channel
//   channel_stopped                from a channel, once for each stop we sent it
//   expire / end                   from the clock or the caller; ignored when the operation is over
//   stuck                          from the membership: somebody looked and found everything idle
//   revoke / revoked / refused / inquired   from another rank, about a send or receive
//   leave                          from the caller's handle, last
// An operation is completed only (a) performed on all channels and agreed, or (b) after `failed`, when no rank refers to its
// buffers any more. Its buffers therefore outlive every reference to them.
// Sends and receives need no agreement: (a) performed, or (b) stopped at both ends. Whoever ends one takes the other end with it,
// also before that was called: a sender revokes and waits for the answer, because the receiver reads the sender's buffer; a
// receiver refuses, and the sender then revokes.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/ports/mailbox/channel_state.hpp"
#include "actors/rank/operation.hpp"

namespace troupe::actors {

/// Where a rank's messages go. Calls happen on the rank's own turn.
class rank_outbox {
public:
  virtual ~rank_outbox() = default;
  virtual void called(epoch_t epoch, const call& what) = 0;
  virtual void fail(epoch_t epoch, const std::string& title, failure_ptr why) = 0;
  virtual void stopped(epoch_t epoch, std::vector<std::string> waits) = 0;
  virtual void left(epoch_t operations) = 0;
  /// The communicator is broken and nothing of ours is under way any more: we refer to nobody's buffers.
  virtual void quiet() = 0;
  /// To the channels 0 … channels−1.
  virtual void start(int channels, std::shared_ptr<const assignment> what) = 0;
  /// To every channel. @param passed nor will collectives before this one start there any more
  virtual void skip(const operation_key& which, epoch_t passed) = 0;
  /// Collectives before this one were called here, or went over slots. @param called those before it were called here
  virtual epoch_t settled(epoch_t called) const = 0;
  /// To every channel; returns how many will answer with channel_stopped().
  virtual int stop_channels(const operation_key& which) = 0;
  /// To the receiving rank of a send: end the receive, and answer.
  virtual void revoke(rank_t receiver, epoch_t epoch, const failure_ptr& why) = 0;
  virtual void revoked(rank_t sender, epoch_t epoch) = 0;
  /// To the other rank of a send or receive: yours (`sending`: your send) cannot be performed.
  virtual void refuse(rank_t peer, epoch_t epoch, bool sending, const failure_ptr& why) = 0;
  /// To the other rank of one that does not move: is the other end with you?
  virtual void inquire(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else) = 0;
  virtual steady_time now() const = 0;
  /// Call expire(number) then.
  virtual void alarm(std::uint64_t number, std::chrono::nanoseconds after) = 0;
};

class rank_state {
public:
  rank_state(rank_t rank, int ranks, int channels, arena& memory, shared_spaces& spaces, std::string communicator);
  ~rank_state();
  rank_state(const rank_state&) = delete;
  rank_state& operator=(const rank_state&) = delete;

  void submit(operation_ptr op, rank_outbox& out);
  void agreed(epoch_t epoch, const counts_ptr& counts, rank_outbox& out);
  void stop(epoch_t epoch, rank_outbox& out);
  void failed(epoch_t epoch, const failure_ptr& why, rank_outbox& out);
  void broken(const failure_ptr& why, rank_outbox& out);
  void peer_left(rank_t peer, rank_outbox& out);
  void performed(const operation_key& which, rank_outbox& out);
  void mismatch(const operation_key& which, rank_t from, rank_outbox& out);
  void channel_failed(const operation_key& which, const failure_ptr& why, rank_outbox& out);
  void channel_stopped(const operation_key& which, const std::vector<lane_wait>& waits, rank_outbox& out);
  void peer_lost(rank_t peer, rank_outbox& out);
  /// A peer ends its send.
  void revoke(rank_t sender, epoch_t epoch, const failure_ptr& why, rank_outbox& out);
  void revoked(rank_t receiver, epoch_t epoch, rank_outbox& out);
  void refused(rank_t peer, epoch_t epoch, bool sending, failure_ptr why, rank_outbox& out);
  void inquired(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else, rank_outbox& out);
  void end(const operation_key& which, failure_ptr why, rank_outbox& out);  ///< cancel
  void expire(std::uint64_t alarm, rank_outbox& out);
  /// The look has found that nothing moves any more. What everybody has called, and is not performed, has lost a message.
  /// @param nobody_else every rank's own thread waits, so nobody can call anything more
  void stuck(look_t look, look_t latest, bool nobody_else, rank_outbox& out);
  /// @param operations that the rank has called, those over slots too; unset: those that came here
  void leave(rank_outbox& out, std::optional<epoch_t> operations = std::nullopt);
  /// The actor is gone: what the destructor will say.
  void perish(failure_ptr why) {
    if (!broken_) broken_ = std::move(why);
  }

  bool idle() const { return under_way_.empty() && waiting_.empty() && pairs_.empty(); }
  const std::string& communicator() const { return communicator_; }

  /// Collectives under way at once; further ones wait for their turn, which bounds what peers may send us early.
  static constexpr std::size_t most_under_way = 32;

private:
  struct stopping {
    int answers = 0;
    std::vector<std::string> waits;
  };
  struct pair_stop {
    failure_ptr why;
    int answers = 0;             ///< that our channels owe us
    bool revoking = false;       ///< the receiver owes us one
    bool answer_sender = false;  ///< we owe the sender one
  };

  void pump(rank_outbox& out);
  operation_ptr* find_waiting(epoch_t epoch);
  operation& collective_at(epoch_t epoch);
  void launch_in_order(rank_outbox& out);
  void launch(operation& op, rank_outbox& out);
  /// The channels have heard of all collectives before this one, or need not.
  epoch_t launched(epoch_t called) const { return to_launch_.empty() ? called : to_launch_.front(); }
  void finish(epoch_t epoch, rank_outbox& out);
  void answer_stop(epoch_t epoch, rank_outbox& out);
  void set_alarm(steady_time at, rank_outbox& out);
  void submit_pair(operation_ptr op, rank_outbox& out);
  bool pair_is_over(const operation_key& which) const;
  void end_early(const operation_key& which, const failure_ptr& why);
  static void complete_pair(operation& op, const failure_ptr& why);
  failure_ptr left_without(const operation_key& which) const;
  void stop_pair(const operation_key& which, failure_ptr why, rank_outbox& out);
  void end_pair_if_stopped(const operation_key& which, rank_outbox& out);
  void when_idle(rank_outbox& out);

  rank_t rank_;
  int ranks_;
  int channels_;
  arena* memory_;
  shared_spaces* spaces_;
  std::string communicator_;
  std::map<epoch_t, operation_ptr> under_way_;  ///< called, in order
  std::map<epoch_t, operation_ptr> waiting_;    ///< submitted, not called yet, by what they follow
  std::map<epoch_t, stopping> stopping_;
  ended_epochs failed_;  ///< failed before we called them
  std::unordered_map<operation_key, operation_ptr, operation_key_hash> pairs_;
  std::unordered_map<operation_key, pair_stop, operation_key_hash> pair_stops_;
  std::unordered_map<std::uint64_t, ended_epochs>
      ended_pairs_;                                       ///< by pair_name: by the other end, before we called them
  std::unordered_map<std::uint64_t, epoch_t> next_pair_;  ///< by pair_name: first not called yet
  std::vector<bool> left_peers_, lost_peers_;
  steady_time alarm_at_ = no_deadline;  ///< one alarm for all deadlines, so that they cost no timer each
  std::uint64_t alarms_ = 0;
  failure_ptr broken_;
  epoch_t called_ = 0;             ///< epoch + 1 of the last one called; epochs between went over slots
  std::deque<epoch_t> to_launch_;  ///< called, and neither started on the channels nor failed before
  std::optional<epoch_t> operations_;
  bool leaving_ = false;
  bool left_ = false;
  bool quiet_ = false;
};

}  // namespace troupe::actors
