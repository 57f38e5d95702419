// SPDX-License-Identifier: Apache-2.0
#pragma once
// Scenarios and campaigns for the tests of simulation.

#include <doctest/doctest.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/tools/simulate/campaign.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace simulation_test {

using namespace troupe;
using namespace troupe::simulate;

inline campaign_options seeds(std::uint64_t first, std::uint64_t last) {
  campaign_options o;
  o.first = first;
  o.last = last;
  o.threads = 2;
  o.most_failures = 3;
  return o;
}

inline campaign_result check_all_right(const campaign_options& o) {
  campaign_result r = run_campaign(o);
  for (const failing_seed& f : r.failures) FAIL_CHECK("seed " << f.seed << ": " << f.fault);
  CHECK(r.seeds == o.last - o.first + 1);
  CHECK(r.performed > 0);
  return r;
}

/// All ranks call it, by that way.
inline item collective_item(int id, collective what, std::size_t count, const way& how) {
  item it;
  it.id = id;
  it.what.what = what;
  it.what.type = datatype::i32;
  it.what.count = count;
  it.how = how;
  return it;
}

inline int choreography_named(std::string_view wanted) {
  const auto all = all_choreographies();
  return static_cast<int>(std::find_if(all.begin(), all.end(), [&](const auto* c) { return c->name == wanted; }) -
                          all.begin());
}

inline simulation_result told_run(scenario s, std::uint64_t seed, mutant broken = mutant::none) {
  plan_source plans;
  simulation_options options;
  options.trace = true;
  options.broken = broken;
  s.seed = seed;
  return simulation(s, plans, options).run();
}

inline bool tells(const simulation_result& r, std::string_view text) {
  return std::any_of(r.trace.begin(), r.trace.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

/// The scenario under many schedules.
inline void check_schedules(scenario s, std::uint64_t schedules) {
  plan_source plans;
  for (s.seed = 1; s.seed <= schedules; ++s.seed) {
    const simulation_result r = simulation(s, plans).run();
    REQUIRE_MESSAGE(r.ok(), "schedule " << s.seed << ": " << r.fault);
  }
}

/// The scenario, in which that one thing happens, under many schedules; the first of them is told.
inline simulation_result check_disturbed(scenario s, const disturbance& what) {
  s.disturbances = {what};
  CAPTURE(name(what.what));
  CAPTURE(what.after_ns);
  CAPTURE(what.rank);
  check_schedules(s, 20);
  return told_run(std::move(s), 1);
}

}  // namespace simulation_test
