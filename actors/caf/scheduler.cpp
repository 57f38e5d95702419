// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/scheduler.hpp"
#include "actors/caf/timer_clock.hpp"
#include "actors/waiting/napping.hpp"
#include "actors/waiting/no_waiting.hpp"
#include "actors/waiting/yielding.hpp"

#include <caf/actor_registry.hpp>
#include <caf/scheduled_actor.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

namespace troupe::actors {

namespace {

using steady = std::chrono::steady_clock;

// A handler must be able to outlast this many others before a busy helper looks at the time (25 ns) again.
constexpr unsigned runs_per_deadline_check = 32;

void name_thread(const char* name) noexcept { ::pthread_setname_np(::pthread_self(), name); }

/// Threads get numbers so that each starts looking for a free execution unit at its own place.
std::size_t thread_number() noexcept {
  static std::atomic<std::size_t> next{0};
  static thread_local const std::size_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

// -- execution units ------------------------------------------------------------

/// What an actor sees as its context. Lives as long as the scheduler, because an actor keeps a pointer to the last one; is used
/// by one thread at a time, because CAF's middleman keeps per-thread state in it.
struct scheduler::unit final : execution_context {
  unit(caf::actor_system* system, actors::scheduler* owner) : execution_context(*system), owner_(owner) {}
  void enqueue(caf::resumable* job) override { owner_->enqueue(job); }

  actors::scheduler* owner_;  // 1.x: the base class brings a `scheduler` of its own
  alignas(64) std::atomic<bool> busy{false};
};

struct scheduler::units {
  units(caf::actor_system* system, scheduler* owner) : system_(system), owner_(owner) {
    for (auto& slot : slots_) slot.store(nullptr, std::memory_order_relaxed);
  }

  ~units() = default;

  unit* lease() {
    const std::size_t first = thread_number();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      unit* at = slots_[(first + i) % slots_.size()].load(std::memory_order_acquire);
      if (at == nullptr) break;
      if (!at->busy.load(std::memory_order_relaxed) && !at->busy.exchange(true, std::memory_order_seq_cst)) return at;
    }
    return lease_new(first);
  }

  static void give_back(unit* at) noexcept { at->busy.store(false, std::memory_order_release); }

  template <class F>
  void for_each(F f) {
    const std::lock_guard lock(mutex_);
    for (auto& at : all_) f(at);
  }

private:
  /// First use from this slot, or more drivers at once than slots: allocates.
  unit* lease_new(std::size_t first) {
    const std::lock_guard lock(mutex_);
    for (auto& at : all_)
      if (!at.busy.load(std::memory_order_relaxed) && !at.busy.exchange(true, std::memory_order_seq_cst)) return &at;
    unit* made = &all_.emplace_back(system_, owner_);
    made->busy.store(true, std::memory_order_seq_cst);
    unit* none = nullptr;
    slots_[first % slots_.size()].compare_exchange_strong(none, made, std::memory_order_acq_rel);
    return made;
  }

  caf::actor_system* system_;
  scheduler* owner_;
  std::array<std::atomic<unit*>, 64> slots_;
  std::mutex mutex_;
  std::deque<unit> all_;
};

// -- drivers ------------------------------------------------------------------------

namespace {

// The innermost driver of this thread. A plain pointer with the initial-exec model is one load, also in a shared library.
// It is a void pointer only because `scheduler::driver` is private.
__attribute__((tls_model("initial-exec"))) thread_local void* current_driver = nullptr;

}  // namespace

scheduler::driving::driving(scheduler& owner, wake_others policy) {
  auto* outer = static_cast<driver*>(current_driver);
  outermost_ = outer == nullptr || outer->owner != &owner;
  self_.owner = &owner;
  self_.outer = outer;
  self_.context = outermost_ ? owner.units_->lease() : outer->context;
  self_.backlog = policy == wake_others::at_end ? ~std::size_t{0} : owner.options_.backlog;
  if (!outermost_)
    self_.backlog = std::max(self_.backlog, outer->backlog);  // an outer "at the end" holds for what is inside
  self_.in_handler = false;
  current_driver = &self_;
}

scheduler::driving::~driving() {
  current_driver = self_.outer;
  if (!outermost_) return;
  scheduler& owner = *self_.owner;
  if (!owner.queue_.empty()) owner.wake();
  // Last access: `stop` waits for this before anything is destroyed.
  units::give_back(self_.context);
}

bool scheduler::drives() const noexcept {
  const auto* self = static_cast<const driver*>(current_driver);
  return self != nullptr && self->owner == this;
}

bool scheduler::in_handler() noexcept {
  for (auto* at = static_cast<const driver*>(current_driver); at != nullptr; at = at->outer)
    if (at->in_handler) return true;
  return false;
}

void scheduler::before_long_work() noexcept {
  const auto* self = static_cast<const driver*>(current_driver);
  if (self != nullptr && !self->owner->queue_.empty()) self->owner->wake();
}

void scheduler::run(driver& self, caf::resumable* job) noexcept {
  self.in_handler = true;
  const no_waiting inside;
  const auto result = job->resume(self.context, options_.max_throughput);
  if (result == caf::resumable::resume_later) {
    self.in_handler = false;
    activity_.fetch_add(one_resume, std::memory_order_seq_cst);
    queue_.push(job);  // keeps its reference and stays active; this thread looks at the queue next
    return;
  }
  // May destroy the actor and send messages: still counted as active.
  caf::intrusive_ptr_release(job);
  self.in_handler = false;
  activity_.fetch_add(one_resume - one_active, std::memory_order_seq_cst);
}

void scheduler::found_work(bool searching) noexcept {
  // A thread that found this one asleep or searching may have left its job to it: see the proof in parking.hpp.
  const bool nobody_else = !searching || idle_.stop_search();
  if (nobody_else && !queue_.empty()) wake();
}

/// True: it has waited a little and looks at the queue again. False: it shall sleep.
bool scheduler::look_again(wait_course& course, bool& searching) noexcept {
  auto step = course.next();
  if (step == wait_course::step::pause && !searching && !(searching = idle_.start_search(options_.searchers)))
    step = course.next_without_spin();
  if (step == wait_course::step::sleep) return false;
  if (step == wait_course::step::pause) {
    pause_core();
    return true;
  }
  if (!searching) searching = idle_.start_search(~std::uint32_t{0});
  return yield_core();
}

/// False: the deadline has passed.
bool scheduler::sleep(parker& place, condition done, steady_time deadline, bool& searching,
                      sleeping_room* room) noexcept {
  idle_set::sleeper self(place);
  idle_.announce(self, searching);
  bool in_time = true;
  if (!done() && queue_.empty() && !stopping_.load(std::memory_order_seq_cst))
    in_time = room != nullptr ? room->sleep(place, deadline) : place.park(deadline);
  searching = idle_.retract(self);
  return in_time;
}

void scheduler::leave(bool searching) noexcept {
  if (searching && idle_.stop_search() && !queue_.empty()) wake();
}

help_result scheduler::drive(parker& place, condition done, steady_time deadline, bool searching, const helping& how) {
  if (in_handler())
    throw std::logic_error(
        "troupe: a thread waits for an operation inside an actor's handler, which would block the actor; "
        "use the asynchronous form and react to its completion instead");
  const driving scope(*this);
  driver& self = *static_cast<driver*>(current_driver);
  bool was_idle = searching;
  wait_course course{{how.looks ? static_cast<int>(options_.spin) : 0, how.yields}, 0};
  unsigned runs = 0;
  for (;;) {
    if (done()) {
      leave(searching);
      return help_result::done;
    }
    if (stopping_.load(std::memory_order_seq_cst)) {
      leave(searching);
      return help_result::stopped;
    }
    if (caf::resumable* job = queue_.pop()) {
      if (was_idle) found_work(std::exchange(searching, false));
      was_idle = false;
      course.restart();
      run(self, job);
      if (++runs % runs_per_deadline_check == 0 && deadline != no_deadline && steady::now() >= deadline)
        return done() ? help_result::done : help_result::timeout;
      continue;
    }
    was_idle = true;
    if (look_again(course, searching)) continue;
    if (!queue_.empty()) {
      give_way();  // a producer was pre-empted between claiming its place and filling it
      continue;
    }
    if (!sleep(place, done, deadline, searching, how.room)) {
      leave(searching);
      return done() ? help_result::done : help_result::timeout;
    }
    course.woken();
  }
}

bool scheduler::help_one() {
  if (in_handler())
    throw std::logic_error(
        "troupe: help_one() was called inside an actor's handler; a handler returns instead of waiting");
  const driving scope(*this);
  if (stopping_.load(std::memory_order_seq_cst)) return false;
  caf::resumable* job = queue_.pop();
  if (job != nullptr) run(*static_cast<driver*>(current_driver), job);
  return job != nullptr;
}

help_result scheduler::finish(steady_time deadline) {
  // The registry tells nobody when its count falls, so this looks again every millisecond while another thread runs the last
  // actors. Only during shutdown.
  const auto none_left = [this] { return system_.registry().running() == 0; };
  parker place;
  for (;;) {
    const auto slice = std::min(deadline, steady::now() + std::chrono::milliseconds(1));
    const auto result = help_until(place, none_left, slice);
    if (result != help_result::timeout || steady::now() >= deadline) return result;
  }
}

// -- waking and workers ---------------------------------------------------------------

struct scheduler::threads {
  std::mutex mutex;
  std::vector<std::thread> all;
};

void scheduler::enqueue(caf::resumable* job) {
  // Before the push: the count may not pass through zero while the job is on its way.
  activity_.fetch_add(one_active, std::memory_order_seq_cst);
  queue_.push(job);
  if (stopped_.load(std::memory_order_seq_cst)) {
    if (!drives())  // else this thread is in `drain` already, whose loop comes to this job
      drain(steady_time::min());
    return;
  }
  if (drives() && queue_.size() <= static_cast<const driver*>(current_driver)->backlog)
    return;  // this thread looks at the queue before it sleeps, and hands over when it leaves
  wake();
}

void scheduler::wake() noexcept {
  if (idle_.wake_one() == idle_set::woken::nobody && started_.load(std::memory_order_relaxed) < options_.workers)
    start_worker();
}

void scheduler::start_worker() noexcept {
  const std::lock_guard lock(threads_->mutex);
  if (stopping_.load(std::memory_order_seq_cst) || threads_->all.size() >= options_.workers) return;
  // The new thread counts as searching from now on, so that a burst of messages starts one thread after the other.
  if (!idle_.start_search(~std::uint32_t{0})) return;
  try {
    threads_->all.emplace_back([this] { work(); });
    started_.store(threads_->all.size(), std::memory_order_relaxed);
  } catch (const std::exception&) {
    // No thread to be had (EAGAIN) or no memory. Callers still help; the next message tries again.
    idle_.stop_search();
  }
}

void scheduler::work() noexcept {
  name_thread("troupe.worker");
  thread_begins(system_);
  parker place;
  // `start_worker` counted this thread as searching already. Never done: ends as `stopped`.
  drive(place, condition{[](void*) { return false; }, nullptr}, no_deadline, true, {});
  thread_ends(system_);
}

// -- life cycle -------------------------------------------------------------------------

scheduler::scheduler(caf::actor_system& system, const scheduler_options& options)
    : system_(system),
      options_(options),
      queue_(options.ring),
      units_(new units(&system, this)),
      threads_(new threads),
      clock_(new timer_clock) {
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  if (options_.searchers == 0) options_.searchers = static_cast<std::uint32_t>(std::max<std::size_t>(1, cores / 2));
  if (cores == 1) options_.spin = 0;  // nobody can make progress while we look
  if (options_.max_throughput == 0) options_.max_throughput = 1;
}

scheduler::~scheduler() {
  if (!stopped_.load(std::memory_order_relaxed))
    stop();  // CAF stops what it started; this is for a system whose start failed half-way
  drain(steady_time::min());
}

scheduler& scheduler::of(caf::actor_system& system) {
  if (auto* found = dynamic_cast<scheduler*>(hosted_scheduler_of(system))) return *found;
  throw std::logic_error(
      "troupe: this actor system runs another scheduler; make it with troupe::actors::make_actor_system(config, ...)");
}

void scheduler::stop() {
  if (stopped_.load(std::memory_order_relaxed)) return;
  stopping_.store(true, std::memory_order_seq_cst);
  idle_.wake_all();
  std::vector<std::thread> joining;
  {
    const std::lock_guard lock(threads_->mutex);
    joining.swap(threads_->all);
  }
  for (auto& thread : joining) thread.join();
  wait_for_helpers();
  clock_->stop();
  drain(steady::now() + options_.grace);
}

/// A helper may be inside a long handler; it leaves when that returns.
void scheduler::wait_for_helpers() noexcept {
  const unit* mine = drives() ? static_cast<const driver*>(current_driver)->context : nullptr;
  const auto all_have_left = [&] {
    bool busy = false;
    units_->for_each([&](const unit& at) { busy |= &at != mine && at.busy.load(std::memory_order_seq_cst); });
    return !busy;
  };
  nap_until(all_have_left, std::chrono::microseconds{50});
}

/// Empties the queue: runs actors until `run_until`, then ends them as CAF's `cleanup_and_release` does (but does not leak those
/// that become ready by it).
void scheduler::drain(steady_time run_until) noexcept {
  {
    const driving scope(*this, wake_others::at_end);
    driver& self = *static_cast<driver*>(current_driver);
    while (run_until != steady_time::min() && steady::now() < run_until)
      if (caf::resumable* job = queue_.pop()) run(self, job);
      else if (queue_.empty()) break;
  }
  // From here on a thread that still sends cleans up after itself: it pushes, then sees this flag, or we see its job.
  stopped_.store(true, std::memory_order_seq_cst);
  const driving scope(*this, wake_others::at_end);
  driver& self = *static_cast<driver*>(current_driver);
  while (!queue_.empty()) {
    caf::resumable* job = queue_.pop();
    if (job == nullptr) {
      give_way();
      continue;
    }
    const auto kind = job->subtype();
    if (kind == caf::resumable::scheduled_actor || kind == caf::resumable::io_actor)
      static_cast<caf::scheduled_actor*>(job)->cleanup(caf::make_error(caf::exit_reason::user_shutdown), self.context);
    caf::intrusive_ptr_release(job);
    activity_.fetch_add(one_resume - one_active, std::memory_order_seq_cst);
  }
}

scheduler::activity scheduler::observe() const noexcept {
  const std::uint64_t word = activity_.load(std::memory_order_seq_cst);
  return {static_cast<std::size_t>(word & (one_resume - 1)), word / one_resume};
}

std::size_t scheduler::timers() const noexcept { return clock_->pending(); }

caf::actor_clock& scheduler::clock() noexcept { return *clock_; }

caf::actor_system make_actor_system(caf::actor_system_config& config, const scheduler_options& options) {
  return make_actor_system(
      config, [options](caf::actor_system& system) { return std::make_unique<scheduler>(system, options); });
}

}  // namespace troupe::actors
