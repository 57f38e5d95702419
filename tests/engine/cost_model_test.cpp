// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/cost_model.hpp"

#include <cmath>
#include <doctest/doctest.h>

#include "engine/planning/tuning.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/score/score_tally.hpp"

using namespace troupe;

namespace {

machine_constants round_machine(int cores) {
  machine_constants m;
  m.messages.fill({100, 0, 0, 0});
  m.step = 1;
  m.operand = 0.25;
  m.copy_rate = 10;  // bytes a second
  m.reduce_rate = 5;
  m.cores = cores;
  return m;
}

step sending(rank_t to, std::int32_t cells) {
  step s;
  s.kind = step_kind::send;
  s.to = to;
  if (cells > 0) s.source = {buffer_kind::input, self, 0, cells};
  return s;
}

step receiving(rank_t from, std::int32_t cells) {
  step s;
  s.kind = step_kind::recv;
  s.from = from;
  if (cells > 0) s.target = {buffer_kind::output, self, 0, cells};
  return s;
}

score two_ranks(lane first, lane second) {
  score s;
  s.what = collective::broadcast;
  s.ranks = 2;
  s.players.resize(2);
  s.players[0].lanes = {std::move(first)};
  s.players[1].lanes = {std::move(second)};
  return s;
}

double predicted(const std::string& name, collective what, int ranks, double block_bytes, cutting cut,
                 const machine_constants& m, int credits = 8) {
  const score s = one_cell_per_step(lower_syncs(write_score(*find_choreography(name), flat_setup(what, ranks))));
  return timing_sheet{s}.predict(block_bytes / s.parts, cut, credits, m);
}

}  // namespace

TEST_CASE("one message: step, latency, step and copy") {
  const timing_sheet sheet{two_ranks({sending(1, 1)}, {receiving(0, 1)})};
  CHECK(sheet.steps() == 2);
  CHECK(sheet.predict(20, {}, 8, round_machine(16)) == doctest::Approx(1 + 100 + 1 + 2));
  CHECK(sheet.predict(20, {}, 8, round_machine(16), 30) == doctest::Approx(1 + 100 + 1 + 2 + 3));
}

TEST_CASE("messages that are under way together share their latency; credits limit how many") {
  const timing_sheet sheet{
      two_ranks({sending(1, 0), sending(1, 0), sending(1, 0)}, {receiving(0, 0), receiving(0, 0), receiving(0, 0)})};
  CHECK(sheet.predict(0, {}, 8, round_machine(16)) == doctest::Approx(104));
  // With one credit every message waits for the receiver to have taken the one before: 102 each.
  CHECK(sheet.predict(0, {}, 1, round_machine(16)) == doctest::Approx(306));
}

TEST_CASE("ranks share the cores") {
  const timing_sheet sheet{two_ranks({sending(1, 1)}, {receiving(0, 1)})};
  machine_constants m = round_machine(1);
  m.messages.fill({0, 0, 0, 0});
  // 1 + 1 + copy of 2000 bytes, on one core as on two, because nothing overlaps; staging does.
  CHECK(sheet.predict(2000, {}, 8, m) == doctest::Approx(202));
  CHECK(sheet.predict(2000, {}, 8, m, 2000) == doctest::Approx(202 + 2 * 200));
  m.cores = 2;
  CHECK(sheet.predict(2000, {}, 8, m, 2000) == doctest::Approx(202 + 200));
}

namespace {
/// Four ranks on two hosts, a process each.
reach_map two_hosts() {
  layout on = layout::flat(4);
  on.homes = {{0, 0}, {0, 1}, {1, 2}, {1, 3}};
  return reach_map{on};
}

machine_constants apart(double ring, double socket, double sending) {
  machine_constants m = round_machine(16);
  m.messages = {message_costs{1, 0, 0, 0}, message_costs{ring, 0, 0, 0}, message_costs{socket, sending, 0, 0}};
  m.message_share = 0;
  return m;
}

score four_ranks(lane first) {
  score s = two_ranks(std::move(first), {receiving(0, 0)});
  s.ranks = 4;
  s.players.resize(4);
  return s;
}
}  // namespace

TEST_CASE("a message costs what it goes through") {
  const reach_map where = two_hosts();
  score s = four_ranks({sending(1, 0)});
  CHECK(timing_sheet{s, &where}.predict(0, {}, 8, apart(10, 100, 0)) == doctest::Approx(1 + 10 + 1));
  CHECK(timing_sheet{s}.predict(0, {}, 8, apart(10, 100, 0)) == doctest::Approx(1 + 1 + 1));
  s.players[0].lanes = {{sending(3, 0)}};
  s.players[1].lanes = {};
  s.players[3].lanes = {{receiving(0, 0)}};
  CHECK(timing_sheet{s, &where}.predict(0, {}, 8, apart(10, 100, 0)) == doctest::Approx(1 + 100 + 1));
}

TEST_CASE("a message between groups of hosts costs what is between those") {
  layout on = layout::placed_in_groups({{0, 0, 0, 0}, {0, 1, 0, 0}, {1, 0, 0, 0}, {1, 1, 0, 0}});
  on.homes = {{0, 0}, {1, 1}, {2, 2}, {3, 3}};
  const reach_map where{on};
  machine_constants m = apart(10, 100, 0);
  m.messages[reach_count] = {1000, 0, 0, 0};
  score s = four_ranks({sending(1, 0)});
  CHECK(timing_sheet{s, &where}.predict(0, {}, 8, m) == doctest::Approx(1 + 100 + 1));
  s.players[0].lanes = {{sending(3, 0)}};
  s.players[1].lanes = {};
  s.players[3].lanes = {{receiving(0, 0)}};
  CHECK(timing_sheet{s, &where}.predict(0, {}, 8, m) == doctest::Approx(1 + 1000 + 1));
}

TEST_CASE("a rank hands out one message after the other, whatever their lanes") {
  const reach_map where = two_hosts();
  score s = four_ranks({});
  s.players[1].lanes = {};
  s.players[0].lanes = {{sending(2, 0)}, {sending(3, 0)}};
  s.players[2].lanes = {{receiving(0, 0)}};
  s.players[3].lanes = {{}, {receiving(0, 0)}};
  // 40 of the 100 are the sender's.
  CHECK(timing_sheet{s, &where}.predict(0, {}, 8, apart(10, 100, 40)) == doctest::Approx(1 + 40 + 100 + 1));
  CHECK(timing_sheet{s, &where}.predict(0, {}, 8, apart(10, 100, 0)) == doctest::Approx(1 + 100 + 1));
}

namespace {
/// One message of so many bytes from rank 0 to the last one of a layout, in µs of an element's work besides what it is without elements.
double carried(const std::string& text, double bytes, machine_options with = {}) {
  const layout on = layout::parse(text);
  const machine elements{on, with};
  const reach_map where{on};
  score s;
  s.what = collective::broadcast;
  s.ranks = on.size();
  s.players.resize(static_cast<std::size_t>(on.size()));
  s.players.front().lanes = {{sending(static_cast<rank_t>(on.size() - 1), 1)}};
  s.players.back().lanes = {{receiving(0, 1)}};
  machine_constants m = round_machine(16);
  m.element = 1;
  m.copy_rate = 1e6;
  return timing_sheet{s, &where, &elements}.predict(bytes, {}, 8, m) - timing_sheet{s}.predict(bytes, {}, 8, m);
}
}  // namespace

TEST_CASE("a message pays for every element of the layout that it passes") {
  CHECK(carried("2", 0) == 0);
  CHECK(carried("1x2", 0) == doctest::Approx(3));    // DMA engine, link, DMA engine
  CHECK(carried("1x1x5", 0) == doctest::Approx(3));  // the ring's shorter way
  CHECK(carried("1x1x4", 0) == doctest::Approx(3));
  CHECK(carried("0.0.0,0.0.1,0.0.3,0.0.2", 0) == doctest::Approx(4));  // two segments
  CHECK(carried("2x1", 0) == doctest::Approx(5));                      // NICs and the switch between them
  CHECK(carried("2x1", 0, {1, false}) == doctest::Approx(4));
  // The DMA engine copies what leaves, the NIC what arrives, in packets of 64 KiB, of which the switch and that NIC are told one by one.
  CHECK(carried("1x2", 1e6) == doctest::Approx(3 + 1));
  CHECK(carried("2x1", 1 << 18) == doctest::Approx(3 + 2 * 4 + 2 * (1 << 18) / 1e6));
}

TEST_CASE("an element takes no less than all that pass it") {
  const layout on = layout::parse("2x4");
  const reach_map where{on};
  score s;
  s.what = collective::broadcast;
  s.ranks = 8;
  s.players.resize(8);
  for (std::size_t r = 0; r < 4; ++r) s.players[r].lanes = {{sending(static_cast<rank_t>(r + 4), 0)}};
  machine_constants m = round_machine(1000);
  m.messages.fill({0, 0, 0, 0});
  m.element = 1000, m.step = 0;
  // Nobody waits for the messages. The switch passes on all four; without it, each port its own, or one of them all.
  const machine joined{on, {4, true}}, wired{on, {4, false}}, by_one{on, {1, false}};
  CHECK(timing_sheet{s, &where, &joined}.predict(0, {}, 8, m) == doctest::Approx(4000));
  CHECK(timing_sheet{s, &where, &wired}.predict(0, {}, 8, m) == doctest::Approx(1000));
  CHECK(timing_sheet{s, &where, &by_one}.predict(0, {}, 8, m) == doctest::Approx(4000));
}

TEST_CASE("between hosts one small message is not cut in two") {
  // Two halves in two lanes take as long on the way as one, but their sender twice as long.
  layout apart = layout::flat(2);
  apart.homes = {{0, 0}, {1, 1}};
  const reach_map where{apart};
  const machine_constants m = tuning{}.through_actors(1, datatype::f32);
  const auto of = [&](const char* name) {
    const score s =
        one_cell_per_step(lower_syncs(write_score(*find_choreography(name), flat_setup(collective::reduce, 2))));
    return timing_sheet{s, &where}.predict(8.0 / s.parts, {}, 8, m);
  };
  CHECK(of("binomial") < of("double_binary_tree"));
}

TEST_CASE("where one thread performs all lanes of a rank, what it does in others comes on top") {
  machine_constants m = round_machine(2);
  const auto reduce = [&](const char* name) { return predicted(name, collective::reduce, 2, 10, {}, m); };
  // Its two trees are one edge each: two messages for one.
  const double apart = reduce("double_binary_tree"), whole = reduce("binomial");
  CHECK(apart < whole);
  m.one_thread = true;
  CHECK(reduce("binomial") == doctest::Approx(whole));
  // The receiver's step and half of the sum in the other lane.
  CHECK(reduce("double_binary_tree") == doctest::Approx(apart + m.step + 5 / m.reduce_rate));
  for (const int ranks : {2, 3})
    CHECK(assumed_tuning().over_slots(slot_format::ll128, ranks, 64, datatype::f32).one_thread ==
          (ranks <= assumed_tuning().machine.cores));
}

TEST_CASE("further slices take as long as the fourth") {
  const machine_constants m = round_machine(64);
  const double bytes = 4096;
  double before = predicted("ring", collective::broadcast, 4, bytes, {1, 4}, m);
  // Slices of the same size: each one more costs the same.
  const double five = predicted("ring", collective::broadcast, 4, bytes / 4 * 5, {1, 5}, m);
  const double nine = predicted("ring", collective::broadcast, 4, bytes / 4 * 9, {1, 9}, m);
  CHECK(five > before);
  CHECK(nine - five == doctest::Approx(4 * (five - before)));
  CHECK(std::isfinite(predicted("ring", collective::broadcast, 4, 1e15, {1, 1 << 30}, m)));
}

TEST_CASE("a score whose lanes wait for each other has no end") {
  CHECK(std::isinf(timing_sheet{two_ranks({receiving(1, 1)}, {receiving(0, 1)})}.predict(8, {}, 8, round_machine(2))));
  // Two messages before the answer need two credits.
  const timing_sheet sheet{two_ranks({sending(1, 0), sending(1, 0), receiving(1, 0)},
                                     {sending(0, 0), sending(0, 0), receiving(0, 0), receiving(0, 0)})};
  CHECK(std::isinf(sheet.predict(0, {}, 1, round_machine(2))));
  CHECK(std::isfinite(sheet.predict(0, {}, 2, round_machine(2))));
}

TEST_CASE("what the textbooks say") {
  machine_constants m;
  m.cores = 64;
  const double short_ring = predicted("ring", collective::all_reduce, 16, 64, {}, m);
  const double short_doubling = predicted("recursive_doubling", collective::all_reduce, 16, 64, {}, m);
  CHECK(short_doubling < short_ring);  // log n messages against 2(n − 1)
  const double long_ring = predicted("ring", collective::all_reduce, 16, 1 << 28, {}, m);
  const double long_doubling = predicted("recursive_doubling", collective::all_reduce, 16, 1 << 28, {}, m);
  CHECK(long_ring < long_doubling);  // 2 blocks moved against log n
  const double whole_chain = predicted("ring", collective::broadcast, 8, 1 << 26, {}, m);
  const double sliced_chain = predicted("ring", collective::broadcast, 8, 1 << 26, {1, 64}, m);
  CHECK(sliced_chain < whole_chain);
}

TEST_CASE("size classes") {
  for (const std::size_t same : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{80},
                                 std::size_t{96}, std::size_t{112}, std::size_t{1} << 63})
    CHECK(size_class(same) == same);
  CHECK(size_class(79) == 64);
  CHECK(size_class(127) == 112);
  CHECK(size_class(~std::size_t{0}) == std::size_t{7} << 61);
}

TEST_CASE("no score takes less than its tally says") {
  machine_constants m = round_machine(2);
  for (const int cores : {1, 2, 16})
    for (const double message : {0.1, 100.0})
      for (const double share : {0.0, 1.0}) {
        m.cores = cores;
        m.messages.fill({message, 0, share / 7, share / 9});
        m.message_share = share;
        for (const choreography* which : all_choreographies())
          for (const collective what : which->collectives)
            for (const int ranks : {2, 3, 8, 13}) {
              const setup on = flat_setup(what, ranks);
              if (!is_built_in(*which) || !refusal(*which, on).empty()) continue;
              const score_tally tally = tally_of(*which, on);
              const score written = lower_syncs(which->write(on));
              for (const double bytes : {0.0, 8.0, 4096.0}) {
                CAPTURE(which->name);
                CAPTURE(name(what));
                CAPTURE(ranks);
                CAPTURE(bytes);
                const double cell = bytes / tally.parts;
                const timing_sheet whole{written}, single{one_cell_per_step(written)};
                CHECK(least_of(tally, cell, m, 3).seconds() > 0);
                CHECK(least_of(tally, cell, m, 3).seconds() <= whole.predict(cell, {1, 1}, 8, m, 3));
                CHECK(least_of(tally, cell, m, 3).seconds() <= single.predict(cell, {1, 3}, 2, m, 3));
                CHECK(least_of(tally, cell, m, 3, 2).seconds() <= single.predict(cell, {2, 3}, 2, m, 3));
              }
            }
      }
}

TEST_CASE("the bound is near where cores are few") {
  const machine_constants m = round_machine(1);
  const setup on = flat_setup(collective::all_to_all, 16);
  const choreography& pairwise = *find_choreography("pairwise");
  const double least = least_of(tally_of(pairwise, on), 8, m).seconds();
  CHECK(least > 0.9 * timing_sheet{pairwise.write(on)}.predict(8, {1, 1}, 8, m));
}
