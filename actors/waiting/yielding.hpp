// SPDX-License-Identifier: Apache-2.0
#pragma once
// What it costs to yield. Threads that wait for each other give a core back within microseconds; one that computes, perhaps of another program,
// keeps it until its slice is over, milliseconds later, while a sleeper would be woken before that. Thirty yields in a row beside such a thread were
// a tenth of a second. So a thread that got its core back late sleeps for a while where it would have yielded.

#include <chrono>
#include <thread>

namespace troupe {

/// Of one thread. Pure: it is told the times.
class yield_cost {
public:
  using clock = std::chrono::steady_clock;
  /// More ranks than cores, all of which look and yield, take turns within less than this.
  static constexpr std::chrono::nanoseconds long_yield = std::chrono::milliseconds{1};
  /// Of its time, a thread loses one part of so many to yields at most, as long as they take long.
  static constexpr int share = 16;

  bool may_yield(clock::time_point now) const { return now >= until_; }
  /// False: it took long.
  bool yielded(clock::time_point begun, clock::time_point back) {
    if (back - begun < long_yield) return true;
    until_ = back + share * (back - begun);
    return false;
  }

private:
  clock::time_point until_{};
};

/// Lets other threads have the calling thread's core. False: they keep it for long; sleep instead. Two looks at the clock and a system call.
inline bool yield_core() noexcept {
  thread_local yield_cost mine;
  const auto begun = yield_cost::clock::now();
  if (!mine.may_yield(begun)) return false;
  std::this_thread::yield();
  return mine.yielded(begun, yield_cost::clock::now());
}

}  // namespace troupe
