// SPDX-License-Identifier: Apache-2.0
// What holds of every virtual run, whatever the score, the machine and the sizes.
#include "actors/virtual/virtual_run.hpp"
#include "engine/tools/study/bounds.hpp"
#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

using namespace troupe;

namespace {

/// A machine with everything that elements can be.
hardware random_hardware(std::mt19937_64& random, const layout& placed, bool fair) {
  machine_options options;
  options.nic_ports = 1 + static_cast<int>(random() % 3);
  hardware h = machine_hardware(machine{placed, options});
  for (const element_class& c : std::vector<element_class>(h.classes)) {
    const auto choose = [&](const char* key, std::initializer_list<const char*> values) {
      h.set(c.name + "." + key, std::data(values)[random() % values.size()]);
    };
    choose("latency", {"0", "100ns", "1us", "7ps"});
    choose("bandwidth", {"1GB/s", "10 GB/s", "333333333 B/s", "unlimited"});
    choose("overhead", {"0", "0", "50ns"});
    choose("directions", {"full", "half"});
    choose("units", {"1", "1", "2", "3"});
    choose("handshake", {"0", "0", "2us"});
    choose("window", {"0", "0", "1", "2"});
    if (fair && c.name != "dma") choose("discipline", {"fifo", "fair", "max_min"});  // ranks work on their DMA engines
    else if (!fair) choose("passing", {"cut_through", "store_and_forward"});
  }
  if (random() % 2 == 0) {
    h.host.step = picoseconds{static_cast<std::int64_t>(random() % 100'000)};
    h.host.reduce_rate = 5'000'000'000;
    h.host.copy_rate = 10'000'000'000;
  }
  if (!fair && random() % 2 == 0) h.set("routing", "adaptive");  // among the ports of a server's NIC
  h.protocols[0].slots = 2 + static_cast<int>(random() % 7);
  return h;
}

struct task {
  std::string title;
  score notes;
  hardware on;
  std::vector<std::size_t> counts;
  call_shape shape;
  cutting cut;
};

task random_task(std::mt19937_64& random, bool fair) {
  for (;;) {
    const auto all = all_choreographies();
    const choreography& by = *all[random() % all.size()];
    setup on = flat_setup(by.collectives[random() % by.collectives.size()], 1);
    const char* layouts[] = {"2x2x2", "1x1x4", "3x2", "2x4", "4+3", "1x3x2", "1x1x1"};
    on.placement = layout::parse(layouts[random() % std::size(layouts)]);
    on.ranks = on.placement.size();
    on.root = has_root(on.what) ? static_cast<rank_t>(random() % static_cast<unsigned>(on.ranks)) : 0;
    if (!refusal(by, on).empty()) continue;
    task t{std::string{by.name} + " " + std::string{name(on.what)} + " on " + on.placement.to_string(),
           one_cell_per_step(lower_syncs(write_score(by, on))),
           random_hardware(random, on.placement, fair),
           {},
           {},
           {}};
    if (!t.notes.l2.empty() && on.placement.servers * on.placement.cards > 1) continue;  // L2 is a card's
    t.shape.count = random() % 3000;
    t.shape.element_size = 4;
    t.cut = {1 + static_cast<int>(random() % 2), 1 + static_cast<int>(random() % 3)};
    return t;
  }
}

virtual_outcome perform(const task& t, virtual_recording* record = nullptr) {
  virtual_options o;
  o.protocol = t.on.protocols[0];
  o.record = record;
  return perform_virtually(t.notes, t.shape, t.cut, t.on, o);
}

}  // namespace

TEST_CASE("virtual runs: the same twice, recorded or not") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 120; ++round) {
    const task t = random_task(random, round % 2 == 0);
    CAPTURE(t.title);
    const virtual_outcome a = perform(t), b = perform(t);
    virtual_recording record;
    const virtual_outcome c = perform(t, &record);
    CHECK(a.trace == b.trace);
    CHECK(a.trace == c.trace);
    CHECK(a.end_ps == c.end_ps);
    CHECK(a.finished == b.finished);
    CHECK(a.events == b.events);
    CHECK(record.moves.size() == a.messages);
    CHECK(record.causes.size() == a.steps);
  }
}

namespace {

/// All elements share alike, with numbers that make roundings and, as often, none.
hardware fair_hardware(std::mt19937_64& random, const char* kind, int ranks) {
  preset_request request;
  request.ranks = ranks;
  hardware h = build_preset(kind, request);
  for (const element_class& c : std::vector<element_class>(h.classes)) {
    const auto choose = [&](const char* key, std::initializer_list<const char*> values) {
      h.set(c.name + "." + key, std::data(values)[random() % values.size()]);
    };
    h.set(c.name + ".discipline", "fair");
    choose("latency", {"0", "100ns", "1us", "7ps"});
    choose("bandwidth", {"1GB/s", "10 GB/s", "333333333 B/s"});
    choose("overhead", {"0", "0", "50ns", "1ps"});
  }
  return h;
}

}  // namespace

TEST_CASE("fair machines: the same times whether departures are events, as in recorded runs, or are made up for") {
  std::mt19937_64 random(seed() + 7);
  int fewer = 0;
  for (int round = 0; round < 400; ++round) {
    const auto all = all_choreographies();
    const choreography& by = *all[random() % all.size()];
    const int ranks = 2 + static_cast<int>(random() % 30);
    setup on = flat_setup(by.collectives[random() % by.collectives.size()], ranks);
    on.uniform = on.what != collective::all_to_all || random() % 2 == 0;
    if (!refusal(by, on).empty()) continue;
    task t{std::string{by.name} + " " + std::string{name(on.what)} + " of " + std::to_string(ranks),
           one_cell_per_step(lower_syncs(write_score(by, on))),
           fair_hardware(random, random() % 2 == 0 ? "flat" : "fat_tree", ranks),
           {},
           {},
           {}};
    if (t.on.ranks != ranks || !t.notes.l2.empty()) continue;
    CAPTURE(t.title);
    CAPTURE(t.on.name);
    t.shape.element_size = 4;
    t.shape.count = random() % 3000;
    if (!on.uniform) {
      t.counts.resize(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks));
      for (std::size_t& c : t.counts) c = random() % 4 == 0 ? 0 : random() % 5000;
      t.shape.counts = t.counts;
    }
    t.cut = {1 + static_cast<int>(random() % 2), 1 + static_cast<int>(random() % 3)};
    virtual_recording record;
    virtual_outcome made_up, events;
    try {
      made_up = perform(t);
    } catch (const error& e) {  // no memory in common
      REQUIRE(e.code() == errc::unsupported);
      continue;
    }
    events = perform(t, &record);
    CHECK(made_up.end_ps == events.end_ps);
    CHECK(made_up.finished == events.finished);
    CHECK(made_up.messages == events.messages);
    REQUIRE(made_up.use.size() == events.use.size());
    for (std::size_t i = 0; i < events.use.size(); ++i) {
      CAPTURE(t.on.elements[i].name);
      CHECK(made_up.use[i].busy_ps == events.use[i].busy_ps);
      CHECK(made_up.use[i].bytes == events.use[i].bytes);
      CHECK(made_up.use[i].messages == events.use[i].messages);
    }
    fewer += made_up.events < events.events ? 1 : 0;
  }
  CHECK(fewer > 100);
}

TEST_CASE("no transfer beats latency and bandwidth, no element carries more than it can, what is sent is received") {
  std::mt19937_64 random(seed() + 1);
  for (int round = 0; round < 120; ++round) {
    const bool fair = round % 2 == 0;
    const task t = random_task(random, fair);
    CAPTURE(t.title);
    virtual_recording record;
    const virtual_outcome result = perform(t, &record);
    std::uint64_t sent = 0;
    for (const virtual_move& m : record.moves) {
      sent += static_cast<std::uint64_t>(m.bytes);
      REQUIRE(m.end <= result.end_ps);
      std::vector<element_index> way;
      t.on.route(m.from, m.to, 0, way);  // the channels' ways differ in their NIC's port alone
      REQUIRE(m.end - m.begin >= t.on.time_alone(m.from, m.to, 0, static_cast<std::uint64_t>(m.bytes)).count());
    }
    CHECK(sent == result.payload_bytes);
    std::map<int, std::vector<virtual_span>> by_element;
    for (const virtual_span& s : record.spans)
      if (s.kind == span_kind::occupy) by_element[s.actor - t.on.ranks].push_back(s);
    for (auto& [element_at, spans] : by_element) {
      const element_class& c = t.on.class_of(element_at);
      std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;  // tokens take no time
      });
      std::int64_t needed = 0;
      std::vector<std::int64_t> units(static_cast<std::size_t>(c.discipline == service::fair ? 1 : c.units), 0);
      const std::int64_t overhead =
          c.discipline == service::max_min ? 0 : c.overhead.count();  // before the flow begins
      std::int64_t fair_end = 0, first = spans.front().begin;
      for (const virtual_span& s : spans) {
        const std::int64_t alone = overhead + t.on.occupancy(element_at, static_cast<std::uint64_t>(s.bytes)).count();
        REQUIRE(s.end - s.begin >= alone - (c.discipline == service::max_min ? 1 : 0));  // a rate is a double
        if (c.discipline == service::fifo) {
          REQUIRE(s.end - s.begin == alone);
          const auto unit = std::min_element(units.begin(), units.end());
          REQUIRE(s.begin >= *unit);  // at most `units` at once
          *unit = s.end;
        } else {
          needed += alone;
          fair_end = std::max(fair_end, s.end);
        }
      }
      if (c.discipline != service::fifo)
        CHECK(fair_end - first >=
              needed / static_cast<std::int64_t>(units.size()) - static_cast<std::int64_t>(spans.size()));
    }
  }
}

TEST_CASE("causes lead from the last completion back to the begin without a gap") {
  std::mt19937_64 random(seed() + 2);
  for (int round = 0; round < 60; ++round) {
    const task t = random_task(random, false);
    if (t.on.ranks == 1) continue;
    CAPTURE(t.title);
    virtual_recording record;
    const virtual_outcome result = perform(t, &record);
    REQUIRE(record.last >= 0);
    CHECK(record.causes[static_cast<std::size_t>(record.last)].end == result.end_ps);
    std::int64_t later = result.end_ps;
    std::size_t length = 0;
    for (std::int32_t at = record.last; at >= 0; at = record.causes[static_cast<std::size_t>(at)].previous) {
      const virtual_cause& c = record.causes[static_cast<std::size_t>(at)];
      REQUIRE(c.begin <= c.end);
      REQUIRE(c.end <= later);
      later = c.begin;
      REQUIRE(++length <= record.causes.size());
    }
    CHECK(later == 0);  // everybody starts at 0, so the first cause on the path begins there
  }
}

TEST_CASE("time is monotone in latency, bandwidth and size where every rank waits for one thing at a time") {
  // A theorem for scores whose lanes never contend for an element in an order that times decide: all ways disjoint, as here.
  // With contention it is not: a faster element can bring two messages into an unlucky order (Graham's anomalies, 1969).
  std::mt19937_64 random(seed() + 3);
  for (const auto& task :
       {std::pair{"ring", collective::all_reduce}, std::pair{"recursive_doubling", collective::all_reduce},
        std::pair{"ring", collective::broadcast}}) {
    const int p = 2 << random() % 4;
    const score notes = lower_syncs(write_score(*find_choreography(task.first), flat_setup(task.second, p)));
    const auto time = [&](std::int64_t alpha_ns, std::uint64_t rate, std::size_t count) {
      auto on = flat_hardware(p);
      on.set("link.latency", std::to_string(alpha_ns) + "ns");
      on.set("link.bandwidth", std::to_string(rate) + " B/s");
      call_shape shape;
      shape.count = count;
      shape.element_size = 4;
      virtual_options o;
      o.protocol = on.protocols[0];
      return perform_virtually(notes, shape, {}, on, o).end_ps;
    };
    for (int round = 0; round < 20; ++round) {
      const auto a = static_cast<std::int64_t>(random() % 5000);
      const std::uint64_t rate = 1'000'000 + random() % 10'000'000'000u;
      const std::size_t n = random() % 100'000;
      CAPTURE(task.first);
      const std::int64_t base = time(a, rate, n);
      CHECK(time(a + 1 + static_cast<std::int64_t>(random() % 1000), rate, n) >= base);
      CHECK(time(a, rate * 2, n) <= base);
      // By whole parts: a part's size is rounded, and need not grow with the count.
      CHECK(time(a, rate, n + 64 * 1024 * static_cast<std::size_t>(p)) >= base);
    }
  }
}

TEST_CASE(
    "real payloads: every choreography gives the right result in virtual time, on any machine and however it is cut") {
  std::mt19937_64 random(seed() + 4);
  int performed = 0;
  for (const choreography* by : all_choreographies())
    for (const collective what : by->collectives)
      for (const char* placed : {"5", "8", "2x4", "2x2x2", "1x1x4"})
        for (const bool in_place : {false, true}) {
          if (what == collective::barrier) continue;
          const bool has_form = what == collective::all_reduce || what == collective::all_gather ||
                                what == collective::reduce_scatter || what == collective::all_to_all ||
                                what == collective::scan || what == collective::exscan;
          if (in_place && !has_form) continue;
          study_scenario s;
          s.kind.what = what;
          s.choreography = by->name;
          s.in_place = in_place;
          s.sizes = {4 * (random() % 5000)};
          s.type = datatype::i32;
          s.carry = payload::real;
          s.channels = 1 + static_cast<int>(random() % 2);
          s.slices = 1 + static_cast<int>(random() % 3);
          s.credits = 2 + static_cast<int>(random() % 4);
          s.any_order = random() % 2 == 0;
          s.preset_name = "machine";
          s.request.layout = placed;
          s.root = has_root(what) ? static_cast<rank_t>(random() % 4) : 0;
          s.overrides = {
              {"nic.units", "2"}, {"host.reduce_rate", "5 GB/s"}, {"host.step", random() % 2 ? "10ns" : "0"}};
          CAPTURE(by->name);
          CAPTURE(name(what));
          try {
            const study_result r = run_study(s);
            CHECK(r.rows[0].wrong == 0);
            CHECK(r.rows[0].time_us + 1e-6 >= r.rows[0].bound_us());
            ++performed;
          } catch (const error& refused) {
            CAPTURE(refused.what());
            CHECK(refused.code_value() == errc::unsupported);
          }
        }
  CHECK(performed > 200);
}
