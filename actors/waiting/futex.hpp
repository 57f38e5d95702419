// SPDX-License-Identifier: Apache-2.0
#pragma once
// The system calls by which threads sleep until a word changes. Whatever sleeps by them (parking.hpp, doorbell.hpp, the slot board) says in which order
// what a sleeper and its waker look at.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace troupe::actors {

using steady_time = std::chrono::steady_clock::time_point;

/// A deadline that never comes.
inline constexpr steady_time no_deadline = steady_time::max();

/// The threads that may sleep at a word. A futex of one process costs the kernel less.
enum class futex_of : int { this_process = FUTEX_PRIVATE_FLAG, all_processes = 0 };

/// Wakes the threads sleeping on `address`. The word is not read: the address may already belong to something else, in which
/// case somebody wakes without a reason, which every sleeper tolerates.
inline void futex_wake(const void* address, futex_of whose = futex_of::this_process) noexcept {
  ::syscall(SYS_futex, address, FUTEX_WAKE | static_cast<int>(whose), INT_MAX, nullptr, nullptr, 0);
}

/// Sleeps while `*word == expected`, at most until `deadline`. May return early. False only if the deadline has passed.
inline bool futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, steady_time deadline,
                       futex_of whose = futex_of::this_process) noexcept {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  const int wait = FUTEX_WAIT_BITSET | static_cast<int>(whose);
  if (deadline == no_deadline) {
    ::syscall(SYS_futex, &word, wait, expected, nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
    return true;
  }
  // std::chrono::steady_clock is CLOCK_MONOTONIC in libstdc++, which is what FUTEX_WAIT_BITSET measures (absolute time).
  auto since_boot = deadline.time_since_epoch();
  if (since_boot < steady_time::duration::zero()) since_boot = steady_time::duration::zero();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  timespec until{};
  until.tv_sec = static_cast<std::time_t>(seconds.count());
  until.tv_nsec = static_cast<long>(std::chrono::duration_cast<std::chrono::nanoseconds>(since_boot - seconds).count());
  const long result = ::syscall(SYS_futex, &word, wait, expected, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  return !(result == -1 && errno == ETIMEDOUT);
}

}  // namespace troupe::actors
