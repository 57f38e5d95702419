// SPDX-License-Identifier: Apache-2.0
#pragma once
// A door that one thread passes all the time, and that others close a few times in a program's life: passing costs two plain stores and a
// load. A thread that closes it pays with a process_barrier(), which makes a barrier of every place that any thread is at. Where the system has none passing is
// sequentially consistent.
//
// Its owner stores `inside`, then loads `closed`; a closer stores `closed`, then loads `inside`: one of them sees the other.

#include <atomic>
#include <thread>

#include "memory/process_barrier.hpp"

namespace troupe::detail {

class quiet_door {
public:
  /// Of the owner. True: what is behind the door is his until leave(). False: somebody else is at it.
  bool enter() noexcept {
    if (cheap_) {
      inside_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the barrier itself is made by the closer
    } else inside_.store(true, std::memory_order_seq_cst);
    if (!closed_.load(cheap_ ? std::memory_order_acquire : std::memory_order_seq_cst)) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() noexcept { inside_.store(false, std::memory_order_release); }

  /// Of one closer at a time: close() all, process_barrier() once if any needs_barrier(), await() each, open() all. Where one that needs the
  /// barrier did not get it (the system can refuse it later), nobody knows whether its owner is inside: what is behind it stays untouched.
  bool needs_barrier() const noexcept { return cheap_; }
  void close() noexcept { closed_.store(true, std::memory_order_seq_cst); }
  /// The owner is inside for a few instructions and waits for nothing there.
  void await() const noexcept {
    while (inside_.load(std::memory_order_seq_cst)) std::this_thread::yield();
  }
  void open() noexcept { closed_.store(false, std::memory_order_release); }

private:
  const bool cheap_ = process_barrier_works(barrier_of::this_process);
  std::atomic<bool> inside_{false};
  std::atomic<bool> closed_{false};
};

}  // namespace troupe::detail
