// SPDX-License-Identifier: Apache-2.0
#pragma once
// The end of an operation, as the caller sees it. No CAF in here.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/waiting/parking.hpp"
#include "protocols/agreement/agreement.hpp"

namespace troupe::actors {

/// Completed exactly once, by the rank's actor or by the end of the operation; waited for by any number of threads. Thread-safe.
class completion {
public:
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// @pre done(). Null: success.
  const failure_ptr& why() const noexcept { return why_; }

  /// The callbacks run on the completing thread, an actor's turn: they must be short, and must not wait. An exception of theirs is
  /// dropped: the operation is over, nobody is left to tell, and the actor has other operations to serve.
  void complete(failure_ptr why) {
    std::vector<std::function<void()>> callbacks;
    const void* sleeper = nullptr;
    {
      // Uncontended unless somebody registers at this very moment. Waiters are woken under the lock because it is what keeps their parkers
      // alive; but the system call for the last one, nearly always the only one, comes after it: a thread that wakes takes the lock first thing.
      const std::lock_guard lock(mutex_);
      if (done_.load(std::memory_order_relaxed)) return;
      why_ = std::move(why);
      done_.store(true, std::memory_order_release);
      callbacks.swap(callbacks_);
      for (parker* waiter : waiters_)
        if (const void* const place = waiter->wake_later()) {
          if (sleeper != nullptr) futex_wake(sleeper);
          sleeper = place;
        }
    }
    if (sleeper != nullptr) futex_wake(sleeper);
    for (auto& callback : callbacks) {
      try {
        callback();
      } catch (...) {}
    }
  }

  /// For another use. @pre done, and nobody else knows it
  void reset() noexcept {
    done_.store(false, std::memory_order_relaxed);
    why_ = nullptr;
  }

  /// Calls back when done; at once if it is.
  void then(std::function<void()> callback) {
    {
      const std::lock_guard lock(mutex_);
      if (!done_.load(std::memory_order_relaxed)) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }

  /// A thread that sleeps at `place` until done. False: done already.
  bool enter(parker& place) {
    const std::lock_guard lock(mutex_);
    if (done_.load(std::memory_order_relaxed)) return false;
    waiters_.push_back(&place);
    return true;
  }
  void leave(parker& place) {
    const std::lock_guard lock(mutex_);
    std::erase(waiters_, &place);
  }

private:
  std::atomic<bool> done_{false};
  failure_ptr why_;
  std::mutex mutex_;
  std::vector<std::function<void()>> callbacks_;
  std::vector<parker*> waiters_;
};

using completion_ptr = std::shared_ptr<completion>;

}  // namespace troupe::actors
