// SPDX-License-Identifier: Apache-2.0
#pragma once
// One communicator's membership: who is here, who has left, whose actor is gone; and the agreement on operations that take long
// (protocols/agreement/agreement.hpp). No CAF, no thread and no clock in here, so that every transition can be tested alone, and runs
// unchanged in real time, in virtual time and under simulation.
//
// Owner: the membership's actor. What may arrive, a rank's own messages in the order in which it sent them:
//   called / differs / withdraw / fail / stopped / left / quiet / perished   from a rank (rank_outbox.hpp)
//   down(rank)       from the watcher of the ranks: its actor has ended
//   lost(rank)       from the watcher of other processes: the rank's has ended
//   flushed(rank)    the answer to membership_outbox::flush
//   abort            from a caller
//   stuck            from a rank that looked and found everything idle
//   dissolve         from the engine
//
// A rank is lost when its actor has ended and nothing touches a peer's memory on its behalf: it has said so itself (`perished`), and its
// DMA engine has done what it was asked for before (`flushed`). Its own buffers stay until all living ranks are `quiet`, which refer
// to them until then: only then it is buried, and counts as one that has left. When all have left, the communicator dissolves.

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "protocols/agreement/agreement.hpp"

namespace troupe::actors {

/// Where the membership's messages go. Calls happen during the transitions below.
class membership_outbox : public agreement::audience {
public:
  /// To every rank: see rank_state::stuck().
  virtual void stuck(look_t look, bool nobody_else) = 0;
  /// To the rank's DMA engine: answer with flushed(rank) when you have done what that rank asked for before.
  virtual void flush(rank_t rank) = 0;
  /// To the state of a rank whose actor is gone: nobody refers to its buffers any more.
  virtual void bury(rank_t rank, const failure_ptr& why) = 0;
  /// All have left, and had called different things, which no operation came after to fail for.
  virtual void untold(const std::string& why) = 0;
  /// Ends every actor of the communicator, this one too: nothing more arrives.
  virtual void dissolve() = 0;
};

class membership_state {
public:
  membership_state(int ranks, std::string communicator) : ranks_(ranks), agreement_(ranks, std::move(communicator)) {}

  // -- from ranks --
  void called(epoch_t epoch, rank_t rank, call what, membership_outbox& out) {
    agreement_.called(epoch, rank, std::move(what), out);
  }
  void differs(epoch_t epoch, membership_outbox& out) { agreement_.differs(epoch, out); }
  void withdraw(epoch_t epoch, rank_t rank, std::optional<call> ahead, membership_outbox& out) {
    agreement_.withdraw(epoch, rank, out, std::move(ahead));
  }
  void fail(epoch_t epoch, const std::string& title, failure_ptr why, membership_outbox& out) {
    agreement_.fail(epoch, title, std::move(why), out);
  }
  void stopped(epoch_t epoch, rank_t rank, std::vector<std::string> waits, presence came, membership_outbox& out) {
    agreement_.stopped(epoch, rank, std::move(waits), out, std::move(came));
  }
  void left(rank_t rank, epoch_t operations, call last, const sends_ptr& sent, membership_outbox& out);
  void quiet(rank_t rank, membership_outbox& out);
  void perished(rank_t rank, membership_outbox& out);

  // -- from others --
  void down(rank_t rank, const std::string& reason, membership_outbox& out);
  void flushed(rank_t rank, membership_outbox& out);
  /// With its process, which touches no memory of ours.
  void lost(rank_t rank, failure_ptr why, membership_outbox& out);
  void abort(failure_ptr why, membership_outbox& out) { agreement_.abort(std::move(why), out); }
  void stuck(look_t look, look_t latest, bool nobody_else, membership_outbox& out) {
    agreement_.stuck(look, latest, nobody_else, out);
    out.stuck(look, nobody_else);
  }
  void dissolve(membership_outbox& out);

  bool has_left(rank_t rank) const { return left_.contains(rank); }
  bool is_lost(rank_t rank) const { return lost_.contains(rank); }
  bool dissolved() const { return dissolved_; }
  const failure_ptr& broken() const { return agreement_.broken(); }
  /// agreement::overdue()
  std::vector<std::string> overdue(int looks) { return agreement_.overdue(looks); }
  /// agreement::held()
  std::vector<std::string> held(int looks) { return agreement_.held(looks); }
  std::size_t open_operations() const { return agreement_.open_operations(); }

private:
  void lose_if_at_rest(rank_t rank, membership_outbox& out);
  void bury_if_quiet(membership_outbox& out);

  int ranks_;
  agreement agreement_;
  std::set<rank_t> left_, quiet_, perished_, lost_;
  std::map<rank_t, std::string> down_;  ///< and why
  bool dissolved_ = false;
};

}  // namespace troupe::actors
