// SPDX-License-Identifier: Apache-2.0
#pragma once
// Clocks of actor systems. timer_clock has a thread that exists only once something was scheduled, and sleeps until the
// earliest due time. CAF 0.17's own thread-safe clock is a ring of 64 entries that blocks its writers while nobody dispatches it, and
// every actor writes to it when it ends; 1.x's always has a thread.

#include <atomic>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/caf/caf_compat.hpp"
#include "actors/waiting/parking.hpp"

namespace troupe::actors {

/// A clock that somebody else moves, for one thread. The class that derives from it has now().
class manual_clock : public scheduled_clock<manual_clock> {
public:
  bool idle() const { return !has_entries(); }
  time_point next_time() const { return first_due(); }
  /// Delivers what is due.
  void dispatch() {
    while (has_entries() && first_due() <= now()) {
      entry due = take_first();
      perform(due);
    }
  }
  void drop_all() { static_cast<void>(take_all()); }

private:
  friend class scheduled_clock<manual_clock>;
  template <class F>
  void add(time_point, F schedule) {
    schedule();
  }
  template <class F>
  void remove(F cancel) {
    cancel();
  }
};

/// Thread-safe. Messages are sent, actions run and events destroyed outside the lock: all of them may run code that schedules again.
class timer_clock final : public scheduled_clock<timer_clock> {
public:
  ~timer_clock() override { stop(); }

  /// How many entries are scheduled and not done, about.
  std::size_t pending() const noexcept;
  bool has_thread() const noexcept { return has_thread_.load(std::memory_order_relaxed); }
  /// Joins the thread; drops what is scheduled, now and later.
  void stop();

private:
  friend class scheduled_clock<timer_clock>;

  template <class F>
  void add(time_point due, F schedule) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    schedule();
    count();
    see_to(due);
  }
  /// Every actor that ends comes here with 0.17, nearly always with nothing scheduled. An actor's own entries were made in its own
  /// handlers, which happened before, so a zero cannot hide one of them.
  template <class F>
  void remove(F cancel) {
    if (pending_.load(std::memory_order_acquire) == 0) return;
    const std::lock_guard lock(mutex_);
    cancel();
    count();
  }
  void see_to(time_point due);
  void count() noexcept;
  void dispatch();
  void take_expired(std::vector<entry>& due);
  void drop_all();

  mutable std::mutex mutex_;
  parker place_;  // of the timer thread
  std::thread thread_;
  time_point armed_ = no_deadline;  // written under the lock by the timer thread, which also reads it without
  std::size_t shipping_ = 0;
  bool stopped_ = false;
  std::atomic<std::size_t> pending_{0};
  std::atomic<bool> has_thread_{false};
};

}  // namespace troupe::actors
