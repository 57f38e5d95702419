// SPDX-License-Identifier: Apache-2.0
#pragma once
// What stands in the first pages of the memory that processes of a host share (host_segment.hpp): the processes, and a table of *stretches*.
// For the files of this folder.

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <functional>
#include <string>

#include <pthread.h>

#include "actors/ports/link/sockets.hpp"
#include "actors/ports/segment/copy_costs.hpp"
#include "actors/waiting/doorbell.hpp"
#include "memory/error.hpp"
#include "protocols/program/slot_formats.hpp"  // TROUPE_SLOTS_UNDER_TSAN

namespace troupe::actors::segment {

constexpr std::uint64_t magic = 0x36746e656d676573;  // "segment6"
constexpr std::uint64_t page = 64 * 1024;            ///< as large as any system's
/// Of one job on one host.
constexpr std::uint32_t most_processes = 4096;
/// At a time.
constexpr std::uint32_t most_stretches = 16'384;
/// Of them; from then on nobody gets memory for data.
constexpr std::int64_t most_lent = most_stretches / 4 * 3;
/// The table is changed in microseconds: a process that holds the lock for so long was stopped. Those that count as lost are ended then.
constexpr std::int64_t longest_locked_ns = 1'000'000'000;
/// So long the others wait for one to be counted as lost, or to go on: longer than a silence (join_options::silence) usually is.
constexpr std::int64_t most_locked_ns = 60'000'000'000;

constexpr std::uint64_t up_to_page(std::uint64_t bytes) { return (bytes + page - 1) / page * page; }

[[noreturn]] inline void fail(const char* what, int error) {
  throw troupe::error(errc::io,
                      std::string{"the memory that processes of a host share "} + what + ": " + text_of_errno(error));
}

constexpr std::uint32_t nobody = 0xffffffff;  ///< as owner: it was given back, and could not be emptied

/// A piece of the memory: a communicator's region, or one that a process has for its callers' data.
struct stretch {
  std::uint64_t id;         ///< 0: free, though it may have a place; written last
  std::uint64_t at, bytes;  ///< 0: there was no room, which all find
  std::uint32_t left;       ///< processes that have not given it back
  std::uint32_t owner;      ///< 1 + the process whose data lie there; 0: a region
  std::uint64_t address;    ///< where its owner sees it
};

/// What a process says of itself when it comes.
struct place {
  std::int64_t pid;
  std::uint64_t nonce_at, nonce;
  std::atomic<std::uint64_t> changes;  ///< of the stretches that it owns; under the lock, looked at without it
  std::atomic<std::int32_t> refused;   ///< `errno` for which it cannot copy from or to others any more; 0: it can
  std::atomic<std::uint32_t> locking;  ///< its threads that hold the lock, or are about to, or have just given it back
  alignas(64) doorbell nic;            ///< its NIC's thread sleeps there
};

struct table {
  std::uint64_t magic;
  std::atomic<std::uint32_t> came, tried, denied;
  std::uint64_t whole;
  copy_costs costs;    ///< as its first process has measured them
  std::uint64_t next;  ///< where no stretch has been yet
  pthread_mutex_t mutex;
  std::uint32_t stretches;  ///< that were ever in use
  std::uint32_t membarrier;
  std::uint64_t lent;  ///< stretches with an owner so far: their numbers
  place processes[most_processes];
  stretch of[most_stretches];
};

class lock {
public:
  /// @param here this process, of those in the table @param end_lost ends the processes that count as lost and are at the lock: called again and
  /// again while it is held for longer than anybody who runs holds it. Throws error(io): it stays locked
  lock(table& of, std::uint32_t here, const std::function<void()>& end_lost) : of_(of), here_(of.processes[here]) {
    here_.locking.fetch_add(1, std::memory_order_relaxed);
    const int result = wait(end_lost);
    if (result == EOWNERDEAD) ::pthread_mutex_consistent(&of.mutex);
    if (result == 0 || result == EOWNERDEAD) return;
    here_.locking.fetch_sub(1, std::memory_order_relaxed);
    fail("is locked by a process that does not go on", result);
  }
  ~lock() {
    ::pthread_mutex_unlock(&of_.mutex);
    here_.locking.fetch_sub(1, std::memory_order_relaxed);
  }
  lock(const lock&) = delete;
  lock& operator=(const lock&) = delete;

private:
  int wait(const std::function<void()>& end_lost) {
#if defined(TROUPE_SLOTS_UNDER_TSAN)  // which does not see the other call
    static_cast<void>(end_lost);
    return ::pthread_mutex_lock(&of_.mutex);
#else
    constexpr std::int64_t second = 1'000'000'000, between_looks = 100'000'000;
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const std::int64_t begun = now.tv_sec * second + now.tv_nsec;
    for (std::int64_t until = begun + longest_locked_ns;; until += between_looks) {
      const timespec end{static_cast<std::time_t>(until / second), static_cast<long>(until % second)};
      const int result = ::pthread_mutex_clocklock(&of_.mutex, CLOCK_MONOTONIC, &end);
      if (result != ETIMEDOUT || until >= begun + most_locked_ns) return result;
      if (end_lost) end_lost();
    }
#endif
  }

  table& of_;
  place& here_;
};

}  // namespace troupe::actors::segment
