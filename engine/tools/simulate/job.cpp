// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/simulate/job.hpp"

#include <algorithm>
#include <utility>

#include "engine/tools/simulate/job_world.hpp"

namespace troupe::simulate {

namespace {

constexpr std::chrono::milliseconds silence{3000};
/// Until then everything is over, whatever happens: the last disturbance, a silence, and what follows from it in another.
constexpr nanoseconds_t patience = 30'000 * ms;

roster roster_of(const std::vector<int>& ranks_of_processes) {
  roster all;
  all.job = 1;
  std::uint32_t first = 0;
  for (const int ranks : ranks_of_processes) {
    process_place place;
    place.host = "h";
    place.pid = 100 + static_cast<int>(all.processes.size());
    place.first_rank = first;
    place.ranks = static_cast<std::uint32_t>(ranks);
    first += place.ranks;
    all.processes.push_back(place);
  }
  return all;
}

}  // namespace

job_world::process::process(job_world& of, int number)
    : here(number),
      presence(of.roster_, static_cast<std::uint32_t>(number), silence, of.clock()),
      says(std::make_unique<presence_voice>(of, *this)),
      agreements_say(std::make_unique<agreements_voice>(of, *this)),
      agreements(static_cast<std::uint32_t>(number)) {}
job_world::process::~process() = default;

job_world::job_world(std::uint64_t seed, plan_source& plans, const job_options& options)
    : seed_(seed), plans_(plans), options_(options) {
  dice d(seed, {0x10});
  processes_ = d.between(options.least_processes, options.most_processes);
  operations_ = d.between(3, 12);
  divides_ = options.divides && dice(seed, {0x12}).percent(60);
  std::vector<int> ranks;
  dice sizes(seed, {0x13});
  for (int p = 0; p < processes_; ++p) ranks.push_back(divides_ ? sizes.any_of({1, 1, 2, 3}) : 1);
  roster_ = roster_of(ranks);
  ways_.resize(static_cast<std::size_t>(processes_) * static_cast<std::size_t>(processes_));
  std::vector<std::uint32_t> process_of;
  std::vector<int> world_rank;
  for (int p = 0; p < processes_; ++p)
    for (int r = 0; r < ranks[static_cast<std::size_t>(p)]; ++r) {
      world_rank.push_back(static_cast<int>(process_of.size()));
      process_of.push_back(static_cast<std::uint32_t>(p));
    }
  for (int number = 0; number < processes_; ++number) {
    all_.push_back(std::make_unique<process>(*this, number));
    process& p = *all_.back();
    p.members.push_back(std::make_unique<member>(*this, p, "world", communicator_id{1}, process_of, world_rank));
    member& world = *p.members.back();
    for (const auto& [rank, s] : world.ranks_here) {
      p.callers.push_back(std::make_unique<caller>());
      caller& c = *p.callers.back();
      c.in = &p;
      c.world_rank = rank;
      c.has.push_back({&world, rank, 0, operations_});
    }
    enter(world);
  }
}

job_world::~job_world() {
  for (const auto& p : all_) p->dead = true;
}

job_result job_world::run() {
  plan_faults();
  for (int p = 0; p < processes_; ++p) {
    at_process(p, [this](process& here) { here.presence.greet(clock(), *here.says); });
    for (const auto& c : all_[static_cast<std::size_t>(p)]->callers) go_on(*c);
    at(static_cast<time_ns>(mix(seed_ ^ static_cast<std::uint64_t>(p)) % (300 * ms)), [this, p] { tick(p); });
  }
  const auto is_over = [this](const process& p) {
    return p.dead || (std::ranges::all_of(p.members, [](const auto& m) { return m->ended; }) &&
                      (!divides() || std::ranges::all_of(p.callers, [](const auto& c) { return c->done(); })));
  };
  const auto all_over = [&] { return std::ranges::all_of(all_, [&](const auto& p) { return is_over(*p); }); };
  while (!events_.empty() && result_.ok() && now_ < patience * (divides() ? 4 : 1) && !all_over()) {
    event next = events_.top();
    events_.pop();
    now_ = std::max(now_, next.when);
    ++result_.events;
    next.what();
  }
  if (result_.ok()) check_end();
  result_.divisions = divisions_.size();
  result_.shrinks = answers_.size();
  return std::move(result_);
}

std::string_view name(job_mutant which) {
  switch (which) {
    case job_mutant::none: return "none";
    case job_mutant::no_beats: return "no_beats";
    case job_mutant::no_suspicion: return "no_suspicion";
    case job_mutant::no_takeover: return "no_takeover";
    case job_mutant::silence_heard: return "silence_heard";
    case job_mutant::eof_unheard: return "eof_unheard";
    case job_mutant::absent_unsaid: return "absent_unsaid";
    case job_mutant::gave_up_unsaid: return "gave_up_unsaid";
    case job_mutant::early_dropped: return "early_dropped";
    case job_mutant::loss_unshrunk: return "loss_unshrunk";
    case job_mutant::rest_unnamed: return "rest_unnamed";
    case job_mutant::untaken_awaited: return "untaken_awaited";
  }
  return "?";
}

std::string_view meaning(job_mutant which) {
  switch (which) {
    case job_mutant::none: return "nothing is broken";
    case job_mutant::no_beats: return "nobody says \"I am here\"";
    case job_mutant::no_suspicion: return "a process that is lost is told to nobody";
    case job_mutant::no_takeover: return "with its home a communicator's membership is gone";
    case job_mutant::silence_heard: return "silence is never noticed";
    case job_mutant::eof_unheard: return "the end of a connection is never noticed";
    case job_mutant::absent_unsaid: return "a process whose ranks have left does not answer who asks for them";
    case job_mutant::gave_up_unsaid: return "a rank that has not got its part tells nobody";
    case job_mutant::early_dropped: return "what comes for a part before it is here is dropped";
    case job_mutant::loss_unshrunk: return "who agree on who is left hear of no lost process";
    case job_mutant::rest_unnamed: return "what a shrink leaves is named without those who are left";
    case job_mutant::untaken_awaited: return "a shrink waits for ranks that never took their places";
  }
  return "?";
}

job_result simulate_job(std::uint64_t seed, plan_source& plans, const job_options& options) {
  return job_world(seed, plans, options).run();
}

job_campaign_result run_jobs(const job_campaign& what) {
  job_campaign_result all;
  plan_source plans;
  for (std::uint64_t seed = what.first;; ++seed) {
    const job_result r = simulate_job(seed, plans, what.each);
    ++all.seeds;
    all.events += r.events;
    all.performed += r.performed;
    all.failed += r.failed;
    all.divisions += r.divisions;
    all.shrinks += r.shrinks;
    if (!r.ok()) all.failures.emplace_back(seed, r.story + r.fault);
    if (seed == what.last || (what.most_failures > 0 && all.failures.size() >= what.most_failures)) break;
  }
  return all;
}

}  // namespace troupe::simulate
