// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/timer_clock.hpp"

#include <cstddef>
#include <utility>

#include <pthread.h>

namespace troupe::actors {

template <class F>
void timer_clock::add(time_point due, F schedule) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  schedule();
  count();
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { dispatch(); });
    has_thread_.store(true, std::memory_order_relaxed);
  } else if (due < armed_) {
    place_.wake();
  }
}

void timer_clock::count() noexcept { pending_.store(schedule_.size() + shipping_, std::memory_order_release); }

void timer_clock::dispatch() {
  ::pthread_setname_np(::pthread_self(), "troupe.timer");
  due_type due;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      shipping_ = 0;  // what was due is in mailboxes now: counted by the scheduler if it made an actor ready
      count();
      if (stopped_) return;
      take_expired(due);
      armed_ = schedule_.empty() ? no_deadline : schedule_.begin()->first;
    }
    if (due.empty()) {
      place_.park(armed_);
      continue;
    }
    perform(due);
    due.clear();
  }
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

#if TROUPE_CAF_0

std::size_t timer_clock::pending() const noexcept { return pending_.load(std::memory_order_acquire); }

void timer_clock::set_ordinary_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type,
                                       std::uint64_t id) {
  add(t, [&] { base::set_ordinary_timeout(t, self, type, id); });
}
void timer_clock::set_multi_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type, std::uint64_t id) {
  add(t, [&] { base::set_multi_timeout(t, self, type, id); });
}
void timer_clock::set_request_timeout(time_point t, caf::abstract_actor* self, caf::message_id id) {
  add(t, [&] { base::set_request_timeout(t, self, id); });
}
void timer_clock::schedule_message(time_point t, caf::strong_actor_ptr receiver, caf::mailbox_element_ptr content) {
  add(t, [&] { base::schedule_message(t, std::move(receiver), std::move(content)); });
}
void timer_clock::schedule_message(time_point t, caf::group target, caf::strong_actor_ptr sender,
                                   caf::message content) {
  add(t, [&] { base::schedule_message(t, std::move(target), std::move(sender), std::move(content)); });
}

/// Every actor that ends comes here, nearly always with nothing scheduled. An actor's own entries were made in its own
/// handlers, which happened before, so a zero cannot hide one of them.
template <class F>
void timer_clock::remove(F cancel) {
  if (pending_.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(mutex_);
  cancel();
  count();
}

void timer_clock::cancel_ordinary_timeout(caf::abstract_actor* self, caf::atom_value type) {
  remove([&] { base::cancel_ordinary_timeout(self, type); });
}
void timer_clock::cancel_request_timeout(caf::abstract_actor* self, caf::message_id id) {
  remove([&] { base::cancel_request_timeout(self, id); });
}
void timer_clock::cancel_timeouts(caf::abstract_actor* self) {
  remove([&] { base::cancel_timeouts(self); });
}
void timer_clock::cancel_all() { drop_all(); }

void timer_clock::drop_all() {
  schedule_map dropped;  // destroyed after the lock is released: an event may hold the last reference to an actor
  const std::lock_guard lock(mutex_);
  dropped.swap(schedule_);
  actor_lookup_.clear();
  count();
}

void timer_clock::take_expired(due_type& due) {
  const auto now_is = now();
  while (!schedule_.empty() && schedule_.begin()->first <= now_is) {
    auto first = schedule_.begin();
    if (first->second->backlink != actor_lookup_.end()) actor_lookup_.erase(first->second->backlink);
    due.push_back(std::move(first->second));
    schedule_.erase(first);
  }
  shipping_ = due.size();
}

void timer_clock::perform(due_type& due) {
  for (auto& event : due) ship(*event);
}

#else

/// Those that were disposed of are forgotten when they are due, and not counted.
std::size_t timer_clock::pending() const noexcept {
  if (pending_.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock(mutex_);
  std::size_t waiting = shipping_;
  for (const auto& [due, what] : schedule_) waiting += what.disposed() ? 0 : 1;
  return waiting;
}

caf::disposable timer_clock::schedule(time_point t, caf::action what) {
  add(t, [&] { schedule_.emplace(t, what); });
  return std::move(what).as_disposable();
}

void timer_clock::drop_all() {
  std::multimap<time_point, caf::action> dropped;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  dropped.swap(schedule_);
  count();
}

void timer_clock::take_expired(due_type& due) {
  const auto now_is = now();
  while (!schedule_.empty() && schedule_.begin()->first <= now_is) {
    due.push_back(std::move(schedule_.begin()->second));
    schedule_.erase(schedule_.begin());
  }
  shipping_ = due.size();
}

void timer_clock::perform(due_type& due) {
  for (auto& action : due) action.run();
}

caf::disposable manual_clock::schedule(time_point t, caf::action what) {
  schedule_.emplace(t, what);
  return std::move(what).as_disposable();
}

void manual_clock::dispatch() {
  while (!schedule_.empty() && schedule_.begin()->first <= now()) {
    const caf::action due = std::move(schedule_.begin()->second);
    schedule_.erase(schedule_.begin());
    caf::action{due}.run();
  }
}

#endif

}  // namespace troupe::actors
