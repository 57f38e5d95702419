// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cost of a yield. Threads that wait for each other give a core back within microseconds; one that computes, perhaps of another program,
// keeps it until its slice is over, milliseconds later, while a sleeper would be woken before that. Thirty yields in a row beside such a thread were
// a tenth of a second. So a thread that got its core back late sleeps for a while where it would have yielded. Where ranks share cores, though, operations of
// threads that sleep take several times as long as those of threads that yield. So the while is as short as what was lost, and longer only if
// yields go on taking long.

#include <algorithm>
#include <chrono>
#include <thread>

namespace troupe {

/// Of one thread. Pure: it is told the times.
class yield_cost {
public:
  using clock = std::chrono::steady_clock;
  /// More ranks than cores, all of which look and yield, take turns within less than this.
  static constexpr std::chrono::nanoseconds long_yield = std::chrono::milliseconds{1};
  /// A thread sleeps where it would have yielded for so many times what a yield has lost: at first, and in the end, when each further one took long.
  static constexpr int least = 1, most = 2;
  /// A yield that takes long is one of few if the thread could yield for so many times what it has lost.
  static constexpr int rare = 4;

  bool may_yield(clock::time_point now) const { return now >= until_; }
  /// False: it took long.
  bool yielded(clock::time_point begun, clock::time_point back) {
    const auto lost = back - begun;
    if (lost < long_yield) return true;
    times_ = begun - until_ >= rare * lost ? least : std::min(2 * times_, most);
    until_ = back + times_ * lost;
    return false;
  }

private:
  clock::time_point until_{};
  int times_ = least;
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
