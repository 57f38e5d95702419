// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several jobs on one machine in virtual time, each with ranks, collectives and a timetable of its own, which contend for the elements that they
// share. By the same ranks, states and elements as one collective alone (virtual_run.hpp), or by NICs (offload_run.hpp). No CAF in this header.
//
// A job's ranks begin a round together: at the job's start, and then when the round before has ended everywhere and its computation is done, but not
// before the period is over. Within a round every rank goes from one collective to the next by itself.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/virtual/virtual_run.hpp"

namespace troupe {

/// A collective of a job. The score's ranks are the job's.
struct virtual_call {
  const score* notes = nullptr;  ///< lowered and verified; outlives the run
  call_shape shape{};
  cutting cut{};
  virtual_options options{};  ///< protocol, type, reduction, any_order, by; the rest is not looked at
  host_costs host{};          ///< what a rank's own work costs in it; not looked at where NICs perform
};

/// Times in picoseconds.
struct virtual_job {
  std::string name{};
  std::vector<int> ranks{};  ///< of the machine: rank i of the job sits where rank ranks[i] does
  layout places{};           ///< of as many ranks
  std::vector<virtual_call> calls{};
  std::int64_t start = 0;
  int rounds = 1;
  std::int64_t compute = 0;  ///< every rank's between two rounds, on its core where the machine has one for it
  std::int64_t period = 0;   ///< from the begin of a round to that of the next, at least
  bool by_nics =
      true;  ///< on machines whose NICs can perform collectives: they do, else a process of the job on every node
};

/// When something began and ended, on the first and on the last rank.
struct virtual_stretch {
  std::int64_t begin = 0, end = 0;
};

struct virtual_job_outcome {
  std::vector<virtual_stretch> rounds;
  std::vector<std::vector<virtual_stretch>> calls;  ///< by round, by call
};

struct virtual_jobs_outcome {
  std::vector<virtual_job_outcome> jobs;
  std::int64_t end_ps = 0;
  std::vector<element_use> use;  ///< by element
  std::uint64_t steps = 0, messages = 0, payload_bytes = 0, events = 0;
  std::vector<std::int64_t> finished;  ///< by rank of the machine: when the last job's collective ended there
  double buffer_fill = -1;             ///< as virtual_outcome
  std::uint64_t trace = 0;             ///< the same for equal runs
};

/// What some elements were occupied with. Costs 48 bytes a message and element.
struct element_recording {
  struct stretch {
    element_index element = no_element;
    std::int32_t job = -1;      ///< of a replay the group; −1: a rank's own work, or of a replay a single message
    rank_t from = -1, to = -1;  ///< of the machine
    std::int64_t begin = 0, end = 0;
    std::int64_t bytes = 0;  ///< on the wire
  };
  std::vector<bool> of;        ///< by element: is it wanted?
  std::size_t most = 500'000;  ///< more are dropped, and `complete` is false
  bool complete = true;
  std::vector<stretch> stretches;  ///< in the order in which they began to be known; not sorted by time
};

struct virtual_jobs_options {
  bool (*go_on)(void* context, std::uint64_t events) = nullptr;  ///< as virtual_options
  void* context = nullptr;
  element_recording* record = nullptr;  ///< changes no time
};

/// @throws as perform_virtually()
virtual_jobs_outcome perform_jobs_virtually(const std::vector<virtual_job>& jobs, const hardware& on,
                                            const virtual_jobs_options& options);

}  // namespace troupe
