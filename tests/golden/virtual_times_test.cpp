// SPDX-License-Identifier: Apache-2.0
// Exact virtual times: closed forms of the literature, equal to the picosecond.
#include "actors/virtual/virtual_run.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/score/score_builder.hpp"

#include <doctest/doctest.h>

#include <bit>

namespace virtual_times_test {

using namespace troupe;

namespace {

constexpr std::int64_t alpha = 1'000'000;  // flat: 1 µs
constexpr std::int64_t ps_a_byte = 100;    // flat: 10 GB/s
constexpr std::size_t element_bytes = 4;

virtual_outcome perform(const score& s, std::size_t count, const hardware& on, const cutting& cut = {},
                        int credits = 8) {
  virtual_options o;
  o.protocol = *on.protocol("simple");
  o.protocol.slots = credits;
  call_shape shape;
  shape.count = count;
  shape.element_size = element_bytes;
  return perform_virtually(s, shape, cut, on, o);
}

std::int64_t time_of(const char* choreography, collective what, int ranks, std::size_t count, const cutting& cut = {},
                     int credits = 8) {
  score s = lower_syncs(write_score(*find_choreography(choreography), flat_setup(what, ranks)));
  if (cut != cutting{}) s = one_cell_per_step(s);
  return perform(s, count, flat_hardware(ranks), cut, credits).end_ps;
}

/// α + n·β of n elements.
std::int64_t message(std::size_t count) { return alpha + static_cast<std::int64_t>(count * element_bytes) * ps_a_byte; }

/// Rank 1 … n−1 send one message each to rank 0 at once.
score incast(int ranks) {
  using namespace notation;
  score_builder s{flat_setup(collective::gather, ranks), "incast", 1};
  for (rank_t r = 1; r < ranks; ++r) {
    s.lane(r).to(0).send(input[0]);
    s.lane(0).from(r).recv(output.block(r));
  }
  s.lane(0).copy_own(input[0], output.block(0));
  return s.finish();
}

}  // namespace

TEST_CASE("ring all_reduce: 2(p−1)(α + n/p·β)") {
  for (const int p : {2, 3, 4, 7, 16, 33, 64})
    for (const std::size_t part : {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{64 * 1024}}) {
      CAPTURE(p);
      CAPTURE(part);
      CHECK(time_of("ring", collective::all_reduce, p, part * static_cast<std::size_t>(p)) ==
            2 * (p - 1) * message(part));
    }
}

TEST_CASE("ring all_gather and reduce_scatter: (p−1)(α + block·β)") {
  for (const int p : {2, 3, 8, 20}) {
    CHECK(time_of("ring", collective::all_gather, p, 5000) == (p - 1) * message(5000));
    CHECK(time_of("ring", collective::reduce_scatter, p, 5000) == (p - 1) * message(5000));
  }
}

TEST_CASE("recursive doubling: log2 p · (α + n·β); halving and doubling: 2·log2 p·α + 2(1 − 1/p)·n·β") {
  for (const int p : {2, 4, 8, 32, 64}) {
    const auto rounds = static_cast<std::int64_t>(std::bit_width(static_cast<unsigned>(p)) - 1);
    const std::size_t part = 1000, n = part * static_cast<std::size_t>(p);
    CAPTURE(p);
    CHECK(time_of("recursive_doubling", collective::all_reduce, p, n) == rounds * message(n));
    const std::int64_t moved = 2 * (p - 1) * static_cast<std::int64_t>(part * element_bytes) * ps_a_byte;
    CHECK(time_of("halving_doubling", collective::all_reduce, p, n) == 2 * rounds * alpha + moved);
  }
}

TEST_CASE("binomial tree: ⌈log2 p⌉ · (α + n·β) for broadcast") {
  for (const int p : {2, 4, 8, 16, 64}) {
    const auto rounds = static_cast<std::int64_t>(std::bit_width(static_cast<unsigned>(p)) - 1);
    CHECK(time_of("binomial", collective::broadcast, p, 12345) == rounds * message(12345));
    CHECK(time_of("binomial", collective::reduce, p, 12345) == rounds * message(12345));
  }
}

TEST_CASE("pairwise all_to_all: (p−1)(α + block·β)") {
  for (const int p : {2, 3, 5, 8, 16})
    CHECK(time_of("pairwise", collective::all_to_all, p, 777) == (p - 1) * message(777));
}

TEST_CASE("a chain of slices is a pipeline: (p−1)(α + m·β) + (s−1)·m·β") {
  for (const int p : {2, 3, 9})
    for (const int slices : {1, 2, 5, 16}) {
      const std::size_t m = 500;
      const std::int64_t bytes_time = static_cast<std::int64_t>(m * element_bytes) * ps_a_byte;
      CAPTURE(p);
      CAPTURE(slices);
      CHECK(time_of("ring", collective::broadcast, p, m * static_cast<std::size_t>(slices), {1, slices}, 64) ==
            (p - 1) * message(m) + (slices - 1) * bytes_time);
    }
}

TEST_CASE("credits bound what is under way: with one, every message waits for the one before it to be taken") {
  const std::size_t m = 500;
  const std::int64_t bytes_time = static_cast<std::int64_t>(m * element_bytes) * ps_a_byte;
  const score chain =
      one_cell_per_step(lower_syncs(write_score(*find_choreography("ring"), flat_setup(collective::broadcast, 2))));
  for (const int credits : {1, 2, 3, 8}) {
    CAPTURE(credits);
    constexpr int slices = 24;
    const auto on = flat_hardware(2);
    const std::int64_t end = perform(chain, m * slices, on, {1, slices}, credits).end_ps;
    // A row of `credits` messages every max(α + m·β, credits·m·β).
    const std::int64_t row = std::max(alpha + bytes_time, credits * bytes_time);
    const int rows = slices / credits;
    CHECK(end == (rows - 1) * row + alpha + credits * bytes_time);
  }
}

TEST_CASE("incast: the receiver's element serves one after the other; sharing it fairly ends at the same time") {
  for (const int p : {2, 3, 9, 32}) {
    const score s = incast(p);
    auto fifo = flat_hardware(p);
    const std::int64_t all = alpha + (p - 1) * static_cast<std::int64_t>(1000 * element_bytes) * ps_a_byte;
    CHECK(perform(s, 1000, fifo).end_ps == all);
    auto fair = flat_hardware(p);
    fair.set("link.discipline", "fair");
    CHECK(perform(s, 1000, fair).end_ps == all);
  }
}

TEST_CASE("half duplex: what goes out and what comes in take turns") {
  auto on = flat_hardware(2);
  on.set("link.directions", "half");
  const score s =
      lower_syncs(write_score(*find_choreography("recursive_doubling"), flat_setup(collective::all_reduce, 2)));
  const std::int64_t bytes_time = 10000 * static_cast<std::int64_t>(element_bytes) * ps_a_byte;
  // Both messages pass both ports. Each port first serves its own rank's, then the other's, which has been at its door since α/2.
  CHECK(perform(s, 10000, on).end_ps == alpha / 2 + 2 * bytes_time);
}

TEST_CASE("store and forward takes the bytes' time once an element, cut-through once a way") {
  auto on = flat_hardware(2);
  const score s = lower_syncs(write_score(*find_choreography("ring"), flat_setup(collective::broadcast, 2)));
  const std::int64_t bytes_time = 1000 * static_cast<std::int64_t>(element_bytes) * ps_a_byte;
  CHECK(perform(s, 1000, on).end_ps == alpha + bytes_time);
  on.set("link.passing", "store_and_forward");
  CHECK(perform(s, 1000, on).end_ps == alpha + 2 * bytes_time);
  CHECK(on.time_alone(0, 1, 0, 4000).count() == alpha + 2 * bytes_time);
}

TEST_CASE("overheads, handshakes, protocols and the host's costs are where the model says") {
  const score s = lower_syncs(write_score(*find_choreography("ring"), flat_setup(collective::broadcast, 2)));
  const std::int64_t plain = message(1000);
  const auto with = [&](std::initializer_list<std::pair<const char*, const char*>> settings) {
    auto on = flat_hardware(2);
    for (const auto& [key, value] : settings) on.set(key, value);
    return perform(s, 1000, on).end_ps;
  };
  CHECK(with({}) == plain);
  CHECK(with({{"link.overhead", "10ns"}}) == plain + 2 * 10'000);
  CHECK(with({{"link.handshake", "3us"}}) == plain + 3'000'000);
  CHECK(with({{"protocol.simple.latency", "6us"}}) == plain + 6'000'000);
  CHECK(with({{"protocol.simple.wire", "2"}}) == plain + 4000 * ps_a_byte);
  CHECK(with({{"host.launch", "25us"}}) == plain + 25'000'000);
  CHECK(with({{"host.finish", "5us"}}) == plain + 5'000'000);
  CHECK(with({{"host.send", "7us"}}) == plain + 7'000'000);
  CHECK(with({{"host.receive", "2us"}}) == plain + 2'000'000);
  CHECK(with({{"host.forward", "2us"}}) == plain);
  CHECK(with({{"host.step", "1us"}}) ==
        plain + 2'000'000);  // the send and the recv; the root's own copy is after its send
  CHECK(with({{"host.copy_rate", "4GB/s"}, {"host.receive_in_place", "false"}}) == plain + 1'000'000);
}

TEST_CASE("a message of LL128 occupies whole lines, one of LL whole words") {
  const score one = lower_syncs(write_score(*find_choreography("ring"), flat_setup(collective::broadcast, 2)));
  const auto on = flat_hardware(2);
  const auto wire = [&](const char* protocol, std::size_t elements) {
    virtual_options o;
    o.protocol = *on.protocol(protocol);
    call_shape shape;
    shape.count = elements;
    shape.element_size = element_bytes;
    return perform_virtually(one, shape, {}, on, o).use.front().bytes;
  };
  CHECK(wire("ll128", 2) == 128);
  CHECK(wire("ll128", 30) == 128);
  CHECK(wire("ll128", 31) == 256);
  CHECK(wire("ll", 3) == 24);
  CHECK(wire("simple", 3) == 12);
}

TEST_CASE("a window: the next message may enter when one has arrived") {
  const score chain =
      one_cell_per_step(lower_syncs(write_score(*find_choreography("ring"), flat_setup(collective::broadcast, 2))));
  auto on = flat_hardware(2);
  on.set("link.window", "1");
  CHECK(perform(chain, 8 * 10, on, {1, 8}).end_ps == 8 * message(10));
  on.set("link.window", "2");
  const std::int64_t bytes_time = 10 * static_cast<std::int64_t>(element_bytes) * ps_a_byte;
  CHECK(perform(chain, 8 * 10, on, {1, 8}).end_ps == 4 * message(10) + bytes_time);
}

TEST_CASE("a hardware barrier ends for all when the last one has come") {
  using namespace notation;
  score_builder b{flat_setup(collective::barrier, 3), "meet", 1};
  for (rank_t r = 0; r < 3; ++r) b.lane(r).sync();
  const score s = b.finish();
  auto on = flat_hardware(3);
  on.set("host.sync", "15us");
  virtual_options o;
  o.protocol = *on.protocol("simple");
  o.skew = {0, 40'000'000, 1000};
  const auto result = perform_virtually(s, {}, {}, on, o);
  CHECK(result.end_ps == 55'000'000);
  CHECK(result.finished == std::vector<std::int64_t>{55'000'000, 55'000'000, 55'000'000});
}

TEST_CASE("stragglers: a late rank delays whom it must, a slow link only what passes it") {
  const int p = 8;
  const score s = lower_syncs(write_score(*find_choreography("ring"), flat_setup(collective::all_reduce, p)));
  auto on = flat_hardware(p);
  virtual_options o;
  o.protocol = *on.protocol("simple");
  o.skew.assign(p, 0);
  o.skew[3] = 50'000'000;
  call_shape shape;
  shape.count = 800;
  shape.element_size = element_bytes;
  const auto late = perform_virtually(s, shape, {}, on, o);
  CHECK(late.end_ps == 50'000'000 + 2 * (p - 1) * message(100));
  on.slow_down("up 3", 4);
  o.skew.clear();
  // Every chunk but one passes the slow link twice, one after the other.
  const auto slow = perform_virtually(s, shape, {}, on, o);
  CHECK(slow.end_ps > 2 * (p - 1) * message(100));
  CHECK(slow.end_ps <= 2 * (p - 1) * (alpha + 4 * 400 * ps_a_byte));
}

TEST_CASE("computation: before the collective, or beside it on a core that both want") {
  const score s =
      lower_syncs(write_score(*find_choreography("recursive_doubling"), flat_setup(collective::all_reduce, 2)));
  auto on = flat_hardware(2);
  on.host.reduce_rate = 1'000'000'000;  // 4 µs for 4000 bytes
  virtual_options o;
  o.protocol = *on.protocol("simple");
  o.compute = 10'000'000;
  o.compute_blocks = 2;
  call_shape shape;
  shape.count = 1000;
  shape.element_size = element_bytes;
  const auto end = [&](bool overlap) {
    o.overlap = overlap;
    return perform_virtually(s, shape, {}, on, o).end_ps;
  };
  const std::int64_t alone = message(1000) + 4'000'000;
  CHECK(end(false) == 10'000'000 + alone);
  CHECK(end(true) == 10'000'000);  // 5.4 µs of collective, hidden
  const class_id core = on.add_class({.name = "core", .role = element_role::core});
  for (int r = 0; r < 2; ++r) on.place(r, {on.add(core, "core " + std::to_string(r), r), no_element});
  // The chunk comes at 1.4 µs, in the first block; its reduction waits for 5, then the second block for 9.
  CHECK(end(true) == 14'000'000);
}

TEST_CASE("shared memory: an access occupies its way, accesses contend") {
  using namespace notation;
  score_builder b{flat_setup(collective::broadcast, 3), "through_l2", 1};
  b.l2_block(0);
  b.lane(0).dma_get(input[0], b.l0_like(0, input[0]));
  b.lane(0).dma_put(l0[0], l2[0]);
  for (rank_t r = 0; r < 3; ++r) {
    b.lane(r).sync();
    const cells tile = r == 0 ? l0[0] : b.l0_like(r, output[0]);
    b.lane(r).dma_get(l2[0], tile);
    b.lane(r).dma_put(tile, output[0]);
  }
  const score s = b.finish();
  auto on = flat_hardware(3);
  on.host.sync = std::chrono::microseconds{15};
  on.host.transfer = std::chrono::microseconds{5};
  const class_id memory = on.add_class({.name = "memory",
                                        .role = element_role::ring_segment,
                                        .latency = std::chrono::nanoseconds{100},
                                        .bytes_per_second = 100'000'000'000});
  const class_id dma = on.add_class({.name = "dma", .role = element_role::dma, .bytes_per_second = 50'000'000'000});
  const element_index bus = on.add(memory, "bus");
  for (int r = 0; r < 3; ++r) on.place(r, {no_element, on.add(dma, "dma " + std::to_string(r), r)});
  on.memory_way = [bus](int, memory_place at, bool, std::vector<element_index>& way) {
    REQUIRE(at == memory_place{0, true});
    way.push_back(bus);
  };
  virtual_options o;
  o.protocol = *on.protocol("simple");
  call_shape shape;
  shape.count = 100'000;
  shape.element_size = 1;
  constexpr std::int64_t transfer = 5'000'000, over_bus = 1'000'000, by_dma = 2'000'000, latency = 100'000;
  // Rank 0 fetches and publishes; all meet; three readers take turns on the bus; each stores its own copy. A step's fixed cost runs
  // beside its bytes where they pass shared memory, behind them on the rank's own engine.
  const std::int64_t published = by_dma + transfer + std::max(transfer, over_bus + latency);
  const std::int64_t fetched = published + 15'000'000 + std::max(transfer, 3 * over_bus + latency);
  CHECK(perform_virtually(s, shape, {}, on, o).end_ps == fetched + by_dma + transfer);
}

namespace {

/// A server whose ranks have links of 1 GB/s to a switch that reduces, without any latency.
hardware switched_server(int ranks, std::uint64_t unit_rate) {
  hardware h{"switched", ranks};
  const class_id link = h.add_class({.name = "link", .bytes_per_second = 1'000'000'000});
  const class_id unit = h.add_class({.name = "unit", .bytes_per_second = unit_rate});
  for (int r = 0; r < ranks; ++r) h.add_pair(link, "up " + std::to_string(r), "down " + std::to_string(r), r);
  h.switches.push_back({0, h.add(unit, "unit")});
  h.way = [](int from, int to, int, std::vector<element_index>& way) { way = {2 * from, 2 * to + 1}; };
  h.switch_way = [](int rank, int, bool towards, std::vector<element_index>& way) {
    way = {2 * rank + (towards ? 0 : 1)};
  };
  h.protocols = plain_protocols();
  h.arrangement = layout::parse("1x" + std::to_string(ranks) + ":inside");
  return h;
}

std::int64_t switched(collective what, int ranks, std::size_t count, std::uint64_t unit_rate = 0,
                      virtual_outcome* all = nullptr) {
  const hardware on = switched_server(ranks, unit_rate);
  setup at = flat_setup(what, ranks);
  at.placement = on.arrangement;
  const virtual_outcome o = perform(write_score(*find_choreography("nvls"), at), count, on);
  if (all != nullptr) *all = o;
  return o.end_ps;
}

}  // namespace

TEST_CASE("nvls: what passes the links to a switch that reduces, and the switch itself") {
  constexpr std::int64_t us = 1'000'000;  // a share of 1 000 bytes takes a link so long
  // Every rank gives its shares one after the other, so the switch has share p after p + 1; a share more, and its head has the sum.
  for (const int n : {2, 3, 4, 8}) CHECK(switched(collective::reduce_scatter, n, 250) == (n + 1) * us);
  // Each block goes up once, all of them at once, and n − 1 of them come down to everybody.
  for (const int n : {2, 3, 4, 8}) CHECK(switched(collective::all_gather, n, 250) == n * us);
  // Four ranks: the links up carry the four shares until 4, the heads' sums of shares 0, 1, 2 until 5 and of 3, which its head has at 5,
  // until 6. Three shares come down to each rank from 5 on, at the latest until 8.
  CHECK(switched(collective::all_reduce, 4, 1000) == 8 * us);
  // A unit of the same rate adds up three operands for each share: twelve of them, the first at 1; then the last head gets its sum, …
  virtual_outcome o;
  CHECK(switched(collective::reduce_scatter, 4, 250, 1'000'000'000, &o) == (1 + 12 + 1) * us);
  CHECK(o.use.back().busy_ps == 12 * us);
  CHECK(o.use.back().bytes == 12'000);
  CHECK(switched(collective::reduce_scatter, 4, 0) == 0);
  CHECK(switched(collective::all_reduce, 1, 1000) == 0);
  // The player and the states say the same.
  const hardware on = switched_server(4, 1'000'000'000);
  setup at = flat_setup(collective::all_reduce, 4);
  at.placement = on.arrangement;
  const score s = write_score(*find_choreography("nvls"), at);
  virtual_options by;
  by.protocol = *on.protocol("simple");
  call_shape shape;
  shape.count = 1000;
  shape.element_size = element_bytes;
  by.by = performed_by::states;
  const virtual_outcome states = perform_virtually(s, shape, {}, on, by);
  by.by = performed_by::player;
  const virtual_outcome player = perform_virtually(s, shape, {}, on, by);
  CHECK(states.end_ps == player.end_ps);
  CHECK(states.trace == player.trace);
  hardware none = on;
  none.switches.clear();
  CHECK_THROWS_WITH_AS(perform_virtually(s, shape, {}, none, by),
                       doctest::Contains("lets the switch of server 0 reduce"), error);
}

}  // namespace virtual_times_test
