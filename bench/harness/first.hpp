// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ends the start of a job of processes: its first collective. The driver, which has started the launcher, compares clocks; that of
// a computer (CLOCK_MONOTONIC) is the same for all of its processes, and for Python.

#include <chrono>
#include <cstdio>

namespace bench {

/// `largest(double)`: over all ranks; the first call of it is the job's first collective. Rank 0 prints when the slowest rank was back.
template <class Largest>
void tell_first(int rank, Largest largest) {
  largest(0.0);
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  const double last = largest(now);
  if (rank != 0) return;
  std::printf("{\"done_s\":%.9f}\n", last);
  std::fflush(stdout);
}

}  // namespace bench
