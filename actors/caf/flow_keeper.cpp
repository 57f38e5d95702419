// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/flow_keeper.hpp"

#include <algorithm>
#include <utility>

#include <caf/event_based_actor.hpp>

#include "actors/caf/flow_keeper_hidden.hpp"
#include "actors/caf/runtime_hidden.hpp"
#include "actors/rank/rank_cell.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

struct flow_look_message {};
struct flow_late_message {
  std::weak_ptr<flow_cell> run;
};

}  // namespace troupe::actors

TROUPE_BEGIN_MESSAGES(troupe_flow, 40)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_look_message)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_late_message)
TROUPE_END_MESSAGES(troupe_flow)

namespace troupe::actors {

namespace {

using namespace std::chrono_literals;

/// As an attendant's (nap_course), but that a run is taken at the first look.
constexpr std::chrono::nanoseconds shortest_nap = 50us, longest_nap = 2ms;
/// Looks without a run before the keeper sleeps.
constexpr int most_futile = 100;

class keeper_actor final : public caf::event_based_actor {
public:
  keeper_actor(caf::actor_config& config, std::weak_ptr<flow_keeper> of)
      : event_based_actor(config), of_(std::move(of)) {
    on_exit_message(*this, [this](caf::exit_msg& m) { quit(std::move(m.reason)); });
  }
  caf::behavior make_behavior() override {
    return caf::message_handler{
        [this](const flow_look_message&) {
          const auto of = of_.lock();
          if (const auto nap = of ? of->look() : std::nullopt)
            post_later(caf::actor_cast<caf::actor>(this), *nap, flow_look_message{});
        },
        [](const flow_late_message& m) {
          if (const auto run = m.run.lock(); run && !run->is_over()) run->late();
        },
    };
  }
  const char* name() const override { return "flow_keeper"; }

private:
  std::weak_ptr<flow_keeper> of_;
};

failure_ptr engine_gone() {
  return make_failure(errc::engine_closed, "the engine was destroyed with this flow under way");
}

/// Turns a run on a thread of the scheduler.
class flow_job final : public job {
public:
  explicit flow_job(std::shared_ptr<flow_cell> which) : which_(std::move(which)) {}
  void run() override { which_->turn_briefly(); }

private:
  std::shared_ptr<flow_cell> which_;
};

}  // namespace

caf::actor flow_keeper::actor() {
  if (!actor_) {
    const lets_go_of_logger of_this_thread;
    actor_ = system_->spawn<keeper_actor, caf::lazy_init>(weak_from_this());
  }
  return actor_;
}

void flow_keeper::keep(const std::shared_ptr<flow_cell>& which, std::optional<std::chrono::nanoseconds> deadline) {
  const std::lock_guard lock(mutex_);
  std::erase_if(runs_, [](const auto& one) {
    const auto run = one.lock();
    return !run || run->is_over();
  });
  runs_.push_back(which);
  if (deadline) post_later(actor(), *deadline, flow_late_message{which});
  if (looks_) return;
  futile_ = 0;
  nap_ = shortest_nap;
  post_later(actor(), nap_, flow_look_message{});
  looks_ = true;
}

std::optional<std::chrono::nanoseconds> flow_keeper::look() {
  std::vector<std::shared_ptr<flow_cell>> left;
  std::optional<std::chrono::nanoseconds> nap;
  {
    const std::lock_guard lock(mutex_);
    bool any = false;
    for (const auto& one : runs_)
      if (auto run = one.lock(); run && !run->is_over()) {
        any = true;
        if (run->wants_turn()) left.push_back(std::move(run));
      }
    futile_ = any ? 0 : futile_ + 1;
    nap_ = left.empty() ? std::min(2 * nap_, longest_nap) : shortest_nap;
    looks_ = futile_ < most_futile;
    if (looks_) nap = nap_;
  }
  for (const auto& run : left) run->adopt();
  return nap;
}

void flow_keeper::schedule(const std::shared_ptr<flow_cell>& which) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (agenda_ != nullptr) {
      try {
        agenda_->enqueue(new flow_job(which));
      } catch (...) {}  // no memory: the keeper finds it once more
      return;
    }
  }
  which->abandon(engine_gone());
}

void flow_keeper::end_all(const failure_ptr& why) {
  std::vector<std::weak_ptr<flow_cell>> all;
  caf::actor ends;
  {
    const std::lock_guard lock(mutex_);
    all = runs_;
    std::swap(ends, actor_);
    looks_ = false;
  }
  for (const auto& one : all)
    if (const auto run = one.lock(); run && !run->is_over()) run->fail(why);
  if (ends) post_exit(ends, caf::exit_reason::normal);
}

void flow_keeper::close() noexcept {
  std::vector<std::weak_ptr<flow_cell>> all;
  {
    const std::lock_guard lock(mutex_);
    agenda_ = nullptr;
    all.swap(runs_);
  }
  for (const auto& one : all)
    if (const auto run = one.lock()) run->abandon(engine_gone());
}

// -- the door -----------------------------------------------------------------------------------------------------------------

std::shared_ptr<flow_threads> flow_threads_of(runtime& in) { return in.inside().flows; }

void keep(runtime& in, const std::shared_ptr<flow_cell>& which, std::optional<std::chrono::nanoseconds> deadline) {
  in.inside().flows->keep(which, deadline);
}

namespace {

/// The work of a caller while it waits for a run.
class flow_caller final : public waiting_work {
public:
  flow_caller(runtime::hidden& of, flow_cell& which, const completion& end, const std::vector<flow_rank>& ranks)
      : of_(of), which_(which), end_(end), ranks_(ranks) {
    for (const flow_rank& each : ranks_) each.cell->tend(true);
  }
  ~flow_caller() override {
    for (const flow_rank& each : ranks_) each.cell->tend(false);
  }
  flow_caller(const flow_caller&) = delete;
  flow_caller& operator=(const flow_caller&) = delete;

  void enter(parker& place) override {
    place_ = &place;
    which_.enter(place);
    try {
      enter_ranks();
    } catch (...) {
      leave_ranks();
      which_.leave();
      throw;
    }
  }
  void leave(parker&) override {
    leave_ranks();
    which_.leave();
    // It may have been woken for what others wait for, or nobody does.
    for (const flow_rank& each : ranks_)
      if (each.cell->wants_turn()) each.cell->help_briefly();
  }
  bool wants() const noexcept override {
    return which_.wants_turn() ||
           std::any_of(ranks_.begin(), ranks_.end(), [](const flow_rank& each) { return each.cell->wants_turn(); });
  }
  /// Until there is nothing to do, and nothing came for a while.
  void work(steady_time) override {
    const no_waiting inside;  // operators must not wait
    leave_ranks();            // a tile may take long: what is urgent is others' meanwhile
    while (!end_.done()) {
      if (turn_all()) continue;
      if (ranks_.size() != 1) break;
      ranks_.front().cell->help_until([this] { return end_.done() || which_.wants_turn(); }, no_deadline);
      if (!wants()) break;
    }
    enter_ranks();
  }

private:
  void enter_ranks() {
    for (; entered_ < ranks_.size(); ++entered_) ranks_[entered_].cell->enter_wait(*place_);
  }
  void leave_ranks() {
    while (entered_ > 0) ranks_[--entered_].cell->leave_wait(*place_);
  }
  /// True: something has moved.
  bool turn_all() {
    bool moved = false;
    if (which_.try_turn()) {
      while (!which_.is_over()) {
        const flow_cell::step did = which_.advance();
        moved = moved || did != flow_cell::step::nothing;
        const bool came = turn_ranks();
        moved = moved || came;
        if (did == flow_cell::step::nothing && !came) break;
      }
      which_.end_turn();
    }
    return turn_ranks() || moved;
  }
  /// What has come for them while a tile was worked on.
  bool turn_ranks() {
    bool moved = of_.job && of_.job->poll();
    for (const flow_rank& each : ranks_) {
      if (!each.cell->wants_turn()) continue;
      each.cell->run();
      // From here on the attendant performs the rank's work on a board, until a message comes: else this caller would look at it for ever.
      each.cell->leave_to_attendant();
      moved = true;
    }
    return moved;
  }

  runtime::hidden& of_;
  flow_cell& which_;
  const completion& end_;
  const std::vector<flow_rank>& ranks_;
  parker* place_ = nullptr;
  std::size_t entered_ = 0;  ///< ranks
};

}  // namespace

void turn(runtime& in, flow_cell& which, const completion_ptr& end, const std::vector<flow_rank>& ranks) {
  flow_caller work{in.inside(), which, *end, ranks};
  in.wait(end, no_deadline, nullptr, ranks.empty() ? 0 : ranks.front().yields, &work);
}

}  // namespace troupe::actors
