// SPDX-License-Identifier: Apache-2.0
#pragma once
// An application as a graph of computations, messages and collectives, read from files: Chakra execution traces (chakra.hpp), or GOAL
// (LogGOPSim, ATLAHS), with our line for collectives, which an engine records (docs/study.md, "A whole application"):
//
//   num_ranks 2                                     once, first
//   comm even { 0 2 4 }                             ranks that call collectives together; `world` is all
//   rank 0 {
//   l1: calc 1500 cpu 0                             nanoseconds
//   l2: send 4096b to 1 tag 7 cpu 0 nic 0           nic is read and not looked at: which way a message goes is the machine's to say
//   l3: recv 4096b from 1 tag 7                     from -1, tag -1: any
//   l4: coll all_reduce 1024 f32 sum comm even      then any of: root R, by CHOREOGRAPHY, counts A,B,C (v-forms: the blocks' elements)
//   l2 requires l1                                  begins when l1 has ended
//   l3 irequires l2                                 begins when l2 has begun
//   }
// Ranks call the collectives of a communicator in the order of their lines. Comments are // to the end of the line and /* … */. What a real run
// measured stands in comments, which other programs pass over:
//
//   //@ clock 5f3a… 1234567        this file's times begin at 1234567 ns of that clock; files of one clock are of one timeline
//   //@ cpu 57000 of 30000 recording 2000    in 30000 ns the process had 57000 ns of CPU time: 1.9 cores; its threads recorded for 2000
//   //@ l4 from 2000 to 3500       the operation of this label above was under way then, in nanoseconds; both may stand in lines of their own

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/virtual/virtual_replay.hpp"
#include "engine/tools/workload.hpp"

namespace troupe {

/// A collective as its ranks call it.
struct application_call {
  job_kind kind;
  std::size_t count = 0;            ///< elements of a block
  std::vector<std::size_t> counts;  ///< v-forms: as job::counts
  datatype type = datatype::u8;
  op reduction = sum;
  rank_t root = 0;           ///< of the communicator
  std::string choreography;  ///< empty: the replay's own
};

struct application {
  std::vector<replay_rank> ranks;  ///< amount of collectives: index among `collectives`
  struct communicator {
    std::string name;
    std::vector<int> ranks;
  };
  std::vector<communicator> communicators;  ///< the first is world
  struct collective {
    std::size_t communicator = 0;
    application_call what;
  };
  std::vector<collective> collectives;
  /// When an operation was under way in the run that was recorded; −1: not said.
  struct recorded_time {
    std::int64_t begin_ps = -1, end_ps = -1;
  };
  /// By rank and operation, from the first begin of all on; empty: it is no trace of a real run.
  std::vector<std::vector<recorded_time>> recorded;
  /// CPU time of the processes meanwhile, and how many cores' time that is; 0: not said.
  std::int64_t recorded_cpu_ps = 0;
  double recorded_cores = 0;
  std::int64_t recording_ps = 0;  ///< that threads spent on the recording itself; it is in no computation
  /// When the last one had ended; −1: there is none.
  std::int64_t recorded_end_ps() const;
};

struct trace_text {
  std::string file;  ///< for messages
  std::string text;
};

/// Several files make one application: each rank is in one of them.
/// @param own names of score files, by which collectives may be performed
/// @throws error(bad_config) that names file and line, what is wrong, and what would be right
application read_goal(const std::vector<trace_text>& files, const std::vector<std::string>& own = {});
/// read_goal() reads it back; times are rounded to nanoseconds, which GOAL counts in.
std::string write_goal(const application& what);

/// Choices that a trace leaves to its replay.
struct trace_reading {
  double operations_a_second =
      0;  ///< of computations whose trace says no time but operations (Chakra's num_ops); 0: not said
  double memory_bytes_a_second =
      0;               ///< of computations that touch memory, and of accesses to it; 0: as fast as need be
  std::string groups;  ///< a file with the ranks of communicators, as ASTRA-sim's: {"1": [0, 2], …}; empty: none
  std::vector<std::string> own{};  ///< GOAL: as read_goal's
};

/// Reads the files: Chakra's, if the first one's name ends in ".et" or ".json"; else GOAL's. @throws error(bad_config) also for a file that
/// cannot be read
application load_application(const std::vector<std::string>& files, const trace_reading& how = {});

}  // namespace troupe
