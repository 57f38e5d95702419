// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two threads that look for each other's messages on one core, while another core is idle: Linux wakes a sleeper where its waker is, and
// moves one of two that are busy only after some milliseconds, of two that sleep and wake in turn perhaps never. Then every message costs a
// change of threads, some microseconds. So the last of them leaves: it asks to run on the cores where none of the others was seen, and at once
// again wherever it might run before. The system may put it back; it then leaves again, less and less often.

#include <algorithm>
#include <chrono>

#include "actors/waiting/shared_cores.hpp"

namespace troupe {

/// Of one thread at a time.
class core_leaver {
public:
  using clock = std::chrono::steady_clock;

  /// The calling thread, at work for `me`, shares its core with one of a lower number. True: it does not any more. Two or three system calls,
  /// some microseconds, when it is time for another try; else a look at the clock.
  bool leave(shared_cores& cores, int me) {
    if (!cores.is_shared_with_lower(me)) return false;
    const auto now = clock::now();
    if (now < next_) return false;
    pause_ = now - next_ > forgotten ? shortest : std::min(2 * pause_, longest);
    next_ = now + pause_;
    return cores.move(me);
  }

private:
  static constexpr std::chrono::nanoseconds shortest = std::chrono::milliseconds{1};
  static constexpr std::chrono::nanoseconds longest = std::chrono::milliseconds{256};
  static constexpr std::chrono::nanoseconds forgotten = std::chrono::seconds{1};
  clock::time_point next_{};
  std::chrono::nanoseconds pause_ = shortest;
};

}  // namespace troupe
