// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank of one communicator: the one owner of its operations. Gives them their numbers, begins them in that order on the port
// that their plan names, and ends them, well or badly. No CAF, no thread and no clock in here, so that every transition can be
// tested alone, and runs unchanged in real time, in virtual time and under simulation.
//
// Owner: the holder of the rank's turn (rank_cell.hpp); nobody else touches it. What may arrive, in any order unless said:
//   submit(operation)              from the caller, in the order of its calls
//   chunk / credit                 from a peer's channel (channel_state.hpp); a credit of an operation over part_areas: look there
//   announced(operation)           from a caller: pieces of its input are ready; or from a peer, over whose board something has come
//   agreed / stop / failed (epoch) from the membership; `failed` only after our `stopped`
//   broken / peer_left / peer_lost from the membership; `rehomed` when it was lost, before anything from the next one
//   tick / end                     from the clock or the caller; ignored when the operation is over
//   stuck                          from the membership: somebody looked and found everything idle
//   revoke / revoked / refused / inquired / asked_for / look_again   from another rank, about a send or receive
//   offloaded / nic_differs        from the process's NIC, about what was posted; nic_let_go: about what was recalled
//   room_came / no_room            from the owner of a tier of the card, once for each ask_room(); hear_of_room: from the rank that
//                                  has asked for all
//   element_ended                  from the fabric: one of the machine's elements; what needs it fails
//   leave                          from the caller's handle, last
//
// Order. Operations are numbered when they are submitted and begin in that order. By mailbox many are under way at once. On the
// boards (slots, direct) one is: the next one for a board waits until it is over, and what is behind that one waits with it, also if
// it goes by mailbox or NIC. So does one in tiers (rank_tiers.cpp), which goes by a host's board and by mailbox. All ranks number alike, so
// that cannot close a circle.
// End. (a) Performed: then everybody is known to have called the same, because each message carries its sender's fingerprint and
// the plan's score lets nobody end before it has heard of everybody (agreement_round.hpp); unless the call may run ahead, when later calls
// find that out (calls_ahead.hpp). Or (b) after `failed`, when no rank
// refers to its buffers any more. So a caller's buffers outlive every reference to them.
// An operation that takes long is told to the membership (`called`), which finds out which rank is missing or calls something else.
//
// Operations that have ended are kept until take_ended(): their callers are told by the holder of the turn, after it is given back.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/ports/board_port.hpp"
#include "actors/ports/mailbox/channel_state.hpp"
#include "actors/rank/calls_ahead.hpp"
#include "actors/rank/ended_operations.hpp"
#include "actors/rank/operation.hpp"
#include "actors/rank/operation_queue.hpp"
#include "actors/rank/pairs.hpp"
#include "actors/rank/rank_outbox.hpp"
#include "actors/waiting/time_limit.hpp"
#include "protocols/agreement/ended_epochs.hpp"
#include "protocols/tiers.hpp"

namespace troupe::actors {

/// How long an operation may take before the membership is told of it, which costs every rank several messages …
inline constexpr std::chrono::nanoseconds long_wait = std::chrono::milliseconds{5};
/// … so where hundreds of threads share few cores, and each has its turn only after all others, it may take longer, up to 200 ms.
/// @param threads that wait for each other @param cores that they may use
constexpr std::chrono::nanoseconds long_wait_of(int threads, int cores) {
  return long_wait * std::clamp(threads / (16 * std::max(1, cores)), 1, 40);
}

struct rank_state_options {
  rank_t rank = 0;
  int ranks = 1;
  int channels = 1;
  std::string communicator = "world";
  epoch_t first = 0;  ///< number of the first operations; other than 0 only in tests of long runs
  bool pairs_by_mailbox =
      false;  ///< sends and receives, though there is a board; all ranks alike. Simulation has both on one board
  unsigned most_ahead = troupe::most_ahead;         ///< fewer only in simulations, whose runs are short
  std::size_t least_placed = actors::least_placed;  ///< less only in simulations, whose chunks are small
  bool tells_history = true;                        ///< false only in a simulation that has to notice it
  /// There are no more cores than ranks: every other thread takes one from them, such as the NIC's, to which who waits gives way.
  bool crowded = false;
  std::chrono::nanoseconds patience = long_wait;  ///< see long_wait_of()
  /// Of a communicator of several hosts, whose board is of this one's ranks: the rank's number there. −1: it is of all ranks.
  rank_t on_host = -1;
};

class rank_state final : private pair_keeper {
public:
  /// @param board null: plans use no slots here. The others outlive the state.
  rank_state(rank_state_options options, arena& memory, shared_spaces& spaces, slot_board* board);
  ~rank_state() override;
  rank_state(const rank_state&) = delete;
  rank_state& operator=(const rank_state&) = delete;

  // -- from the caller --
  void submit(operation_ptr op, rank_outbox& out);
  /// The same, but begins nothing; begin() does. So a group queues all before the first begins.
  void enqueue(operation_ptr op, rank_outbox& out);
  void begin(rank_outbox& out) { begin_queued(out); }
  void end(const operation_ptr& op, failure_ptr why, rank_outbox& out);  ///< cancel
  void announced(operation_parts& which, rank_outbox& out);
  void leave(rank_outbox& out);

  // -- a blocking operation on the boards, without an operation object --
  /// Nothing comes before a new call: it may begin at once.
  bool may_begin_at_once() const {
    if (!queue_.empty() || on_board_ || inline_ || broken_ || dead_ || leaving_) return false;
    if (failed_.empty() && stopping_.empty() && asked_.empty()) [[likely]]
      return true;
    return !failed_.contains(next_) && !stopping_.contains(next_) && !asked_.contains(next_);
  }
  /// The same, whatever is called next; and nothing is under way, or has ended and was not taken.
  bool at_rest() const {
    const bool fails_later = !failed_.empty() || !stopping_.empty() || !asked_.empty();
    return !pending() && !inline_ && !broken_ && !dead_ && !leaving_ && !fails_later && !has_ended() && !has_arrivals();
  }
  /// Gives the last remembered call of the port its number and begins it. Throws as board_port::start(). @pre may_begin_at_once()
  void begin_inline(const call_buffers& memory) {
    const remembered_calls::entry& known = port_->last();
    const bool ahead = known.may_run_ahead && ahead_.may_run_ahead();
    // These may throw: nobody has heard of the call then, and the next one begins in its place.
    if (ahead) ahead_.make_room(next_);
    inline_history_ = history_so_far();
    port_->start(memory, next_, ahead, inline_history_);
    inline_ahead_ = ahead;
    note(next_, known.what, known.how, ahead, known.fingerprint, known.lists_number);
    begun_ = ++next_;
    inline_ = true;
  }
  /// It is performed. @pre begin_inline(), and no message was read since
  void end_inline(void* output) {
    port_->conclude(output);
    inline_ = false;
    if (!inline_ahead_) ahead_.confirm(next_ - 1);
  }
  /// It takes long: becomes an operation like any other. Throws std::bad_alloc.
  operation_ptr adopt_inline(const call_buffers& memory, time_limit deadline, steady_time begun);
  /// It cannot go on, nor become an operation. Peers wait for it; break the communicator.
  void drop_inline();
  /// The operation on the board cannot go on here, so nowhere.
  void stall_on_board(const std::string& why, rank_outbox& out) { stall(*on_board_, why, out); }
  /// The same for sends and receives; a call's rows must differ.
  bool may_begin_pair_at_once(rank_t peer, bool sending) const {
    return !pending() && !inline_ && !broken_ && !dead_ && !leaving_ && pairs_.may_begin_inline(peer, sending);
  }
  /// See the functions of the same names in pairs.
  void begin_pairs_inline(std::span<const pair_call> calls) { pairs_.begin_inline(calls); }
  pair_status look_at_pairs(rank_outbox& out, bool sends_too = true) { return pairs_.look_inline(out, sends_too); }
  bool left_pairs() const { return pairs_.left_inline(); }
  void offer_pairs() { pairs_.offer_inline(); }
  bool awaits_far_pairs() const { return pairs_.inline_is_far(); }
  void go_away_from_pairs() { pairs_.go_away_inline(); }
  void end_pairs_inline() { pairs_.end_inline(); }
  std::array<operation_ptr, pairs::most_inline> adopt_pairs_inline(time_limit deadline, steady_time begun,
                                                                   rank_outbox& out);
  /// Of operations that the holder of the turn looks at, as pairs has them.
  void watch_pairs() { pairs_.watch(); }
  bool watches_pairs() const { return pairs_.watches_any(); }
  /// Nothing else is under way but sends and receives.
  bool watches_alone() const { return !on_board_ && queue_.empty() && under_way_.empty() && pairs_.watches_any(); }
  bool look_at_watched(rank_outbox& out);
  void offer_watched() { pairs_.offer_watched(); }
  /// False: some are watched, so leave_watched() has to see to them.
  bool stops_watching() { return pairs_.stops_watching(); }
  void leave_watched(rank_outbox& out);
  /// The number of the last operation that was called. @pre one was
  epoch_t last_called() const { return next_ - 1; }
  /// Of all ranks, or of those of this host; null: there is none.
  board_port* port() { return port_ ? &*port_ : nullptr; }

  // -- from the membership --
  /// Somebody has waited for long: is it with you?
  void asked(epoch_t epoch, rank_outbox& out);
  void agreed(epoch_t epoch, const counts_ptr& counts, rank_outbox& out);
  void stop(epoch_t epoch, rank_outbox& out);
  void failed(epoch_t epoch, const failure_ptr& why, rank_outbox& out);
  void broken(const failure_ptr& why, rank_outbox& out);
  /// A transition was left in the middle, for want of memory: nobody goes on here, so nobody can anywhere. Throws std::bad_alloc if
  /// there is none for that either; call it again then.
  void break_down(const failure_ptr& why, rank_outbox& out);
  /// The membership was lost with its process, and another one, which knows nothing of what was said to it, has taken its place.
  void rehomed(rank_outbox& out);
  /// @param sent by it; null: nothing that could still come
  void peer_left(rank_t peer, const sends_ptr& sent, rank_outbox& out);
  void peer_lost(rank_t peer, rank_outbox& out);
  /// The look has found that nothing moves any more. An operation that everybody has called and that is not performed has lost a message.
  /// @param nobody_else every rank's own thread waits, so nobody can call anything more
  void stuck(look_t look, look_t latest, bool nobody_else, rank_outbox& out);

  // -- from peers and from the DMA engine --
  void on_chunk(int channel, chunk&& what, rank_outbox& out);
  void on_credit(int channel, const credit& what, rank_outbox& out);
  void transferred(const operation_key& which, int channel, int lane, rank_outbox& out);
  void flushed(const operation_key& which, rank_outbox& out);
  void revoke(rank_t sender, epoch_t epoch, const failure_ptr& why, rank_outbox& out);
  void revoked(rank_t receiver, epoch_t epoch, bool received, rank_outbox& out);
  void refused(rank_t peer, epoch_t epoch, bool sending, failure_ptr why, rank_outbox& out);
  void inquired(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else, rank_outbox& out);
  void asked_for(rank_t peer, epoch_t epoch, bool sending, const std::string& text, rank_outbox& out);
  void look_again(rank_t peer, bool sending, rank_outbox& out);

  // -- from the card that the rank sits on --
  /// @param of as ask_room()'s
  void room_came(epoch_t epoch, rank_t of, card_tiers::region room, rank_outbox& out);
  void no_room(epoch_t epoch, const failure_ptr& why, rank_outbox& out);
  void hear_of_room(epoch_t epoch, rank_outbox& out);
  /// What needs it fails here (rank_outbox::obstacle()), as what begins later does.
  void element_ended(rank_outbox& out);

  // -- from the process's NIC (ports/nic/nic_driver.hpp) --
  /// @param why null: performed
  void offloaded(epoch_t epoch, const failure_ptr& why, rank_outbox& out);
  void nic_differs(epoch_t epoch, rank_t from, rank_outbox& out);
  void nic_let_go(epoch_t epoch, rank_outbox& out);

  // -- the turn --
  /// Performs what is on the board as far as it goes. True: something has moved.
  bool advance(rank_outbox& out);
  /// Tells the membership what takes long, asks for the other ends of sends and receives that do, and ends what has passed its deadline.
  /// Returns when to call again.
  steady_time tick(rank_outbox& out);
  /// The operation on the board, if one is; its messages come unseen, so somebody has to look.
  const operation* on_board() const {
    if (dead_) return nullptr;
    return tier_on_board_ ? in_tiers_ : on_board_.get();
  }
  /// A caller that waits for this rank waits for the NIC's thread, which needs the core.
  bool gives_way_to_nic() const;
  /// Something was called and is not over: chunks, credits or time move it.
  bool pending() const { return on_board_ || !queue_.empty() || !under_way_.empty() || !pairs_.idle(); }
  bool has_ended() const { return !ended_.empty(); }
  /// Queued, under way, or ended and not taken.
  bool holds(const operation_ptr& op) const;
  /// Somebody has to be told: all of these have ended, or another one has.
  bool have_ended(std::span<const operation_ptr> ops) const;
  ended_operations take_ended() { return std::move(ended_); }
  /// Pieces of partitioned operations have arrived: to be told when the turn is given back, before what has ended.
  bool has_arrivals() const { return arrivals_ != nullptr; }
  std::shared_ptr<operation_parts> take_arrivals() { return std::move(arrivals_); }

  // -- the end of the actor --
  /// It answers nothing more, and tells nothing; its operations stay until bury(), because peers may refer to their buffers.
  void perish(rank_outbox& out);
  /// No living rank refers to them any more.
  void bury(const failure_ptr& why);

  rank_t rank() const { return options_.rank; }
  /// How long an operation may take before the membership is told of it.
  std::chrono::nanoseconds patience() const { return options_.patience; }
  /// There are no more cores than ranks.
  bool crowded() const { return options_.crowded; }
  int ranks() const { return options_.ranks; }
  const std::string& communicator() const { return options_.communicator; }
  std::size_t early_chunks() const;
  std::size_t channels_under_way() const;
  /// Calls that ran ahead, and that no later operation has compared yet, but could.
  bool any_unconfirmed() const { return !broken_ && ahead_.any_unconfirmed(); }
  /// Operations that are to stop, and have not been told yet that they failed.
  std::size_t stopping() const { return stopping_.size() + pairs_.stopping_count(); }

  /// Collectives under way at once; further ones wait for their turn, which bounds what peers may send us early.
  static constexpr std::size_t most_under_way = 32;

private:
  struct channel_port;
  friend struct channel_port;
  struct parts_port;
  friend struct parts_port;

  bool is_over(const operation_key& which) const;
  void differs(epoch_t epoch, rank_t from, rank_outbox& out);
  void failed_here(epoch_t epoch, const failure_ptr& why, rank_outbox& out);
  failure_ptr here(const failure& why) const;
  void begin_queued(rank_outbox& out);
  bool begin_one(rank_outbox& out);
  void begin_on_board(rank_outbox& out);
  void launch(operation& op, rank_outbox& out);
  void cannot_begin(operation& op, errc code, const std::string& why, rank_outbox& out);
  bool uses_card(const program& code) const;
  void begin_on_card(operation& op, rank_outbox& out);
  bool find_room(operation& op, rank_outbox& out);
  operation* lacking_room(epoch_t epoch);
  std::shared_ptr<assignment> prepare_for_channels(operation& op, rank_t rank);
  void start_channels(const std::shared_ptr<const assignment>& what, rank_outbox& out);
  void launch_on_nic(operation& op, rank_outbox& out);
  void launch_in_tiers(operation& op, rank_outbox& out);
  void begin_tier(tier which, rank_outbox& out);
  void begin_tier_on_board(tier which);
  std::shared_ptr<const assignment> prepare_across();
  call_buffers buffers_of_tier(tier which) const;
  void end_tier(rank_outbox& out);
  bool advance_tier(rank_outbox& out);
  board_performer::status look_at_board(operation& op, bool& moved, rank_outbox& out);
  void leave_tiers(bool performed);
  bool launch_parts(operation& op, rank_outbox& out);
  void advance_parts(operation& op, rank_outbox& out);
  bool news_of_parts(epoch_t epoch, rank_outbox& out);
  bool recall_from_nic(epoch_t epoch, rank_outbox& out);
  void performed(const operation_key& which, rank_outbox& out);
  void finish(epoch_t epoch, failure_ptr why, rank_outbox& out);
  void withdraw(epoch_t epoch, bool performed, rank_outbox& out);
  void finish_on_board(failure_ptr why, rank_outbox& out);
  void look_once_more(rank_outbox& out);
  void sizes_differ(const operation& op, rank_outbox& out);
  void stall(operation& op, const std::string& why, rank_outbox& out);
  void end_all(rank_outbox& out);
  void note_arrival(epoch_t epoch);
  steady_time look_for_late_pieces(operation& op, steady_time now, rank_outbox& out);
  void await_pieces(operation_parts& of);
  void pieces_came(operation_parts& of, bool over);
  void advance_channel(int channel, const operation_key& which, rank_outbox& out);
  bool has_moved(operation& op) const;
  void enroll(operation& op, rank_outbox& out);
  void tell_outcome(operation& op, const counts_ptr& results, rank_outbox& out);
  void number(operation& op, const failure_ptr& early);
  void note(epoch_t epoch, const call& what, const plan_ptr& how, bool ahead, std::uint64_t fingerprint,
            std::uint64_t lists_number = 0) {
    if (ahead) ahead_.add(epoch, what, how, fingerprint, lists_number);
    else ahead_.add_strict();
  }
  std::uint64_t history_so_far() const { return options_.tells_history ? ahead_.history() : 0; }
  call described(const call& what, const plan_ptr& how, epoch_t epoch, std::uint64_t history, bool ahead) const;
  void answer_stop(epoch_t epoch, rank_outbox& out);
  std::vector<lane_wait> drop(const operation_key& which);
  operation* find(epoch_t epoch);
  void when_idle(rank_outbox& out);
  bool idle() const { return !pending() && !inline_ && !pairs_.inline_under_way(); }

  // -- pair_keeper --
  void start_pair(std::shared_ptr<const assignment> what) override;
  void drop_pair(const operation_key& which) override { drop(which); }
  void end_pair(operation_ptr what, failure_ptr why) override {
    what->close();
    ended_.append(std::move(what), std::move(why));
  }

  rank_state_options options_;
  arena* memory_;
  shared_spaces* spaces_;
  std::optional<board_port> port_;
  std::vector<channel_state> channels_;
  program_shelf programs_;
  pairs pairs_;

  epoch_t next_;            ///< number of the next call
  epoch_t begun_;           ///< all before this one have begun, or are over
  operation_queue queue_;   ///< called, not begun, in order
  operation_ptr on_board_;  ///< also while it is stalled
  std::map<epoch_t, operation_ptr>
      under_way_;  ///< by mailbox, over a board of links, or waiting for everybody's counts
  // In tiers one operation is performed at a time, since the host's board takes one; it is among those under way.
  operation* in_tiers_ = nullptr;
  tier tier_ = tier::collect;
  bool tier_on_board_ = false;                         ///< that stage is under way, on the host's board
  std::unique_ptr<operation> across_;                  ///< what the hosts' first ranks perform; else null
  scratch_block collected_, host_share_;               ///< of a first rank (tier_memory)
  std::map<epoch_t, operation_ptr>::node_type spare_;  ///< of the last that ended, for the next
  std::map<epoch_t, std::vector<std::string>>
      stopping_;             ///< told to stop, not yet that it failed; what its lanes lacked
  ended_epochs failed_;      ///< before we called them
  std::set<epoch_t> asked_;  ///< the membership asked before we called them; of those that were open in some look
  ended_operations ended_;
  std::shared_ptr<operation_parts> arrivals_;  ///< a list, by next_listed
  rank_outbox* speaking_ = nullptr;            ///< during a transition: where its channels' messages go
  failure_ptr broken_, buried_;
  calls_ahead ahead_;
  std::uint64_t inline_history_ = 0;  ///< of that operation
  bool inline_ahead_ = false;
  bool inline_ = false;  ///< a blocking caller performs the operation before next_ on the board
  bool beginning_ = false;
  bool leaving_ = false, left_ = false, quiet_ = false, dead_ = false;
};

}  // namespace troupe::actors
