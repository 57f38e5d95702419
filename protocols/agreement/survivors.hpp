// SPDX-License-Identifier: Apache-2.0
#pragma once
// The processes that are left: one answer for all processes of a communicator, though some end meanwhile, the coordinator included. This is the
// state of one process in it; no thread, no clock, no connection in here, so that every schedule can be simulated (tests/simulation).
//
//            contribute()             propose                decide
//  waiting ───────────────▶ ready ───────────────▶ accepted ─────────▶ decided
//                             └───────────────────────────────────────────▲
//
// The *coordinator* is the first participant that is not gone; every process finds that out for itself. A process that has its contribution sends
// `ready` to the coordinator, with what it has accepted before. When all that are not gone have sent it, the coordinator proposes; when all that
// are not gone have accepted, that is the answer, and it tells everybody. If the coordinator is lost, all send `ready` to the next one.
//
// Why there are not two answers. It is Paxos (Lamport 1998) where a quorum is every process that is not gone: ballots are ordered by
// coordinator, then by attempt, and coordinators follow each other in the participants' order. `ready` to a coordinator is the promise to accept
// from none before it: that one is gone here, and a process that is gone is not heard any more. A coordinator that finds that something was accepted proposes
// the same again (of the last ballot), since it may have been decided by one who is gone. Only what nobody can have decided, its own proposal, it
// replaces when somebody goes meanwhile. So two processes that do not count each other as gone never have two answers. Two halves of a cut network do:
// each half has lost the other one.
//
// Gone are: processes that are lost, for good (docs/protocol.md, 5), and those that send `absent`: all their ranks of this communicator have left
// it, and have nothing to say. A process that has decided stays here, and tells any that asks: the coordinator may be lost before it has told all.
//
// Bounds: three messages a process and coordinator, and a list of the missing while at most `most_named` are.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "protocols/chunk.hpp"

namespace troupe {

/// A word between participants.
struct survivors_word {
  enum class kind : std::uint32_t {
    ready,    ///< to the coordinator: `ranks` of mine take part; accepted so far: coordinator, attempt, list
    ask,      ///< from the coordinator: say ready, or absent
    waiting,  ///< from the coordinator: `list` of participants have said neither
    propose,  ///< from the coordinator: coordinator, attempt, list
    accept,   ///< to the coordinator: coordinator, attempt
    decide,   ///< `list` is the answer
    absent,   ///< I take no part, and never will
  } what = kind::ask;
  std::uint32_t coordinator = 0;
  std::uint32_t attempt = 0;  ///< 0: nothing was accepted
  std::vector<rank_t> ranks{};
  std::vector<rank_t> list{};
};
constexpr survivors_word::kind last_of(survivors_word::kind) { return survivors_word::kind::absent; }

class survivors {
public:
  /// Where its messages go. Calls happen during the transitions below.
  class outbox {
  public:
    virtual ~outbox() = default;
    /// Never to itself, nor to one that is gone. Messages to one participant arrive in their order, or their receiver loses the sender.
    virtual void send(std::uint32_t to, survivors_word what) = 0;
    /// Once: the ranks that are left, in their order.
    virtual void decided(const std::vector<rank_t>& members) = 0;
  };

  /// @param participants processes, all in the same order; @param here which of them this one is
  survivors(std::uint32_t participants, std::uint32_t here);

  // -- transitions; a process that is gone is not heard --
  /// These ranks of this process take part. Once.
  void contribute(std::vector<rank_t> mine, outbox& out);
  void heard(std::uint32_t from, const survivors_word& what, outbox& out);
  void lost(std::uint32_t participant, outbox& out);

  // -- what came of it --
  bool has_contributed() const { return mine_.has_value(); }
  const std::optional<std::vector<rank_t>>& answer() const { return decided_; }
  bool is_gone(std::uint32_t participant) const { return gone_[participant]; }
  /// The participants that it waits for, as far as it knows; the coordinator alone, if that has not said more.
  std::vector<std::uint32_t> missing() const;

  /// A coordinator that lacks more does not list them.
  static constexpr std::size_t most_named = 16;

private:
  struct ballot {
    std::uint32_t coordinator = 0, attempt = 0;
    auto operator<=>(const ballot&) const = default;
  };
  struct promise {
    std::vector<rank_t> ranks;
    ballot accepted;
    std::vector<rank_t> list;
  };

  std::uint32_t coordinator() const;
  bool all_here(const std::set<std::uint32_t>& who) const;
  void turn(outbox& out);
  void ask_for_promises(outbox& out);
  void propose(outbox& out);
  void accepted_by_all(outbox& out);
  void decide(const std::vector<rank_t>& members, outbox& out);
  void promised(std::uint32_t from, const survivors_word& what, outbox& out);
  void proposed(std::uint32_t from, const survivors_word& what, outbox& out);
  void to_others(const survivors_word& what, outbox& out) const;

  std::uint32_t here_;
  std::vector<bool> gone_, asks_;  ///< by participant
  std::optional<std::vector<rank_t>> mine_;
  std::optional<std::vector<rank_t>> decided_;
  ballot accepted_;  ///< attempt 0: nothing
  std::vector<rank_t> accepted_list_;
  std::optional<std::uint32_t> promised_to_;  ///< the coordinator that was told `ready`, or the answer
  // Of the coordinator, and of a process that may be the next one:
  std::vector<std::optional<promise>> promises_;  ///< by participant, of those who have said `ready` to this one
  std::set<std::uint32_t> asked_, acceptors_;
  std::uint32_t attempt_ = 0;  ///< of its proposal; 0: none yet
  std::vector<rank_t> proposal_;
  bool inherited_ = false;             ///< the proposal is an earlier coordinator's
  std::vector<std::uint32_t> lacked_;  ///< as the coordinator has said
};

}  // namespace troupe
