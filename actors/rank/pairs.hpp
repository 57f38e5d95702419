// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sends and receives of one rank: numbered per peer, direction and tag, independent of the collectives and of each other.
//
// They need no agreement. One ends (a) performed, or (b) stopped at both ends: the end that ends first takes the other one with it, also
// before that was called. A sender revokes and waits for the answer, because the receiver reads the sender's buffer; a receiver
// refuses, and the sender then revokes. A send that the
// receiver had received before it heard of that is performed at both ends.
//
// Owner: rank_state. Memory: what is under way, and one number for each peer, direction and tag that ever was, which stays: it names the next
// message of that tag, and both ends would have to forget it between the same two messages. What the other end has ended before it was called
// here waits until it is called (ended_epochs.hpp).
//
// A short *blocking* send is over when it lies on the board (agreement_time::eager): it is *left*. The receiver takes it when it comes, also after the sender has left the communicator. If it never comes or refuses it, only the receiver hears of that.
//
// By mailbox their chunks go through one of the rank's channels, the same for all messages from one rank to another, since those of a tag are matched in
// order. Where the ranks share memory those without a tag go over the pair
// board, which has one row of slots for each pair and direction: then a caller
// that waits looks at its end itself (the inline calls, and those of a group while somebody drives it: watch()), and every other end is told when
// something has changed (look_again()); but a caller that sleeps on the slot board is woken there, without a word.

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/ports/mailbox/channel_state.hpp"
#include "actors/ports/pairs/pair_port.hpp"
#include "actors/ports/pairs/pair_staging.hpp"
#include "actors/ports/slots/slot_board.hpp"
#include "actors/rank/operation.hpp"
#include "actors/rank/rank_outbox.hpp"
#include "actors/waiting/time_limit.hpp"
#include "protocols/agreement/ended_epochs.hpp"

namespace troupe::actors {

/// Between two looks at messages that wait for long. The next of its kind at both ends is missed by nobody else, and the other end is asked.
inline constexpr std::chrono::nanoseconds pair_look = std::chrono::milliseconds{2500};

/// What sends and receives need of their rank.
class pair_keeper {
public:
  virtual ~pair_keeper() = default;
  virtual void start_pair(std::shared_ptr<const assignment> what) = 0;
  /// Drops what came for it, and what is under way of it. Its peers' memory may be referred to until flush() has ended.
  virtual void drop_pair(const operation_key& which) = 0;
  virtual void end_pair(operation_ptr what, failure_ptr why) = 0;
};

/// A blocking send or receive as its caller gives it.
struct pair_call {
  std::size_t count = 0;  ///< elements
  datatype type = datatype::u8;
  rank_t peer = -1;
  bool sending = false;
  const void* input = nullptr;
  void* output = nullptr;
  sent_when over = sent_when::taken;  ///< `copied` only if it fits
};

class pairs {
public:
  /// @param first number of the first send or receive with each peer @param board on whose pair board they meet, and where their callers sleep; null:
  /// by mailbox. The others outlive it. @param others of the board's ranks; null: in one process
  pairs(rank_t rank, int ranks, const std::string& communicator, epoch_t first, pair_keeper& keeper, slot_board* board,
        process_memory* others = nullptr);

  void submit(operation_ptr op, const failure_ptr& broken, rank_outbox& out);
  void performed(const operation_key& which);
  /// Cancel, deadline, mismatch: ends one of ours, unless it is over.
  void stop(const operation_key& which, failure_ptr why, rank_outbox& out);
  void stop_all(const failure_ptr& why, rank_outbox& out);
  void mismatch(const operation_key& which, rank_t from, rank_outbox& out);
  void failed(const operation_key& which, rank_outbox& out);
  /// @param sent by it; null: nothing that could still come
  void peer_left(rank_t peer, const sends_ptr& sent, rank_outbox& out);
  /// How far this rank's sends have come that went by mailbox; null: there are none.
  sends_ptr sent() const;
  void peer_lost(rank_t peer, rank_outbox& out);
  /// A peer ends its send.
  void revoke(rank_t sender, epoch_t epoch, const failure_ptr& why, rank_outbox& out);
  void revoked(rank_t receiver, epoch_t epoch, bool received, rank_outbox& out);
  void refused(rank_t peer, epoch_t epoch, bool sending, failure_ptr why, rank_outbox& out);
  void inquired(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else, rank_outbox& out);
  void stuck(look_t look, look_t latest, bool nobody_else, rank_outbox& out);
  /// The other end waits for `which` of ours: if nobody has called it, the log says `text`.
  void asked_for(const operation_key& which, const std::string& text, rank_outbox& out) const;
  void flushed(const operation_key& which, rank_outbox& out);
  /// The other end of a message with `peer` has changed something on the board.
  void look_again(rank_t peer, bool sending, rank_outbox& out);
  /// Those whose time is up end, and the other ends of those that have waited for two looks are asked for. Returns when to call again.
  steady_time expire(steady_time now, rank_outbox& out);
  /// The rank answers nothing more: nobody may write to its buffers. Messages that were performed before have ended well.
  void close();
  /// Everything is dropped: the rank is gone, and nobody refers to its buffers.
  void drop_all(const failure_ptr& why);

  // -- blocking calls over the board, without operation objects --
  static constexpr std::size_t most_inline = 2;  ///< one each way
  /// Nothing comes before a call with this peer.
  bool may_begin_inline(rank_t peer, bool sending) const {
    return board_ != nullptr && inline_count_ == 0 && under_way_.empty() && stopping_.empty() && !broken_ &&
           !has_left(peer) && (ended_.empty() || !ended_before({0, peer, sending}));
  }
  /// @pre may_begin_inline() for each; different rows, receives first. Throws std::bad_alloc and error: nothing has begun then.
  void begin_inline(std::span<const pair_call> calls);
  /// Of all of them. @param sends_too false: a send is looked at when what is received at the same time has come. A look reads the
  /// line that the peer is about to write its answer to.
  pair_status look_inline(rank_outbox& out, bool sends_too = true) {
    bool all = true;
    for (std::size_t i = 0; i < inline_count_; ++i) {
      inline_call& mine = inline_[i];
      if (mine.performed) continue;
      if (mine.key.sending && !sends_too && !all && !mine.end.left()) continue;
      const pair_status now = mine.end.look();
      if (now == pair_status::mismatch || now == pair_status::failed) return now;
      mine.performed = now == pair_status::performed;
      if (mine.performed && mine.end.left()) mine.in->left_in(mine.key.epoch) = mine.end.mark();
      all = all && mine.performed;
      tell(mine.end, mine.key, out);
    }
    return all ? pair_status::performed : pair_status::waiting;
  }
  /// All is over at this end as soon as it is looked at.
  bool left_inline() const { return inline_count_ == 1 && inline_[0].end.left(); }
  /// The caller will look less often.
  void offer_inline();
  /// The caller will sleep on the board (slot_board::sleep, for no_writer), where every writer wakes it. It looks once more before it
  /// sleeps, and after each sleep.
  void go_away_inline();
  /// All were performed.
  void end_inline() { inline_count_ = 0; }
  /// They take long: those that are not performed become operations like any others. Never throws.
  std::array<operation_ptr, most_inline> adopt_inline(time_limit deadline, steady_time begun, rank_outbox& out);
  /// One that is not performed is with a rank of another process.
  bool inline_is_far() const;
  bool inline_under_way() const { return inline_count_ > 0; }

  // -- operations that their caller looks at until it has something else to do: no end of them has to be told --
  /// Ends that get their slot from now on, and find nothing, are *watched*.
  void watch() { watches_ = board_ != nullptr; }
  bool watches_any() const { return !watched_.empty(); }
  /// False: some are, and are to be left: leave_watched().
  bool stops_watching() {
    watches_ = false;
    return watched_.empty();
  }
  /// Of all watched ones what can be done at once. True: something has ended.
  bool look_at_watched(rank_outbox& out);
  /// The caller will look less often: a thread that has the core meanwhile may perform what is received from this process. Others would need the system for it.
  void offer_watched();
  /// Nobody looks any more: from now on they are told.
  void leave_watched(rank_outbox& out);

  /// A chunk or credit of it is nobody's any more.
  bool is_over(const operation_key& which) const;
  bool idle() const { return under_way_.empty(); }
  bool holds(const operation_ptr& op) const {
    return std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& known) { return known.second == op; });
  }
  std::size_t stopping_count() const { return stopping_.size(); }

private:
  struct stopping {
    failure_ptr why;
    bool flushing = false;       ///< the DMA engine still owes an answer
    bool revoking = false;       ///< the receiver owes one
    bool answer_sender = false;  ///< we owe the sender one
    bool received = false;  ///< at the receiver, before that: the send was performed, though its credit has not come
    bool refused = false;   ///< by the receiver
  };
  using key_map_of_operations = std::unordered_map<operation_key, operation_ptr, operation_key_hash>;

  /// An operation that has its slot of the board.
  struct place {
    operation* what = nullptr;
    pair_end end;
    bool stopped = false;  ///< not looked at any more; keeps its slot until it is over
  };
  /// All sends to a peer, or all receives from it, without a tag.
  struct row {
    epoch_t next;               ///< first not called yet
    epoch_t unplaced;           ///< first that has had no slot yet
    pair_lane* lane = nullptr;  ///< null until its first use
    std::array<place, pair_lane::depth> places;
    std::array<std::uint64_t, pair_lane::depth>
        left{};  ///< marks of the sends that were left last; 0: none, or refused
    std::uint64_t& left_in(epoch_t epoch) { return left[static_cast<std::size_t>(epoch % pair_lane::depth)]; }
    /// Messages left in the slot that have not been taken, as far as is known: the receiver's words are read when a slot is needed, then for all.
    std::uint64_t still_left_in(epoch_t epoch);
  };
  struct watched {
    row* in;
    operation_key key;
  };
  struct inline_call {
    operation_key key;
    pair_call from;
    row* in = nullptr;
    pair_end end;
    bool performed = false;
  };

  /// The first of those with one peer, direction and tag that waits for long.
  struct waiting_first {
    epoch_t epoch;
    steady_time since;
    bool asked = false;
  };

  bool has_left(rank_t peer) const { return gone_[static_cast<std::size_t>(peer)].left; }
  bool on_board(const operation_key& which) const { return board_ != nullptr && tag_of(which.epoch) == 0; }
  epoch_t take_number(const operation& op);
  row& row_of(rank_t peer, bool sending);
  void make_spare(std::size_t i);
  row* find_row(rank_t peer, bool sending) const;
  bool ended_before(const operation_key& row_of) const;
  epoch_t next_of(const operation_key& which) const;
  place* place_of(const operation_key& which);
  pair_end make_end(row& in, const operation_key& key, const pair_call& what);
  void stage(pair_far_end& to, const operation_key& key, pair_lane& lane, const void* data, std::size_t bytes);
  void fill(row& in, rank_t peer, bool sending, rank_outbox& out);
  void take_status(const operation_key& key, pair_status status, rank_outbox& out);
  bool add_watched(row& in, const operation_key& key) noexcept;
  static place* place_of(const watched& which);
  /// If it has to be told: a caller that sleeps on the board is woken, for another one the peer's rank is left a word.
  void tell(pair_end& from, const operation_key& key, rank_outbox& out) {
    if (from.tells() && !board_->wake_from_messages(key.peer)) out.look_again(key.peer, !key.sending);
  }
  bool performed_after_all(const operation_key& which);
  void withdraw(const operation_key& send);
  bool left_is_refused(const operation_key& which, rank_outbox& out);

  bool never_comes(const operation_key& which) const;
  failure_ptr left_without(const operation_key& which) const;
  void drop(const operation_key& which, stopping& s, rank_outbox& out);
  void end_if_stopped(const operation_key& which, rank_outbox& out);
  steady_time ask_for_missing(steady_time now, rank_outbox& out);
  void settle(operation_ptr op, failure_ptr why);
  void end_early(const operation_key& which, const failure_ptr& why);

  rank_t rank_;
  const std::string& communicator_;
  pair_keeper* keeper_;
  epoch_t first_;  ///< number of the first with each peer and direction
  key_map_of_operations under_way_;
  std::unordered_map<operation_key, stopping, operation_key_hash> stopping_;
  /// By the other end, before we called them; by peer and direction, all tags together.
  std::unordered_map<std::uint64_t, ended_epochs> ended_;
  std::array<std::vector<std::unique_ptr<row>>, 2> rows_;  ///< receives, sends; by peer, made at their first call
  std::unordered_map<std::uint64_t, epoch_t>
      tagged_;  ///< by pair_name: first number of that tag that was not called yet
  std::unordered_map<std::uint64_t, waiting_first> waiting_;  ///< by pair_name, as the last look found them
  struct peer_gone {
    bool left = false, lost = false;
  };
  std::vector<peer_gone> gone_;  ///< by rank
  std::unordered_map<std::uint64_t, epoch_t>
      sent_by_gone_;  ///< by pair_name: what those that left have not sent any more
  bool broken_ = false;

  slot_board* board_;
  process_memory* others_;
  pair_staging staging_;
  bool watches_ = false;
  std::vector<watched> watched_;  ///< in no order; of some the operation may have ended or stopped meanwhile
  std::array<inline_call, most_inline> inline_;
  std::size_t inline_count_ = 0;
  std::array<key_map_of_operations::node_type, most_inline>
      spare_;  ///< so that an inline call can always become an operation
};

}  // namespace troupe::actors
