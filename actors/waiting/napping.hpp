// SPDX-License-Identifier: Apache-2.0
#pragma once
// Waits that no other thread ends by waking: for what another thread or process is about to do by itself, a few times in a program's life. Waits on the path of an
// operation go by policy.hpp. All sleeps and yields of the engine are in this folder (tests/checks/layers.sh), but those of the lowest locks in memory/ and those that
// wait for a descriptor (poll).

#include <algorithm>
#include <chrono>
#include <thread>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

namespace troupe {

/// The calling thread's sleeps with a deadline end then. Linux puts off those of other threads by up to 50 µs, so as to wake several at once.
inline void end_sleeps_in_time() noexcept {
#if defined(__linux__)
  ::prctl(PR_SET_TIMERSLACK, 1'000UL, 0UL, 0UL, 0UL);  // ns; that it fails costs those 50 µs
#endif
}

/// Does nothing for so long: what could be done now is tried again then.
inline void nap(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

/// Looks until `over()`, between looks naps for `first`, and for twice as long each further time, up to `longest`.
template <class Over>
void nap_until(Over&& over, std::chrono::nanoseconds first, std::chrono::nanoseconds longest) {
  for (auto time = first; !over(); time = std::min(2 * time, longest)) nap(time);
}
template <class Over>
void nap_until(Over&& over, std::chrono::nanoseconds each) {
  nap_until(over, each, each);
}

/// Another thread is about to do what this one waits for, or has been taken off its core there: it may have this one.
inline void give_way() noexcept { std::this_thread::yield(); }

/// Looks until `over()`, and gives way between looks.
template <class Over>
void give_way_until(Over&& over) {
  while (!over()) give_way();
}

}  // namespace troupe
