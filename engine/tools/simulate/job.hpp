// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a job of several simulated processes from a seed: the states that decide who is here and who is lost (presence_state), the ranks' and the
// memberships', joined by connections, in one thread under a virtual clock.
//
// What goes wrong: processes are killed, stopped for a while, cut off from one or all others in one or both directions; connections are reset.
// Frames of one connection stay in order, those of different ones overtake each other; what was written before an end arrives or not.
//
// What is checked: what a rank gets is right to the last byte, and its buffers are as they were after it has them back; a rank that fails, fails with
// peer_lost and, where one process is the reason, names that; where nothing happened nobody fails; everything ends within a few silences; and where
// the network does not fail, nobody goes on whom others have lost. And of
// divisions: everybody has the same members in the same order, no name is used twice, who count on each other agree on who is left, and nothing
// is kept for those who never come.
//
// In some jobs one rank in each process, and one communicator whose home is process 0, until that is lost. In the others (job_options::divides) one to
// three ranks a process, which split, duplicate, shrink and revoke their communicators: who is in which part, who is left, what comes early and who
// has not got a part is decided by the states that an engine has. Chunks are announced and places filled as links do.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/tools/simulate/plan_source.hpp"

namespace troupe::simulate {

/// Ways to break what processes say to each other; simulation notices each.
enum class job_mutant : std::uint8_t {
  none,
  no_beats,
  no_suspicion,
  no_takeover,
  silence_heard,
  eof_unheard,
  absent_unsaid,
  gave_up_unsaid,
  early_dropped,
  loss_unshrunk,
  rest_unnamed,
  untaken_awaited,
};
std::string_view name(job_mutant which);
/// What is broken, for people.
std::string_view meaning(job_mutant which);
inline constexpr job_mutant all_job_mutants[] = {
    job_mutant::no_beats,      job_mutant::no_suspicion,  job_mutant::no_takeover,    job_mutant::silence_heard,
    job_mutant::eof_unheard,   job_mutant::absent_unsaid, job_mutant::gave_up_unsaid, job_mutant::early_dropped,
    job_mutant::loss_unshrunk, job_mutant::rest_unnamed,  job_mutant::untaken_awaited};

struct job_options {
  int least_processes = 2, most_processes = 5;
  bool faults = true;
  bool divides = true;  ///< some jobs have several ranks a process, and divide and shrink their communicators
  bool trace = false;
  job_mutant broken = job_mutant::none;
};

struct job_result {
  std::string fault;  ///< the first; empty: none
  std::string story;  ///< what happened to whom
  std::vector<std::string> trace;
  std::uint64_t events = 0, performed = 0, failed = 0;
  std::uint64_t divisions = 0,
                shrinks = 0;  ///< parts that came to be, the world among them; and shrinks that had an answer
  bool ok() const { return fault.empty(); }
};

/// Deterministic. Not synchronised.
job_result simulate_job(std::uint64_t seed, plan_source& plans, const job_options& options = {});

struct job_campaign {
  std::uint64_t first = 1, last = 10'000;
  std::size_t most_failures = 5;  ///< then no more seeds are tried
  job_options each;
};
struct job_campaign_result {
  std::uint64_t seeds = 0, events = 0, performed = 0, failed = 0;
  std::uint64_t divisions = 0, shrinks = 0;
  std::vector<std::pair<std::uint64_t, std::string>> failures;
};
job_campaign_result run_jobs(const job_campaign& what);

}  // namespace troupe::simulate
