// SPDX-License-Identifier: Apache-2.0
#pragma once
// A whole application in virtual time: every rank's computations, messages and collectives, as a graph of what has to wait for what
// (GOAL: Hoefler, Siebert, Lumsdaine 2009; LogGOPSim: Hoefler, Schneider, Lumsdaine 2010). Messages and collectives pass the same elements
// as everything in virtual time, and contend for them. No CAF in this header.
//
//   ready      an operation is ready when all it needs has ended (or begun, where it asks for no more); the first ones are at time 0
//   cpu        computations and the work of sends and receives of a rank's cpu follow one another in the order in which they get ready; on a
//              machine whose ranks have cores (this_machine) they take turns at the rank's core, whatever their cpu
//   send       works host.step + host.send, then its message leaves, and it has ended; a message above the eager limit is received first
//   recv       takes the first message that fits by sender and tag, in the order of their sending from each; then works host.step +
//              host.receive, and copies where the machine does not receive in place. The message may be shorter than it says, as MPI has it, and not longer
//   memory     passes the DMA engine of its rank, and what else is on the way where it is of the segment that all ranks address, and takes
//              host.transfer by itself, as steps of scores do
//   ready      says at once that a piece of its rank's input of a partitioned collective is ready; it may come before the collective
//   arrived    has ended when a piece of the output of a partitioned collective is there
//   collective its ranks take part from when they come to it; what it costs is what perform_virtually() makes of it. Or its ranks meet, where they
//              share memory: when the last one has come, all their cores work for so long as the trace says, and then it has ended on all
//
// One thread, no wall clock, no randomness: the same arguments give the same result, event by event.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/virtual/virtual_jobs.hpp"

namespace troupe {

inline constexpr rank_t any_rank = -1;       ///< of a receive
inline constexpr std::int64_t any_tag = -1;  ///< of a receive

struct replay_operation {
  enum class kind : std::uint8_t { calc, send, recv, collective, memory, ready, arrived };
  kind what = kind::calc;
  std::int32_t cpu = 0;
  rank_t peer = any_rank;  ///< send: to; recv: from; memory: in whose share of L2; any_rank: the own L1
  std::int64_t tag = 0;    ///< of sends and receives; memory: 1 writes, 0 reads; ready, arrived: the piece
  /// calc: picoseconds; send, recv, memory: bytes; collective, ready, arrived: its index among replay_trace::collectives
  std::uint64_t amount = 0;
  std::uint32_t line = 0;  ///< of its file, for messages
};
/// "calc", "send", "recv", "collective", "memory", "ready", "arrived".
std::string_view name(replay_operation::kind what) noexcept;

/// `later` begins when `earlier` has ended, or begun. Indices of the rank's operations.
struct replay_dependency {
  std::uint32_t later = 0, earlier = 0;
  bool begun = false;
};

struct replay_rank {
  std::vector<replay_operation> operations;
  std::vector<replay_dependency> needs;
  std::string file;  ///< that lines are of
};

/// How collectives of one kind, size and group of ranks are performed.
struct replay_group {
  std::vector<int> ranks;  ///< of the machine
  layout places;           ///< of as many
  virtual_call call;
  std::int64_t meets_ps = -1;  ///< ≥ 0: they meet, and their cores work so long; `call` is not looked at
};

struct replay_trace {
  std::vector<replay_rank> ranks;
  std::vector<replay_group> groups;
  std::vector<std::uint32_t> collectives;  ///< the group of each
};

/// An operation of a trace.
struct replay_place {
  rank_t rank = -1;             ///< −1: none
  std::uint32_t operation = 0;  ///< which of that rank's
};

/// When an operation did what, in picoseconds, and why not sooner.
struct replay_span {
  std::int64_t ready = -1, begin = -1, end = -1;  ///< −1: never
  std::int64_t work = 0;                          ///< of its cpu, up to `end`
  rank_t from = -1;                               ///< whose operation it had to wait for last; −1: nobody's
  std::uint32_t operation = 0;                    ///< which of that rank's
};

/// How a rank spent its time up to its last operation's end; they add up to it.
struct replay_times {
  std::int64_t compute = 0;     ///< a computation was under way
  std::int64_t collective = 0;  ///< none was, but a collective
  std::int64_t message = 0;     ///< nor that, but a send, a receive or an access to memory
  std::int64_t idle = 0;        ///< nothing was
  std::int64_t end = 0;
};

struct replay_outcome {
  std::int64_t end_ps = 0;
  std::vector<std::vector<replay_span>> spans;  ///< by rank, by operation
  std::vector<replay_times> ranks;
  std::vector<element_use> use;  ///< by element
  std::uint64_t messages = 0, payload_bytes = 0, events = 0;
  std::uint64_t most_at_once = 0;  ///< collectives
  std::uint64_t trace = 0;         ///< the same for equal runs
  /// Receives whose message had fewer bytes than they take, which is none's fault; the first of them, as a sentence.
  std::uint64_t shorter = 0;
  std::string first_shorter{};
  /// Messages that nobody received, which a send that does not wait for its receive may leave; the first of the trace.
  std::uint64_t unreceived = 0;
  std::string first_unreceived{};
};

struct replay_options {
  protocol_costs protocol;                                       ///< of single messages
  std::uint64_t eager_bytes = 64 * 1024;                         ///< a longer message's send ends when it is received
  bool (*go_on)(void* context, std::uint64_t events) = nullptr;  ///< as virtual_options
  void* context = nullptr;
  element_recording* record = nullptr;  ///< changes no time
};

/// @pre every index is in range; peers are ranks of the trace; every rank of a group has each of its collectives once, and each piece of a
/// partitioned one made ready once, before that can end; partitioned ones are performed by players
/// @throws error: bad_config (the operations wait for each other, or for what never comes: says which, with file and line; a message is longer
/// than its receive takes), and as perform_virtually()
replay_outcome perform_replay(const replay_trace& what, const hardware& on, const replay_options& options);

}  // namespace troupe
