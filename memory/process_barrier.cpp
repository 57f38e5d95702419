// SPDX-License-Identifier: Apache-2.0
#include "memory/process_barrier.hpp"

#include <atomic>

#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/membarrier.h>)
#define TROUPE_MEMBARRIER 1
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#undef TROUPE_MEMBARRIER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef TROUPE_MEMBARRIER
#endif
#endif

namespace troupe {

#if defined(TROUPE_MEMBARRIER)

namespace {

long membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0); }

/// A process has to register for these commands.
bool ask_for(int command, int registration) noexcept {
  const long offered = membarrier(MEMBARRIER_CMD_QUERY);
  return offered >= 0 && (offered & command) != 0 && membarrier(registration) == 0;
}

std::atomic<bool>& works(barrier_of which) noexcept {
  if (which == barrier_of::this_process) {
    static std::atomic<bool> here{ask_for(MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)};
    return here;
  }
  static std::atomic<bool> everywhere{
      ask_for(MEMBARRIER_CMD_GLOBAL_EXPEDITED, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)};
  return everywhere;
}

}  // namespace

bool process_barrier_works(barrier_of which) noexcept { return works(which).load(std::memory_order_relaxed); }

bool process_barrier(barrier_of which) noexcept {
  std::atomic<bool>& registered = works(which);
  const int command =
      which == barrier_of::this_process ? MEMBARRIER_CMD_PRIVATE_EXPEDITED : MEMBARRIER_CMD_GLOBAL_EXPEDITED;
  if (membarrier(command) == 0) return true;
  registered.store(false, std::memory_order_relaxed);
  return false;
}

#else

bool process_barrier_works(barrier_of) noexcept { return false; }
bool process_barrier(barrier_of) noexcept { return false; }

#endif

}  // namespace troupe
