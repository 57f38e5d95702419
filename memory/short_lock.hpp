// SPDX-License-Identifier: Apache-2.0
#pragma once
// A lock for a few instructions that ranks run at the same moment, since their operations keep them in step. A mutex would put one of
// them to sleep nearly every time, which costs a hundred times what it waits for.

#include <atomic>
#include <thread>

namespace troupe {

/// Meets the needs of std::lock_guard. Held for less than a microsecond, without system calls, and never while waiting for anything.
class short_lock {
public:
  void lock() noexcept {
    for (int looks = 0; taken_.exchange(true, std::memory_order_acquire); ++looks)
      while (taken_.load(std::memory_order_relaxed))
        if (++looks > 64) std::this_thread::yield();  // its holder was taken off its core
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

private:
  std::atomic<bool> taken_{false};
};

}  // namespace troupe
