// SPDX-License-Identifier: Apache-2.0
// The protocol under simulated faults: many seeds, and mutants that simulation must notice.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/world/division_state.hpp"
#include "memory/error.hpp"
#include "tests/simulation/scenarios.hpp"

using namespace simulation_test;

namespace {

/// All ranks are divided by these colors and keys, and each part performs an all-reduce.
item split_item(int id, const std::vector<std::int32_t>& divided, const way& how) {
  item it = collective_item(id, collective::all_gather, 2, how);
  it.what.purpose = call_purpose::split;
  it.divided = divided;
  for (std::int32_t color = 0; color < 3; ++color) {
    part_of_split part;
    part.color = color;
    part.what.ranks = static_cast<int>(members_of_part(divided, color).size());
    part.what.items = {collective_item(0, collective::all_reduce, 13, way{})};
    if (part.what.ranks > 0) it.parts.push_back(part);
  }
  return it;
}

/// Over the boards, so that ranks end at different times.
scenario splitting() {
  scenario s;
  s.ranks = 4;
  way quick;
  quick.choreography = choreography_named("one_shot");
  quick.port = port_kind::ll;
  s.items = {split_item(0, {1, 5, 0, 0, 1, -5, 1, 5}, quick), collective_item(1, collective::all_reduce, 5, way{})};
  return s;
}

/// How many ranks call something else while the others split, in parts, too. Who splits has all ranks' colors and keys.
int called_beside_splits(const scenario& s) {
  int found = 0;
  const auto look = [&](const item& it) {
    if (!it.splits()) return;
    CHECK(it.divided.size() == 2 * static_cast<std::size_t>(s.ranks));
    CHECK(it.what.count == 2);
  };
  for (const item& it : s.items) {
    look(it);
    for (const part_of_split& part : it.parts) found += called_beside_splits(part.what);
    for (const disturbance& x : s.disturbances)
      found += it.splits() && x.item == it.id && x.what == disturbance::kind::other_call;
  }
  for (const disturbance& x : s.disturbances) std::for_each(x.instead.begin(), x.instead.end(), look);
  return found;
}

}  // namespace

TEST_CASE("ten thousand seeds with all faults pass") { check_all_right(seeds(1, 10'000)); }

TEST_CASE("calls that are planned alike have blocks that their way can take") {
  // Of two reduce_scatter_v by ll128 the second had blocks that it has no plan for.
  check_all_right(seeds(20'487'173, 20'487'173));
}

TEST_CASE("runs whose data come late for long are no hangs") {
  // Rings of 12 to 16 ranks with one credit, and a NIC's small packets, while messages are late.
  for (const std::uint64_t seed : {702520u, 704003u, 705227u, 719191u}) {
    campaign_options o = seeds(seed, seed);
    o.limits.least_ranks = 1;
    o.limits.most_ranks = 16;
    o.limits.most_items = 24;
    check_all_right(o);
  }
  campaign_options o = seeds(8993, 8993);
  o.limits.least_ranks = 9;
  o.limits.most_ranks = 16;
  o.limits.most_items = 8;
  check_all_right(o);
}

TEST_CASE("without faults nothing fails, whatever the ranks") {
  campaign_options o = seeds(1, 1500);
  o.limits.faults = parse_faults("none");
  o.limits.most_ranks = 8;
  CHECK(check_all_right(o).failed == 0);
}

TEST_CASE("looking at all buffers after every event finds nothing either") {
  campaign_options o = seeds(1, 1000);
  o.each.strict = true;
  check_all_right(o);
}

TEST_CASE("the last seeds that there are, are tried, and nothing behind them") {
  constexpr std::uint64_t last = ~std::uint64_t{0};
  check_all_right(seeds(last - 200, last));
  check_all_right(seeds(last, last));
}

TEST_CASE("after so many failing seeds no more are begun") {
  campaign_options o = seeds(1, 2000);
  o.each.broken = mutant::drop_stopped;
  o.most_failures = 1;
  const campaign_result r = run_campaign(o);
  CHECK(r.failures.size() >= 1);
  CHECK(r.failures.size() <= static_cast<std::size_t>(o.threads));  // what each was at
  o.most_failures = 0;
  CHECK(run_campaign(o).seeds == 2000);
}

TEST_CASE("a seed is the same run every time") {
  plan_source plans;
  simulation_options told;
  told.trace = true;
  for (const std::uint64_t seed : {7u, 77u, 777u}) {
    const scenario s = make_scenario(seed, {}, plans);
    const simulation_result once = simulation(s, plans, told).run(), again = simulation(s, plans, told).run();
    CHECK(once.trace == again.trace);
    CHECK(once.trace.size() > 3);
  }
}

TEST_CASE("nor does a seed depend on what was planned before it") {
  // Complex sums may go where products may not, and whoever came first was the plan of both.
  for (const port_kind port : {port_kind::ll, port_kind::ll128}) {
    plan_source shared;
    for (const op& reduction : {sum, prod, sum}) {
      call what;
      what.what = collective::all_reduce;
      what.type = datatype::c128;
      what.reduction = reduction;
      what.count = 40;
      way how;
      how.choreography = choreography_named("recursive_doubling");
      how.port = port;
      plan_source alone;
      CAPTURE(name(port));
      CAPTURE(name(reduction.kind));
      CHECK((shared.plan_for(what, 4, how) == nullptr) == (alone.plan_for(what, 4, how) == nullptr));
    }
  }
  std::vector<std::uint64_t> events;
  plan_source forwards, backwards;
  constexpr std::uint64_t most = 1000;
  for (std::uint64_t seed = 1; seed <= most; ++seed)
    events.push_back(simulation(make_scenario(seed, {}, forwards), forwards).run().events);
  for (std::uint64_t seed = most; seed >= 1; --seed)
    CHECK(simulation(make_scenario(seed, {}, backwards), backwards).run().events == events[seed - 1]);
}

TEST_CASE("every mutant of the protocol is noticed") {
  for (const mutant_entry& m : all_mutants()) {
    CAPTURE(m.name);
    campaign_options o = seeds(1, 100'000);  // most are noticed within hundreds
    o.threads = 1;
    o.most_failures = 1;
    o.each.broken = m.which;
    const campaign_result r = run_campaign(o);
    CHECK(r.mutations > 0);
    CHECK_FALSE(r.failures.empty());
  }
}

TEST_CASE("a rank that keeps more early chunks than were sent to it is noticed at once") {
  campaign_options o = seeds(1, 200);
  o.each.broken = mutant::chunk_invented;
  o.most_failures = 0;
  std::size_t at_once = 0;
  for (const failing_seed& f : run_campaign(o).failures)
    at_once += f.fault.find("that it has not consumed") != std::string::npos;
  CHECK(at_once > 10);
}

TEST_CASE("a failing run is made smaller, and fails alike") {
  plan_source plans;
  simulation_options broken;
  broken.broken = mutant::drop_credit;
  campaign_options o = seeds(1, 10'000);
  o.threads = 1;
  o.most_failures = 1;
  o.each = broken;
  const campaign_result found = run_campaign(o);
  REQUIRE_FALSE(found.failures.empty());
  const scenario s = make_scenario(found.failures.front().seed, {}, plans);
  const shrunk small = shrink(s, plans, broken);
  CHECK(small.what.size() <= s.size());
  CHECK_FALSE(small.fault.empty());
  CHECK(simulation(small.what, plans, broken).run().fault == small.fault);
  REQUIRE_FALSE(small.trace.empty());
  CHECK(small.trace.back().find("FAULT") != std::string::npos);
}

TEST_CASE("faults are named, and an unknown name gets a suggestion") {
  CHECK(parse_faults("lose,kill").lose);
  CHECK_FALSE(parse_faults("lose,kill").cancel);
  CHECK_FALSE(parse_faults("none").any());
  CHECK_THROWS_WITH_AS(static_cast<void>(parse_faults("loose")), doctest::Contains("did you mean lose?"), error);
}

// -- splits ------------------------------------------------------------------------------------------------------------------------

TEST_CASE("ranks that split have communicators of their own, in which they go on beside the whole and after it") {
  check_schedules(splitting(), 500);
  const simulation_result r = told_run(splitting(), 1);
  CHECK(r.failed == 0);
  CHECK(r.performed == 4 + 4 + 4);
  CHECK(tells(r, "world.split0(1): rank 2 takes its place"));
  CHECK(tells(r, "world.split0(0): collective 0 all_reduce(count 13, i32, sum) on rank 0 is performed"));
}

TEST_CASE("whatever happens to a split, who has its part hears of those who never will") {
  using kind = disturbance::kind;
  std::uint64_t gave_up = 0;
  for (const kind what : {kind::kill, kind::abort, kind::cancel, kind::deadline, kind::leave, kind::refuse, kind::skip})
    for (const std::int64_t after : {0, 1'000, 3'000, 8'000}) {
      scenario s = splitting();
      disturbance x;
      x.what = what;
      x.rank = 2;
      x.item = 0;
      x.after_ns = after;
      s.disturbances = {x};
      CAPTURE(name(what));
      CAPTURE(after);
      check_schedules(s, 60);
      for (std::uint64_t seed = 1; seed <= 30; ++seed) gave_up += tells(told_run(s, seed), "never takes its place");
    }
  CHECK(gave_up > 0);
}

TEST_CASE("who calls something else than a split does not split, in parts of splits neither") {
  plan_source plans;
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 10'000; ++seed) found += called_beside_splits(make_scenario(seed, {}, plans));
  CHECK(found > 50);
}

TEST_CASE("a rank that gathers as much while the others split has called something else, and the reason names both") {
  scenario s = splitting();
  disturbance x;
  x.what = disturbance::kind::other_call;
  x.rank = 3;
  x.item = 0;
  item other = s.items[0];
  other.divided.clear();
  other.parts.clear();
  for (const call_purpose purpose : {call_purpose::itself, call_purpose::duplicate}) {
    other.what.purpose = purpose;
    x.instead = {other};
    s.disturbances = {x};
    check_schedules(s, 200);
    const simulation_result r = told_run(s, 1);
    CHECK(tells(r, "ranks 0–2: split()"));
    CHECK(tells(r, "rank 3: " + to_string(other.what)));
    CHECK_FALSE(tells(r, "takes its place"));
    CHECK_FALSE(told_run(s, 1, mutant::purpose_forgotten).ok());
  }
}

TEST_CASE("a failing split is made smaller, and what is needed of its parts stays") {
  plan_source plans;
  simulation_options broken;
  broken.broken = mutant::members_by_rank;
  scenario s = splitting();
  s.seed = 1;
  REQUIRE_FALSE(simulation(s, plans, broken).run().ok());
  const shrunk small = shrink(s, plans, broken);
  CHECK(small.what.size() < s.size());
  CHECK(small.what.items.size() == 1);
  CHECK(small.what.ranks == 3);  // rank 0 and the one that is to stand before it
  CHECK(small.what.to_string().find("color/key of each rank: 1/5, 0/0, 1/-5") != std::string::npos);
  CHECK(small.fault.find("should be rank") != std::string::npos);
}

// -- what simulation has found ----------------------------------------------------------------------------------------------------

TEST_CASE("a group that is queued for long is begun once, and holds nobody up") {
  // A rank that was asked for a queued operation said that it had come; when all had, it was launched before its turn and then again,
  // or, while its group took its time, a message was taken for lost.
  scenario s;
  s.ranks = 3;
  way asked;
  asked.choreography = choreography_named("one_shot");
  for (int i = 0; i < 6; ++i) {
    item it = collective_item(i, collective::scatter, 0, asked);
    it.what.uniform = false;
    it.counts = {2, 3, 1};
    s.items.push_back(it);
  }
  check_schedules(s, 1500);
}

TEST_CASE("a chunk that comes twice does not stay at a channel that was done before the others") {
  scenario s;
  s.channels = 3;
  s.twice_percent = 60;
  s.late_percent = 30;
  way cut;
  cut.choreography = choreography_named("ring");
  cut.channels = 3;
  for (int i = 0; i < 3; ++i) s.items.push_back(collective_item(i, collective::all_reduce, 31, cut));
  check_schedules(s, 300);
}

TEST_CASE("a send that was received is performed, though its receiver leaves before the credit is back") {
  scenario s;
  s.late_percent = 30;
  item it;
  it.pair = true;
  it.from = 1;
  it.what.type = datatype::i32;
  it.what.count = 5;
  s.items.push_back(it);
  check_schedules(s, 500);
}
