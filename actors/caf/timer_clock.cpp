// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/timer_clock.hpp"

#include <pthread.h>

namespace troupe::actors {

/// The thread has to wake by then. @pre locked
void timer_clock::see_to(time_point due) {
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { dispatch(); });
    has_thread_.store(true, std::memory_order_relaxed);
  } else if (due < armed_) {
    place_.wake();
  }
}

void timer_clock::count() noexcept { pending_.store(entries() + shipping_, std::memory_order_release); }

std::size_t timer_clock::pending() const noexcept {
  if (pending_.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock(mutex_);
  return live_entries() + shipping_;
}

void timer_clock::dispatch() {
  ::pthread_setname_np(::pthread_self(), "troupe.timer");
  std::vector<entry> due;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      shipping_ = 0;  // what was due is in mailboxes now: counted by the scheduler if it made an actor ready
      count();
      if (stopped_) return;
      take_expired(due);
      armed_ = has_entries() ? first_due() : no_deadline;
    }
    if (due.empty()) {
      place_.park(armed_);
      continue;
    }
    for (entry& each : due) perform(each);
    due.clear();
  }
}

void timer_clock::take_expired(std::vector<entry>& due) {
  const auto now_is = now();
  while (has_entries() && first_due() <= now_is) due.push_back(take_first());
  shipping_ = due.size();
}

void timer_clock::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  place_.wake();
  if (thread_.joinable()) thread_.join();
  drop_all();
}

void timer_clock::drop_all() {
  decltype(take_all()) dropped;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  dropped = take_all();
  count();
}

}  // namespace troupe::actors
