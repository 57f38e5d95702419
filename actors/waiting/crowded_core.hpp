// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether other threads want the core on which this one waits, also those of other processes that it knows nothing of.
//
// The system counts how often it gave the core of a thread that could have gone on to another one: at the end of its time, or because it yielded
// and somebody else was there. One such time may have been a thread that is gone again, so a waiting thread yields once, and looks whether that counts, too. While others are
// there, a thread that yields goes on to find that out, and when they are gone, it finds that, too.

#include <chrono>

#if defined(__linux__)
#include <sys/resource.h>
#endif

namespace troupe {

/// Pure: it is told what the system has counted. Of one thread.
class crowding {
public:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds between_questions{1}, believed{10};

  /// Whether the count is to be asked for.
  bool wants_count(clock::time_point now) const { return suspects_ || now - asked_ >= between_questions; }
  void counted(long given_away, clock::time_point now) {
    asked_ = now;
    const bool more = given_away != given_away_, sure = suspects_ || now < until_;
    given_away_ = given_away;
    suspects_ = more && !sure;
    if (more && sure) until_ = now + believed;
  }
  /// Others want the core, or it is to be found out: yield.
  bool says_so(clock::time_point now) const { return suspects_ || now < until_; }

private:
  clock::time_point asked_{}, until_{};
  long given_away_ = 0;
  bool suspects_ = false;
};

/// Of the calling thread. Asks the system once a millisecond at most, and once more if it seems so; else it costs a look at the clock.
inline bool core_is_crowded() {
#if defined(__linux__)
  thread_local crowding mine;
  const auto now = crowding::clock::now();
  if (mine.wants_count(now)) {
    rusage used{};
    if (::getrusage(RUSAGE_THREAD, &used) == 0) mine.counted(used.ru_nivcsw, now);
  }
  return mine.says_so(now);
#else
  return false;
#endif
}

}  // namespace troupe
