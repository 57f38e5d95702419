// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which threads that wait for each other share a core at the moment, although there would be one for each: another process has the
// other one, or they have just begun. A thread that looks keeps the other from doing what it waits for, for as long as it looks. One that sleeps
// lets it go on at once, and is woken on an idle core if there is one.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace troupe {

/// Where the calling thread is; it may have been moved since. −1: unknown. Some nanoseconds.
inline int current_core() noexcept {
#if defined(__linux__)
  return ::sched_getcpu();
#else
  return -1;
#endif
}

/// That this process may use, when it asked first; at least 1.
inline int usable_cores() {
  static const int found = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return found;
}

/// Any thread. Its words are hints: a thread may have been moved since.
class shared_cores {
public:
  struct alignas(64) entry {
    std::atomic<int> core_and_one{0};  ///< 0: unknown
  };

  /// @param entries of the threads, which all of them see
  shared_cores(int threads, entry* entries) : entries_(entries), threads_(threads) {}

  /// Thread `me` is at work. Some nanoseconds; writes only when it has been moved.
  void note(int me) { note(me, current_core()); }
  void note(int me, int core) {
    std::atomic<int>& mine = entries_[me].core_and_one;
    if (mine.load(std::memory_order_relaxed) != core + 1) mine.store(core + 1, std::memory_order_relaxed);
  }
  /// There are more threads than cores, so that one has to leave its core before another goes on.
  bool are_too_few() const { return threads_ > cores_; }
  /// For tests, which depend on no computer. Before a thread is at work.
  void assume(int cores) { cores_ = cores; }
  /// Another thread was seen last where `me` is.
  bool is_shared(int me) const { return is_shared(me, threads_); }
  /// Both were seen last on one core, or nobody knows where.
  bool are_together(int me, int other) const {
    const int mine = entries_[me].core_and_one.load(std::memory_order_relaxed);
    const int its = entries_[other].core_and_one.load(std::memory_order_relaxed);
    return mine == its || mine == 0 || its == 0;
  }
  bool is_shared_with_lower(int me) const { return is_shared(me, me); }
  /// The calling thread goes to a core that it may use and where none of the others was seen last. False: there is none, or the system does not
  /// let it. The cores that it may use stay as they were.
  bool move(int me) {
#if defined(__linux__)
    cpu_set_t all, others;
    if (::sched_getaffinity(0, sizeof all, &all) != 0) return false;
    others = all;
    for (int i = 0; i < threads_; ++i)
      if (const int at = entries_[i].core_and_one.load(std::memory_order_relaxed) - 1;
          i != me && at >= 0 && at < CPU_SETSIZE)
        CPU_CLR(static_cast<unsigned>(at), &others);
    if (CPU_COUNT(&others) == 0 || ::sched_setaffinity(0, sizeof others, &others) != 0) return false;
    ::sched_setaffinity(0, sizeof all, &all);
    note(me);
    return true;
#else
    static_cast<void>(me);
    return false;
#endif
  }

private:
  /// With one of those below `others`.
  bool is_shared(int me, int others) const {
    const int mine = entries_[me].core_and_one.load(std::memory_order_relaxed);
    if (mine == 0) return false;
    for (int i = 0; i < others; ++i)
      if (i != me && entries_[i].core_and_one.load(std::memory_order_relaxed) == mine) return true;
    return false;
  }
  entry* entries_;
  int threads_;
  int cores_ = usable_cores();
};

}  // namespace troupe
