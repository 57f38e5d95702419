// SPDX-License-Identifier: Apache-2.0
#pragma once
// A door that one thread passes all the time, and that others close a few times in a program's life: passing costs two plain stores and a
// load. Who closes it pays with a system call (membarrier), which makes a barrier of every place that any thread is at. Where the system has none, and under
// ThreadSanitizer, which does not know of it, passing is sequentially consistent.
//
// Its owner stores `inside`, then loads `closed`; a closer stores `closed`, then loads `inside`: one of them sees the other.

#include <atomic>
#include <thread>

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

namespace troupe::detail {

/// A barrier in all threads of this process at once, if the system has one.
class process_barrier {
public:
  /// Asked for once a process; the same answer ever after.
  static bool there() noexcept {
#if defined(TROUPE_MEMBARRIER)
    static const bool registered = ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    return registered;
#else
    return false;
#endif
  }
  /// Without one there is nothing to do: then every passage of a door is sequentially consistent.
  static void pass() noexcept {
#if defined(TROUPE_MEMBARRIER)
    if (there()) ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
#endif
  }
};

class quiet_door {
public:
  /// Of the owner. True: what is behind the door is his until leave(). False: somebody else is at it.
  bool enter() noexcept {
    if (cheap_) {
      inside_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the barrier itself is made by who closes
    } else inside_.store(true, std::memory_order_seq_cst);
    if (!closed_.load(cheap_ ? std::memory_order_acquire : std::memory_order_seq_cst)) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() noexcept { inside_.store(false, std::memory_order_release); }

  /// Of one closer at a time: close() all, process_barrier::pass() once, await() each, open() all.
  void close() noexcept { closed_.store(true, std::memory_order_seq_cst); }
  /// The owner is inside for a few instructions and waits for nothing there.
  void await() const noexcept {
    while (inside_.load(std::memory_order_seq_cst)) std::this_thread::yield();
  }
  void open() noexcept { closed_.store(false, std::memory_order_release); }

private:
  const bool cheap_ = process_barrier::there();
  std::atomic<bool> inside_{false};
  std::atomic<bool> closed_{false};
};

}  // namespace troupe::detail
