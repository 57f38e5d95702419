// SPDX-License-Identifier: Apache-2.0
#pragma once
// Clocks of actor systems. timer_clock has a thread that exists only once something was scheduled, and sleeps until the
// earliest due time. CAF 0.17's own thread-safe clock is a ring of 64 entries that blocks its writers while nobody dispatches it, and
// every actor writes to it when it ends; 1.x's always has a thread.

#include "actors/caf/caf_compat.hpp"
#include "actors/waiting/parking.hpp"

#if TROUPE_CAF_0
#include <caf/detail/simple_actor_clock.hpp>
#else
#include <caf/action.hpp>
#include <caf/actor_clock.hpp>
#include <caf/disposable.hpp>
#include <map>
#endif

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe::actors {

/// A clock that somebody else moves, for one thread. now() is for who derives from it.
class manual_clock
#if TROUPE_CAF_0
    : public caf::detail::simple_actor_clock {
public:
  bool idle() const { return schedule_.empty(); }
  time_point next_time() const { return schedule_.begin()->first; }
  /// Delivers what is due.
  void dispatch() { trigger_expired_timeouts(); }
  void drop_all() { cancel_all(); }
#else
    : public caf::actor_clock {
public:
  using caf::actor_clock::schedule;
  caf::disposable schedule(time_point t, caf::action what) override;
  bool idle() const { return schedule_.empty(); }
  time_point next_time() const { return schedule_.begin()->first; }
  void dispatch();
  void drop_all() { schedule_.clear(); }

private:
  std::multimap<time_point, caf::action> schedule_;
#endif
};

/// Thread-safe. Messages are sent, actions run and events destroyed outside the lock: all of them may run code that schedules again.
#if TROUPE_CAF_0
class timer_clock final : public caf::detail::simple_actor_clock {
#else
class timer_clock final : public caf::actor_clock {
#endif
public:
  ~timer_clock() override { stop(); }

  /// What is scheduled and not done, about.
  std::size_t pending() const noexcept;
  bool has_thread() const noexcept { return has_thread_.load(std::memory_order_relaxed); }
  /// Joins the thread; drops what is scheduled, now and later.
  void stop();

#if TROUPE_CAF_0
  using base = caf::detail::simple_actor_clock;
  void set_ordinary_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type, std::uint64_t id) override;
  void set_multi_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type, std::uint64_t id) override;
  void set_request_timeout(time_point t, caf::abstract_actor* self, caf::message_id id) override;
  void schedule_message(time_point t, caf::strong_actor_ptr receiver, caf::mailbox_element_ptr content) override;
  void schedule_message(time_point t, caf::group target, caf::strong_actor_ptr sender, caf::message content) override;
  void cancel_ordinary_timeout(caf::abstract_actor* self, caf::atom_value type) override;
  void cancel_request_timeout(caf::abstract_actor* self, caf::message_id id) override;
  void cancel_timeouts(caf::abstract_actor* self) override;
  void cancel_all() override;
#else
  using caf::actor_clock::schedule;
  caf::disposable schedule(time_point t, caf::action what) override;
#endif

private:
#if TROUPE_CAF_0
  using due_type = std::vector<unique_delayed_event_ptr>;
#else
  using due_type = std::vector<caf::action>;
#endif
  template <class F>
  void add(time_point due, F schedule);
  template <class F>
  void remove(F cancel);
  void count() noexcept;
  void dispatch();
  void take_expired(due_type& due);
  void perform(due_type& due);
  void drop_all();

  mutable std::mutex mutex_;
  parker place_;  // of the timer thread
  std::thread thread_;
  time_point armed_ = no_deadline;  // written under the lock by the timer thread, which also reads it without
  std::size_t shipping_ = 0;
  bool stopped_ = false;
#if !TROUPE_CAF_0
  std::multimap<time_point, caf::action> schedule_;
#endif
  std::atomic<std::size_t> pending_{0};
  std::atomic<bool> has_thread_{false};
};

}  // namespace troupe::actors
