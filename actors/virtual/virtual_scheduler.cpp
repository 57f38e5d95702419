// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/virtual_scheduler.hpp"

#include <stdexcept>

#include "actors/caf/timer_clock.hpp"
#include "actors/virtual/element_state.hpp"

namespace troupe::actors {

namespace {

/// Messages that an actor may consume before others run. An event makes one; only actors that talk to each other have more.
constexpr std::size_t most_messages_a_turn = 64;

}  // namespace

class virtual_scheduler::unit final : public execution_context {
public:
  unit(caf::actor_system& system, virtual_scheduler* owner) : execution_context(system), owner_(owner) {}
  void enqueue(caf::resumable* job) override { owner_->enqueue(job); }

private:
  virtual_scheduler* owner_;
};

/// Told the virtual time. Its resolution is a nanosecond; what is due within one is due at its end.
class virtual_scheduler::virtual_clock final : public manual_clock {
public:
  explicit virtual_clock(const virtual_scheduler& owner) : owner_(owner) {}
  time_point now() const noexcept override { return point(owner_.now()); }
  virtual_scheduler::time_type next() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(next_time().time_since_epoch()).count() * 1000;
  }

private:
  static time_point point(virtual_scheduler::time_type time) {
    return time_point{std::chrono::nanoseconds{(time + 999) / 1000}};
  }
  const virtual_scheduler& owner_;
};

virtual_scheduler::virtual_scheduler() : clock_(new virtual_clock(*this)) {}

virtual_scheduler::virtual_scheduler(caf::actor_system& system)
    : unit_(new unit(system, this)), clock_(new virtual_clock(*this)) {}

virtual_scheduler::~virtual_scheduler() { stop(); }

virtual_scheduler& virtual_scheduler::of(caf::actor_system& system) {
  if (auto* found = dynamic_cast<virtual_scheduler*>(hosted_scheduler_of(system))) return *found;
  throw std::logic_error(
      "troupe: this actor system runs another scheduler; make it with make_virtual_actor_system(config)");
}

void virtual_scheduler::enqueue(caf::resumable* job) {
  ready_.push_back(job);
  if (stopped_) run_ready();
}

void virtual_scheduler::run_ready() {
  while (next_ready_ < ready_.size()) {
    caf::resumable* job = ready_[next_ready_++];
    if (next_ready_ == ready_.size()) ready_.clear(), next_ready_ = 0;
    if (job->resume(unit_.get(), most_messages_a_turn) == caf::resumable::resume_later) ready_.push_back(job);
    else caf::intrusive_ptr_release(job);
  }
}

/// Actor ids count up from the system's first actor, so they are the same in every run, as states' numbers are.
void virtual_scheduler::note(const event& what) noexcept {
  std::uint64_t words[2];
  std::memcpy(words, what.what, sizeof words);
  for (const std::uint64_t word : {static_cast<std::uint64_t>(now_), std::uint64_t{what.number}, words[0], words[1]}) {
    trace_ = (trace_ ^ word) * 0x9e3779b97f4a7c15u;
    trace_ ^= trace_ >> 32;
  }
}

bool virtual_scheduler::step() {
  if (!clock_->idle() && (events_due_.empty() || clock_->next() <= events_due_.next_time())) {
    now_ = std::max(now_, clock_->next());
    ++events_;
    clock_->dispatch();
    run_ready();
    return true;
  }
  if (events_due_.empty()) return false;
  const auto [time, what] = events_due_.pop();
  now_ = time;
  if (time >= end_of_time) return false;  // what is left is never done; the caller of run() sees that from now()
  ++events_;
  note(what);
  if (looks_ahead_)
    events_due_.look_ahead(farthest_look, [](int n, const event& later) {
      if (later.how->expect != nullptr) later.how->expect(later, n);
    });
  what.how->deliver(what, unit_.get());
  if (!ready_.empty()) run_ready();
  return true;
}

caf::actor_clock& virtual_scheduler::clock() noexcept { return *clock_; }

/// Timeouts that are still due are dropped; actors that are ready handle what they have, and die with their last reference.
void virtual_scheduler::stop() {
  if (stopped_) return;
  run_ready();
  stopped_ = true;
  clock_->drop_all();
}

caf::actor_system make_virtual_actor_system(caf::actor_system_config& config) {
  return make_actor_system(config,
                           [](caf::actor_system& system) { return std::make_unique<virtual_scheduler>(system); });
}

}  // namespace troupe::actors
