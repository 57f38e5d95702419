// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs one collective on all ranks: once to check every byte of the result, then repeatedly to time it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/api/engine.hpp"
#include "engine/planning/planner.hpp"
#include "engine/tools/workload.hpp"

namespace troupe {

struct measurement {
  double time_us = 0;  ///< of one repetition: from the first rank's begin to the last rank's end, over all of them
  double algbw = 0;    ///< GB/s (1e9)
  double busbw = 0;
  std::optional<std::uint64_t> wrong;  ///< elements, over all ranks, inputs that changed included; empty: not checked
  /// Of single repetitions, each as long as its slowest rank takes; µs.
  struct distribution {
    double least = 0, median = 0, p99 = 0, most = 0;
  };
  std::optional<distribution> spread;
};

struct job_result {
  job what;
  job_shape shape;
  int ranks = 0;
  int processes = 1;
  std::string choreography;
  std::string protocol;
  std::optional<measurement> out_of_place;
  std::optional<measurement> in_place;
  std::uint64_t out_of_bounds = 0;  ///< bytes written outside the buffers
};

/// Not thread-safe but for interrupt().
class bench_runner {
public:
  /// @param settings gives ranks, processes, repetitions and whether to check; its groups are not looked at.
  bench_runner(engine& on, const workload& settings);
  ~bench_runner();

  /// Meets the other processes, where there are some: before anything else then. All of them make the same calls of check() and run() and get the
  /// same results. Throws what engine::join() throws, and error(bad_config) if the job has another number of ranks.
  void join();
  /// Where the ranks sit, for people: "flat", "2x4".
  std::string layout_text() const;

  /// Throws what the collective throws, error(out_of_memory) if the buffers would not fit this computer, and error(cancelled) after
  /// interrupt().
  job_result run(const job& what);

  /// Throws what run() would throw because the choreography that is asked for cannot perform the job. Cheap where the planner is free to
  /// choose; else run() finds the plan made.
  void check(const job& what);

  /// Ends what is running, and every later run(). From any thread.
  void interrupt();
  bool interrupted() const { return interrupted_.load(); }

private:
  class pass;
  class stopwatch;
  /// The choreography that call or options name; empty: the planner's choice.
  std::string forced(const job& what) const;
  job_result begin(const job& what) const;
  int ranks_on_host() const;
  int place_on_host(rank_t rank) const;
  void check_memory(const job& what, const job_shape& shape) const;
  void describe_plan(job_result& result, bool in_place);
  measurement measure(const job_result& result, bool in_place, std::uint64_t& out_of_bounds);
  void perform(pass& one);
  void perform_in_job(pass& one);
  void stop_if_interrupted() const;
  std::string too_long() const;

  engine& engine_;
  workload settings_;
  layout placement_;
  planner planner_;
  std::vector<communicator> world_;  // of the ranks of this process in a job of several
  std::atomic<bool> interrupted_{false}, timed_out_{false};
  std::mutex active_mutex_;         // interrupt() against the end of a run
  communicator* active_ = nullptr;  // of the run under way
};

}  // namespace troupe
