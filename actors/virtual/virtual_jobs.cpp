// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/virtual_jobs.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "actors/virtual/part_watcher.hpp"
#include "actors/virtual/virtual_performers.hpp"
#include "actors/virtual/virtual_scheduler.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

struct round_event {  ///< to the timetable: a job's round begins, or has ended everywhere
  std::uint32_t job;
  std::uint32_t begins;  ///< no padding: the trace is over all bytes
};

}  // namespace troupe::actors

TROUPE_BEGIN_MESSAGES(troupe_virtual_jobs, 120)
TROUPE_LOCAL_MESSAGE(troupe_virtual_jobs, troupe::actors::round_event)
TROUPE_END_MESSAGES(troupe_virtual_jobs)

namespace troupe {

namespace {

using namespace actors;

/// All jobs, and when they do what.
class timetable {
public:
  timetable(const std::vector<virtual_job>& jobs, const hardware& on, caf::actor_system& system,
            element_recording* record)
      : on_(on), time_(virtual_scheduler::of(system)), ways_(on, time_, nullptr, watch(record)) {
    jobs_.reserve(jobs.size());
    for (const virtual_job& j : jobs) add(j);
    ways_.set_up();
    finished_.resize(static_cast<std::size_t>(on.ranks), 0);
    std::size_t ranks = 0;
    for (const job_state& j : jobs_) ranks += j.of->ranks.size() * j.calls.size();
    ways_.ranks.resize(ranks);
  }

  void start(const caf::actor& self) {
    self_ = self;
    for (std::uint32_t j = 0; j < jobs_.size(); ++j) time_.at(jobs_[j].of->start, self_, round_event{j, 1});
  }
  void stop() { self_ = nullptr, ways_.ranks.clear(); }

  void on_round(round_event what) noexcept {
    if (failure_) return;
    try {
      if (what.begins) begin_round(what.job);
      else end_round(what.job);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  /// The first failure of any collective under way.
  std::exception_ptr failure() const {
    if (failure_) return failure_;
    for (const job_state& j : jobs_)
      for (const call_state& c : j.calls)
        if (c.by.all && c.by.all->failure) return c.by.all->failure;
    return nullptr;
  }
  void check() const {
    for (const job_state& j : jobs_)
      for (const call_state& c : j.calls)
        if (c.by.all) check_ended(c.by);
  }

  virtual_jobs_outcome outcome() {
    virtual_jobs_outcome o;
    for (job_state& j : jobs_) {
      for (const virtual_stretch& r : j.done.rounds) o.end_ps = std::max(o.end_ps, r.end);
      o.jobs.push_back(std::move(j.done));
    }
    o.use = ways_.use();
    o.steps = steps_;
    o.messages = ways_.messages_sent();
    o.payload_bytes = ways_.payload_sent();
    o.finished = std::move(finished_);
    o.events = time_.events();
    o.trace = time_.trace();
    return o;
  }

private:
  struct call_state {
    const virtual_call* of = nullptr;
    std::unique_ptr<const hardware> seen;  ///< the machine as its ranks see it
    std::shared_ptr<const lazy_sizes> sizes;
    std::uint32_t part = 0;
    virtual_performers by{};  ///< of the present round
  };
  struct job_state {
    const virtual_job* of = nullptr;
    std::vector<call_state> calls{};
    int round = 0;
    std::int64_t began = 0;
    virtual_job_outcome done{};
  };

  element_watcher* watch(element_recording* record) {
    if (record == nullptr) return nullptr;
    return &watcher_.emplace(*record);
  }

  void add(const virtual_job& j) {
    job_state& made = jobs_.emplace_back();
    made.of = &j;
    for (const virtual_call& c : j.calls) {
      hardware seen = part_of(on_, j.ranks, j.places);
      seen.host = c.host;
      call_state call{&c, std::make_unique<const hardware>(std::move(seen)),
                      std::make_shared<const lazy_sizes>(*c.notes, c.shape, c.cut)};
      check_virtual(*c.notes, c.cut, *call.seen, c.options);
      call.part = ways_.add(*call.sizes, *call.seen, c.options.protocol);
      if (watcher_) watcher_->add(call.part, static_cast<std::int32_t>(jobs_.size()) - 1, j.ranks);
      made.calls.push_back(std::move(call));
    }
  }

  rank_address& address_of(const call_state& c, std::size_t rank) {
    return ways_.ranks[ways_.first_rank(c.part) + rank];
  }

  /// The states of the ranks of all its collectives are made anew: what the last round left is at an end.
  void begin_round(std::uint32_t number) {
    job_state& j = jobs_[number];
    j.began = time_.now();
    for (std::uint32_t c = 0; c < j.calls.size(); ++c) {
      call_state& call = j.calls[c];
      call.by = make_performers(call.sizes, *call.seen, call.of->options, ways_, call.part, nullptr);
      call.by.all->on_finished = [this, number, c](rank_t rank, std::int64_t end) { finished(number, c, rank, end); };
      for (std::size_t r = 0; r < call.by.ranks.size(); ++r) address_of(call, r) = call.by.ranks[r]->address();
    }
    j.done.calls.emplace_back(j.calls.size(), virtual_stretch{end_of_time, 0});
    for (std::size_t r = 0; r < j.of->ranks.size(); ++r) start_rank(number, 0, r, time_.now());
  }

  void start_rank(std::uint32_t number, std::size_t c, std::size_t rank, std::int64_t at) {
    job_state& j = jobs_[number];
    virtual_stretch& stretch = j.done.calls.back()[c];
    stretch.begin = std::min(stretch.begin, at);
    time_.at(at + j.calls[c].seen->host.launch.count(), address_of(j.calls[c], rank), start_event{});
  }

  void finished(std::uint32_t number, std::size_t c, rank_t rank, std::int64_t end) {
    job_state& j = jobs_[number];
    virtual_stretch& stretch = j.done.calls.back()[c];
    stretch.end = std::max(stretch.end, end);
    auto& last = finished_[static_cast<std::size_t>(j.of->ranks[static_cast<std::size_t>(rank)])];
    last = std::max(last, end);
    if (c + 1 < j.calls.size()) start_rank(number, c + 1, static_cast<std::size_t>(rank), end);
    else if (j.calls[c].by.all->unfinished == 0) time_.at(stretch.end, self_, round_event{number, 0});
  }

  void end_round(std::uint32_t number) {
    job_state& j = jobs_[number];
    j.done.rounds.push_back({j.began, time_.now()});
    for (call_state& c : j.calls) {
      steps_ += c.by.all->steps;
      check_ended(c.by);
      for (std::size_t r = 0; r < c.by.ranks.size(); ++r) address_of(c, r) = nullptr;
      c.by = {};
    }
    if (++j.round == j.of->rounds) return;
    std::int64_t next = j.began + j.of->period;
    if (j.of->compute > 0)
      for (const int r : j.of->ranks) next = std::max(next, ways_.work(on_.place_of(r).core, j.of->compute, 0));
    time_.at(next, self_, round_event{number, 1});
  }

  const hardware& on_;
  virtual_scheduler& time_;
  std::optional<part_watcher> watcher_;
  traffic ways_;
  caf::actor self_;
  std::vector<job_state> jobs_;
  std::vector<std::int64_t> finished_;  ///< by rank of the machine
  std::uint64_t steps_ = 0;
  std::exception_ptr failure_;
};

class timetable_actor final : public caf::event_based_actor {
public:
  timetable_actor(caf::actor_config& config, timetable& of) : event_based_actor(config), of_(of) {}
  caf::behavior make_behavior() override {
    return {[this](round_event what) { of_.on_round(what); }};
  }
  const char* name() const override { return "virtual_timetable"; }

private:
  timetable& of_;
};

}  // namespace

virtual_jobs_outcome perform_jobs_virtually(const std::vector<virtual_job>& jobs, const hardware& on,
                                            const virtual_jobs_options& options) {
  on.validate();
  // Torn down from the last to the first: actors refer to the state above them.
  caf::actor_system_config config;
  caf::actor_system system = make_virtual_actor_system(config);
  timetable table{jobs, on, system, options.record};
  virtual_scheduler& time = virtual_scheduler::of(system);
  table.start(system.spawn<timetable_actor, caf::hidden>(std::ref(table)));
  const bool done = time.run(events_between_looks, [&] {
    return !table.failure() && (options.go_on == nullptr || options.go_on(options.context, time.events()));
  });
  if (const auto why = table.failure()) std::rethrow_exception(why);
  if (!done) throw error(errc::cancelled, "the virtual run was cancelled");
  check_time(time.now());
  table.check();
  virtual_jobs_outcome result = table.outcome();
  table.stop();
  return result;
}

}  // namespace troupe
