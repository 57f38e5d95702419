// SPDX-License-Identifier: Apache-2.0
#pragma once
// Agreement on operations: the state of the membership actor, without the actor.
//
// On the good path nobody asks: agreement travels with the data (protocols/lower/agreement_round.hpp). A rank says `called` when
// an operation takes long, when it meets a message of another call, or when it must know everybody's counts first. When all ranks
// have called the same, all hear `agreed`, with the counts. When they have not, or anything fails (deadline, cancel, abort, a call refused, a rank
// that left, an actor that died), the operation ends in two steps, so that no rank's buffers are given back to the caller while a
// peer may still read them:
//   1. `stop` to every rank, each of which drops the operation and answers `stopped`, with what it called;
//   2. when all living ranks have answered, `failed` with the same failure to every rank.
// A rank that had performed the operation already keeps its result. If it had performed it ahead of the agreement (call::agreement), and
// now turns out to have called something else than the others, the communicator ends with that error: there every rank hears of it.
// A rank's messages arrive in the order in which it sent them, so
// `called` of an epoch never comes after that rank's `stopped`.
//
// Owner: the membership actor. Memory: one record per operation that is neither agreed nor failed.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory/error.hpp"
#include "protocols/call.hpp"
#include "protocols/chunk.hpp"

namespace troupe {

/// Why an operation failed; shared by all ranks that get it.
struct failure {
  errc code = errc::aborted;
  std::string text;
};
using failure_ptr = std::shared_ptr<const failure>;
failure_ptr make_failure(errc code, std::string text);

/// A rank that waits for long looks whether anything is under way at all. Looks are numbered when they begin, so what has not moved
/// in a look that began after it was first suspected never will: it was there already when that look found everything idle.
using look_t = std::uint64_t;
/// @param suspected of the operation; 0 at first. @param latest look that has begun by now, >= look.
inline bool confirm(look_t& suspected, look_t look, look_t latest) {
  if (suspected != 0) return look > suspected;
  suspected = latest;
  return false;
}

using counts_ptr = std::shared_ptr<const std::vector<std::size_t>>;

/// How far a rank has come with its sends to one peer with one tag; what it has sent may still be on its way when others hear that it left.
struct sends_made {
  rank_t to = -1;
  epoch_t next = 0;  ///< the first that it has not called
};
using sends_ptr = std::shared_ptr<const std::vector<sends_made>>;

/// A rank's knowledge of an operation that it stops: what it called; or that it was performed there; or nothing.
struct presence {
  std::optional<call> what;
  bool performed = false;
  bool ahead = false;  ///< performed before the others were known to have called the same; `what` says what
};

class agreement {
public:
  /// Where words to the ranks go. Calls happen during the transitions below.
  class audience {
  public:
    virtual ~audience() = default;
    virtual void agreed(epoch_t epoch, const counts_ptr& counts) = 0;  ///< to every rank
    virtual void ask(epoch_t epoch) = 0;                               ///< to every rank: have you called it?
    virtual void stop(epoch_t epoch) = 0;                              ///< to every living rank
    virtual void failed(epoch_t epoch, const failure_ptr& why) = 0;    ///< to every rank
    virtual void broken(const failure_ptr& why) = 0;                   ///< to every rank: the communicator ended
    virtual void peer_left(rank_t rank, const sends_ptr& sent) = 0;    ///< to every rank
    virtual void peer_lost(rank_t rank) = 0;  ///< to every rank; `broken` follows, or came before
  };

  agreement(int ranks, std::string communicator);

  void called(epoch_t epoch, rank_t rank, call what, audience& out);
  /// A rank that has called it has met a message of another call.
  void differs(epoch_t epoch, audience& out);
  /// The rank has performed the operation (or heard of its failure), and may never have said `called`.
  /// @param ahead what it called, if it may have performed it before the others were known to call the same
  void withdraw(epoch_t epoch, rank_t rank, audience& out, std::optional<call> ahead = {});
  /// A rank asks to end an operation, agreed or not, which it calls `title`.
  void fail(epoch_t epoch, const std::string& title, failure_ptr why, audience& out);
  void stopped(epoch_t epoch, rank_t rank, std::vector<std::string> waits, audience& out, presence came = {});
  /// The rank's communicator handle is gone: it will call nothing more. `operations`: how many it called,
  /// most of which it performed and never said so. Of `last` only the history counts. `sent`: what may still be on its way; null: nothing.
  void left(rank_t rank, epoch_t operations, audience& out, call last = {}, const sends_ptr& sent = {});
  /// The rank's actor is gone, and with it its channels: it answers nothing more.
  void lost(rank_t rank, const std::string& reason, audience& out);
  /// The same. @param why the communicator ends with, if it has not ended before
  void lost(rank_t rank, failure_ptr why, audience& out);
  void abort(failure_ptr why, audience& out);
  /// The look has found that nothing moves any more. Asks for those who have not said `called`; they may have performed it.
  /// @param nobody_else every rank's own thread waits, too: a rank that has not called, never will.
  void stuck(look_t look, look_t latest, bool nobody_else, audience& out);

  /// Operations that not all ranks have called, and had not at each of the `looks` − 1 calls of this before; each is told once, for a
  /// log: who waits, for what, and who has not called it.
  std::vector<std::string> overdue(int looks);
  /// In the same way: operations that have failed, and that not all ranks have let go of.
  std::vector<std::string> held(int looks);

  /// Why the communicator cannot be used any more; null while it can.
  const failure_ptr& broken() const { return broken_; }
  std::size_t open_operations() const { return records_.size(); }
  /// When all have left: what nobody was told, as no operation came after it. Empty: they have called the same.
  std::string untold_disagreement() const;

private:
  struct record {
    std::vector<std::optional<call>> calls;
    int called = 0;           ///< of the calls, those of ranks that wait
    bool differ = false;      ///< two of them have been found to
    std::vector<bool> ahead;  ///< performed it, perhaps before the others were known to call the same
    bool stopping = false;
    std::vector<bool> has_stopped;
    std::vector<bool> performed;
    failure_ptr why;
    std::string title;
    std::vector<std::string> waits;
    look_t suspected = 0;
    look_t doomed = 0;                ///< the look that confirmed the suspicion; the next one ends it
    std::uint64_t failures_seen = 0;  ///< when it was suspected: another failure since may let others come
    int seen_open = 0;                ///< by overdue()
    int seen_stopping = 0;            ///< by held()
  };

  record& open(epoch_t epoch);
  static bool differs_from_another(const record& r, rank_t rank, epoch_t epoch);
  void conclude_if_known(epoch_t epoch, record& r, audience& out);
  void begin_stop(epoch_t epoch, record& r, failure_ptr why, audience& out);
  void finish_if_stopped(epoch_t epoch, audience& out);
  failure_ptr departure(rank_t rank) const;
  std::string describe(epoch_t epoch, const record& r) const;
  std::string partial_table(const record& r) const;
  std::string name_of(epoch_t epoch, const record& r) const;

  int ranks_;
  std::string communicator_;
  std::map<epoch_t, record> records_;
  std::vector<bool> gone_;  ///< left: calls nothing more
  std::vector<epoch_t> called_by_gone_;
  std::vector<call> last_of_gone_;
  std::vector<bool> dead_;  ///< lost: answers nothing more
  failure_ptr broken_;
  std::uint64_t failures_ = 0;  ///< begun by fail()
};

/// "rank 3", "ranks 0–2 and 5".
std::string list_ranks(const std::vector<rank_t>& ranks);

}  // namespace troupe
