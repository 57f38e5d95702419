// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether other threads want the core on which this one waits, also those of other processes that it knows nothing of.
//
// The system counts how often it gave the core of a thread that could have gone on to another one: at the end of its time, or because it yielded
// and somebody else was there. So while others are there, who yields goes on to find that out, and when they are gone, it finds that, too.

#include <chrono>

#if defined(__linux__)
#include <sys/resource.h>
#endif

namespace troupe {

/// Of the calling thread. Asks the system once a millisecond at most; else it costs a look at the clock.
inline bool core_is_crowded() {
#if defined(__linux__)
  using clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds between_questions{1}, believed{10};
  struct known {
    clock::time_point asked{}, until{};
    long given_away = 0;
  };
  thread_local known mine;
  const auto now = clock::now();
  if (now - mine.asked >= between_questions) {
    mine.asked = now;
    rusage used{};
    if (::getrusage(RUSAGE_THREAD, &used) == 0 && used.ru_nivcsw != mine.given_away) {
      mine.given_away = used.ru_nivcsw;
      mine.until = now + believed;
    }
  }
  return now < mine.until;
#else
  return false;
#endif
}

}  // namespace troupe
