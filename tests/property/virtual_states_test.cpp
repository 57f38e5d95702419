// SPDX-License-Identifier: Apache-2.0
// A study runs the states of a real run; large ones the player, which is an optimisation of them. Both cause the same events in the same
// order, and so take the same times to the picosecond.
#include "actors/virtual/virtual_run.hpp"
#include "engine/tools/study/study.hpp"
#include "engine/tools/study/this_machine.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/score/score_builder.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

using namespace troupe;

namespace {

struct run {
  score notes;
  hardware on;
  std::vector<std::size_t> counts;
  call_shape shape;
  cutting cut;
  virtual_options options;
};

virtual_outcome perform(const run& r, performed_by by, virtual_recording* record = nullptr) {
  virtual_options o = r.options;
  o.by = by;
  o.record = record;
  call_shape shape = r.shape;
  shape.counts = r.counts;
  return perform_virtually(r.notes, shape, r.cut, r.on, o);
}

void check_equal(const virtual_outcome& a, const virtual_outcome& b) {
  CHECK(a.by_states);
  CHECK_FALSE(b.by_states);
  CHECK(a.end_ps == b.end_ps);
  CHECK(a.finished == b.finished);
  CHECK(a.steps == b.steps);
  CHECK(a.messages == b.messages);
  CHECK(a.payload_bytes == b.payload_bytes);
  CHECK(a.waited_chunk_ps == b.waited_chunk_ps);
  CHECK(a.waited_credit_ps == b.waited_credit_ps);
  CHECK(a.events == b.events);
  CHECK(a.trace == b.trace);
  REQUIRE(a.use.size() == b.use.size());
  for (std::size_t e = 0; e < a.use.size(); ++e) {
    CHECK(a.use[e].busy_ps == b.use[e].busy_ps);
    CHECK(a.use[e].bytes == b.use[e].bytes);
    CHECK(a.use[e].messages == b.use[e].messages);
    CHECK(a.use[e].queued_ps == b.use[e].queued_ps);
  }
}

void check_equal(const virtual_recording& a, const virtual_recording& b) {
  CHECK(a.last == b.last);
  CHECK(a.spans.size() == b.spans.size());
  REQUIRE(a.moves.size() == b.moves.size());
  for (std::size_t i = 0; i < a.moves.size(); ++i) {
    CHECK(a.moves[i].begin == b.moves[i].begin);
    CHECK(a.moves[i].end == b.moves[i].end);
    CHECK(a.moves[i].block == b.moves[i].block);
    CHECK(a.moves[i].reduces == b.moves[i].reduces);
  }
  REQUIRE(a.causes.size() == b.causes.size());
  for (std::size_t i = 0; i < a.causes.size(); ++i) {
    CHECK(a.causes[i].why == b.causes[i].why);
    CHECK(a.causes[i].rank == b.causes[i].rank);
    CHECK(a.causes[i].step == b.causes[i].step);
    CHECK(a.causes[i].begin == b.causes[i].begin);
    CHECK(a.causes[i].end == b.causes[i].end);
    CHECK(a.causes[i].previous == b.causes[i].previous);
  }
}

std::string first_line(const error& e) {
  const std::string text = e.what();
  return text.substr(0, text.find('\n'));
}

/// False: neither can, and both say so (memory that ranks of this machine do not share; a score that is stuck with so few credits, where
/// states name also the credits that a performed part still waits for).
bool compare(const run& r, virtual_recording* with_states = nullptr, virtual_recording* with_player = nullptr) {
  std::optional<virtual_outcome> states, player;
  std::string states_fail, player_fail;
  try {
    states = perform(r, performed_by::states, with_states);
  } catch (const error& e) {
    states_fail = first_line(e);
  }
  try {
    player = perform(r, performed_by::player, with_player);
  } catch (const error& e) {
    player_fail = first_line(e);
  }
  CHECK(states_fail == player_fail);
  if (!states || !player) return false;
  check_equal(*states, *player);
  return true;
}

/// Blocks of different sizes, some of them empty.
std::vector<std::size_t> random_counts(collective what, int ranks, std::mt19937_64& random) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> counts(traits_of(what).v == v_counts::every_pair ? n * n : n);
  for (std::size_t& c : counts) c = random() % 4 == 0 ? 0 : random() % 5000;
  return counts;
}

/// Cut, credits, lateness and size at random.
void vary(run& r, std::mt19937_64& random) {
  if (!r.notes.uniform) r.notes = one_cell_per_step(r.notes);
  r.shape.element_size = 4;
  r.shape.count = random() % 3 == 0 ? random() % 8 : random() % 20'000;
  r.options.protocol = r.on.protocols[random() % r.on.protocols.size()];
  if (random() % 2 == 0) r.options.protocol.slots = 1 + static_cast<int>(random() % 4);
  r.options.any_order = random() % 4 == 0;
  if (random() % 2 == 0) {
    r.cut = {1 + static_cast<int>(random() % 2), 1 + static_cast<int>(random() % 4)};
    r.notes = one_cell_per_step(r.notes);
  }
  if (r.options.protocol.slots == 1) r.notes = pace_sends(r.notes, 1);
  if (random() % 3 == 0)
    for (int rank = 0; rank < r.notes.ranks; ++rank)
      r.options.skew.push_back(static_cast<std::int64_t>(random() % 3'000'000));
  if (random() % 5 == 0) {
    r.options.compute = 1'000'000;
    r.options.compute_blocks = 2;
    r.options.overlap = random() % 2 == 0;
  }
}

/// The choreography's score for this machine, or nothing if it cannot.
std::optional<score> score_on(const hardware& on, const choreography& by, collective what, std::mt19937_64& random,
                              bool in_place, bool uniform) {
  setup at;
  at.what = what;
  at.ranks = on.ranks;
  at.root = has_root(what) ? static_cast<rank_t>(random() % static_cast<unsigned>(on.ranks)) : 0;
  at.in_place = in_place;
  at.uniform = uniform;
  at.placement = on.arrangement.size() == on.ranks ? on.arrangement : layout::flat(on.ranks);
  if (!refusal(by, at).empty()) return {};
  score s = write_score(by, at);
  return on.host.sync.count() >= 0 ? std::move(s) : lower_syncs(std::move(s));
}

struct machine_case {
  std::string preset;
  preset_request request;
};

/// Every preset at its own size, and the smaller ones at others.
std::vector<machine_case> machines() {
  std::vector<machine_case> all;
  for (const preset& p : study_presets()) {
    machine_case own{std::string{p.name}, {}};
    if (p.name == this_machine_preset) own.request.structure = {{"tuning", "none"}, {"cores", "2"}};
    if (p.name == this_machine_preset || p.name == "fat_tree") own.request.ranks = 8;
    all.push_back(own);
  }
  for (const int ranks : {1, 2, 3, 5, 7, 12}) all.push_back({"flat", {ranks, "", {}}});
  for (const char* layout : {"2x4", "2x2x2", "4+3", "1x1x4", "3x2"}) all.push_back({"machine", {0, layout, {}}});
  for (const char* layout : {"2x4:both", "3x2:both", "1x5:inside", "5x1:between", "2x8:inside"})
    all.push_back({"dgx_h100", {0, layout, {}}});
  return all;
}

}  // namespace

TEST_CASE("virtual states and player cause the same events: every choreography on every preset") {
  std::mt19937_64 random(seed());
  int performed = 0, with_memory = 0;
  for (const machine_case& m : machines()) {
    const hardware on = build_study_machine(m.preset, m.request).on;
    if (on.ranks > 64) continue;
    for (const choreography* by : all_choreographies())
      for (const collective what : by->collectives)
        for (const bool uniform : {true, false}) {
          if (!uniform && traits_of(what).v == v_counts::none) continue;
          auto notes = score_on(on, *by, what, random, random() % 4 == 0, uniform);
          if (!notes) continue;
          run r{std::move(*notes), on, {}, {}, {}, {}};
          vary(r, random);
          const bool all_fifo = std::all_of(on.classes.begin(), on.classes.end(),
                                            [](const element_class& c) { return c.discipline == service::fifo; });
          if (all_fifo && !on.nics && random() % 4 == 0) r.on.routing = path_choice::adaptive;
          if (!uniform) r.counts = random_counts(what, on.ranks, random);
          CAPTURE(m.preset);
          CAPTURE(on.ranks);
          CAPTURE(by->name);
          CAPTURE(name(what));
          if (!compare(r)) continue;
          ++performed;
          with_memory += r.notes.l2.empty() ? 0 : 1;
        }
  }
  CHECK(performed > 400);
  CHECK(with_memory > 0);
}

TEST_CASE("virtual states and player cause the same events: recorded") {
  std::mt19937_64 random(seed() + 1);
  int performed = 0;
  for (const choreography* by : all_choreographies())
    for (const collective what : by->collectives)
      for (const char* layout : {"2x4", "1x1x4"}) {
        const hardware on = build_study_machine("machine", {0, layout, {}}).on;
        auto notes = score_on(on, *by, what, random, false, true);
        if (!notes) continue;
        run r{std::move(*notes), on, {}, {}, {}, {}};
        vary(r, random);
        CAPTURE(by->name);
        CAPTURE(name(what));
        virtual_recording with_states, with_player;
        if (!compare(r, &with_states, &with_player)) continue;
        check_equal(with_states, with_player);
        ++performed;
      }
  CHECK(performed > 30);
}

TEST_CASE("virtual states and player: rings, trees and doublings of many ranks") {
  std::mt19937_64 random(seed() + 2);
  int performed = 0;
  for (const char* by : {"ring", "double_binary_tree", "recursive_doubling", "halving_doubling", "binomial", "bruck"})
    for (const int ranks : {31, 64, 129, 200}) {
      const choreography& c = *find_choreography(by);
      const hardware on = flat_hardware(ranks);
      auto notes = score_on(on, c, c.collectives[random() % c.collectives.size()], random, false, true);
      if (!notes) continue;
      run r{std::move(*notes), on, {}, {}, {}, {}};
      vary(r, random);
      CAPTURE(by);
      CAPTURE(ranks);
      if (compare(r)) ++performed;
    }
  CHECK(performed > 12);
}

TEST_CASE("virtual states and player: the same verdict on a score whose lanes wait for each other") {
  const hardware two = flat_hardware(2);
  score s;
  s.choreography = "stuck";
  s.what = collective::barrier;
  s.ranks = 2;
  s.players.resize(2);
  step waits;
  waits.kind = step_kind::recv;
  waits.from = 1;
  s.players[0].lanes = {{waits}};
  std::string said[2];
  for (const performed_by by : {performed_by::states, performed_by::player}) {
    virtual_options o;
    o.protocol = two.protocols[0];
    o.by = by;
    try {
      perform_virtually(s, {}, {}, two, o);
      FAIL("it ended");
    } catch (const error& e) {
      CHECK(e.code_value() == errc::message_lost);
      said[by == performed_by::player ? 1 : 0] = e.what();
    }
  }
  CHECK(said[0] == said[1]);
}

TEST_CASE("virtual states: a chunk of another size, and a reduction that throws, end the run with the reason") {
  using namespace notation;
  const hardware two = flat_hardware(2);
  score_builder b{flat_setup(collective::all_reduce, 2), "unequal", 2};
  b.lane(0).to(1).send(input[0]);
  b.lane(1).from(0).recv(output[1]);
  const score unequal = b.finish();
  call_shape shape;
  shape.count = 3;  // parts of one element and of two
  shape.element_size = 4;
  for (const performed_by by : {performed_by::states, performed_by::player}) {
    virtual_options o;
    o.protocol = two.protocols[0];
    o.by = by;
    CHECK_THROWS_WITH_AS(perform_virtually(unequal, shape, {}, two, o),
                         doctest::Contains("rank 1 gets a chunk of another size"), error);
  }
  const score sums = write_score(*find_choreography("recursive_doubling"), flat_setup(collective::all_reduce, 2));
  std::vector<std::vector<float>> rooms(2, std::vector<float>(6));
  std::vector<memory_map> maps(2);
  for (std::size_t r = 0; r < 2; ++r) {
    maps[r].input = reinterpret_cast<std::byte*>(rooms[r].data());
    maps[r].output = reinterpret_cast<std::byte*>(rooms[r].data() + 3);
  }
  virtual_options o;
  o.protocol = two.protocols[0];
  o.carry = payload::real;
  o.memory = maps;
  o.reduction = user_op([](const void*, const void*, void*, std::size_t, datatype, void*) { throw 1; });
  CHECK_THROWS_WITH_AS(perform_virtually(sums, shape, {}, two, o), doctest::Contains("performing it threw"), error);
  o.by = performed_by::player;
  CHECK_THROWS_WITH_AS(perform_virtually(sums, shape, {}, two, o), doctest::Contains("only the ranks' states"), error);
}

TEST_CASE("virtual states: real payloads: averages are divided, pre-multiplied sums multiplied") {
  for (const op_kind kind : {op_kind::avg, op_kind::pre_mul_sum})
    for (const bool in_place : {false, true}) {
      CAPTURE(name(kind));
      study_scenario s;
      s.choreography = "ring";
      s.reduction.kind = kind;
      s.reduction.scale = 3;
      s.in_place = in_place;
      s.sizes = {4096};
      s.carry = payload::real;
      s.request.ranks = 4;
      const study_row row = run_study(s).rows[0];
      CHECK(row.wrong == 0);
      CHECK(row.outcome.by_states);
    }
}

TEST_CASE(
    "virtual: fair elements take the same times whether each departure is an event, as in recorded runs, or not") {
  std::mt19937_64 random(seed() + 3);
  int performed = 0, fewer = 0;
  for (const machine_case& m : machines()) {
    hardware on = build_study_machine(m.preset, m.request).on;
    if (on.ranks > 32 || on.nics || !on.switches.empty()) continue;
    const bool all = random() % 4 != 0;  // some elements with queues: then all departures are events
    for (const element_class& c : on.classes) {
      if (all) on.set(c.name + ".passing", "cut_through");
      if (all || (random() % 4 != 0 && c.passing == forwarding::cut_through)) on.set(c.name + ".discipline", "fair");
    }
    if (random() % 3 == 0) on.slow_down(on.elements[random() % on.elements.size()].name, 2.5);
    for (const choreography* by : all_choreographies())
      for (const collective what : by->collectives) {
        auto notes = score_on(on, *by, what, random, false, true);
        if (!notes) continue;
        run r{std::move(*notes), on, {}, {}, {}, {}};
        vary(r, random);
        CAPTURE(m.preset);
        CAPTURE(on.ranks);
        CAPTURE(by->name);
        CAPTURE(name(what));
        virtual_recording record;
        std::optional<virtual_outcome> a, b;
        try {
          a = perform(r, performed_by::player);
          b = perform(r, performed_by::player, &record);
        } catch (const error&) {
          continue;  // memory that ranks of this machine do not share, too few credits, a passing that does not go with fair
        }
        CHECK(a->end_ps == b->end_ps);
        CHECK(a->finished == b->finished);
        REQUIRE(a->use.size() == b->use.size());
        for (std::size_t e = 0; e < a->use.size(); ++e) {
          CHECK(a->use[e].busy_ps == b->use[e].busy_ps);
          CHECK(a->use[e].bytes == b->use[e].bytes);
          CHECK(a->use[e].messages == b->use[e].messages);
          CHECK(a->use[e].queued_ps == b->use[e].queued_ps);
        }
        CHECK(a->events <= b->events);
        fewer += a->events < b->events ? 1 : 0;
        ++performed;
      }
  }
  CHECK(performed > 200);
  CHECK(fewer > 100);
}
