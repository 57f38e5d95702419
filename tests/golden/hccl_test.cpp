// SPDX-License-Identifier: Apache-2.0
// Exact virtual times of spec 2's pipeline and spec 4's all-to-alls on ascend_a2 and flat: closed forms, equal to the picosecond.
#include "actors/virtual/virtual_run.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

using namespace troupe;

namespace {

constexpr std::size_t element_bytes = 4;

struct machine_under_test {
  hardware on;
  std::int64_t alpha_a = 0, alpha_e = 0;
  element_index wire = 0, rail = 0;

  std::int64_t inside(std::size_t bytes) const { return on.occupancy(wire, bytes).count(); }
  std::int64_t between(std::size_t bytes) const { return on.occupancy(rail, bytes).count(); }
};

/// @param ratio bw_a / bw_e with bw_e = 25 GB/s
machine_under_test cluster(int servers, int cards, int ratio, bool latencies) {
  preset_request r;
  r.layout = std::to_string(servers) + "x" + std::to_string(cards);
  machine_under_test m{build_preset("ascend_a2", r)};
  m.on.set("mesh.bandwidth", std::to_string(25 * ratio) + " GB/s");
  if (!latencies) {
    m.on.set("mesh.latency", "0");
    m.on.set("rail.latency", "0");
  }
  std::vector<element_index> way;
  m.on.route(0, 1, 0, way);
  m.wire = way.at(0);
  m.alpha_a = m.on.time_alone(0, 1, 0, 0).count();
  if (servers > 1) {
    m.on.route(0, cards, 0, way);
    m.rail = way.at(0);
    m.alpha_e = m.on.time_alone(0, cards, 0, 0).count();
  }
  return m;
}

std::int64_t time_of(const char* choreography, collective what, const hardware& on, std::size_t count,
                     const setup& also = {}) {
  setup s = also;
  s.what = what;
  s.ranks = on.ranks;
  s.placement = on.arrangement;
  virtual_options o;
  o.protocol = *on.protocol("simple");
  call_shape shape;
  shape.count = count;
  shape.element_size = element_bytes;
  return perform_virtually(lower_syncs(write_score(*find_choreography(choreography), s)), shape, {}, on, o).end_ps;
}

constexpr std::int64_t alpha = 1'000'000;  ///< of flat's ports

/// Where blocks of so many bytes are copied at this rate; how long a message of one takes, and a copy.
struct staging_case {
  hardware on;
  std::int64_t message, copy;
};
staging_case staging_machine(int ranks, const char* copy_rate, std::size_t bytes) {
  hardware on = flat_hardware(ranks);
  on.set("host.copy_rate", copy_rate);
  const std::int64_t message = alpha + on.occupancy(0, bytes).count();
  const std::uint64_t rate = on.host.copy_rate;
  const std::int64_t copy = rate == 0 ? 0 : static_cast<std::int64_t>(bytes * 1'000'000'000'000 / rate);
  return {std::move(on), message, copy};
}

std::int64_t rounds_of_barrier(int size) {
  std::int64_t rounds = 0;
  for (int reach = 1; reach < size; reach *= 2) ++rounds;
  return rounds;
}

}  // namespace

TEST_CASE("spec 2: plain (n−1)(α_e + s/bw_e) + α_a + n·s/bw_a; pipelined n·s/bw_a becomes s/bw_a") {
  constexpr std::size_t count = 100'000, s = count * element_bytes;
  for (const auto& shape : {std::pair{2, 2}, {2, 16}, {3, 4}, {4, 8}, {16, 3}, {32, 2}})
    for (const int ratio : {1, 2, 5, 10})
      for (const bool latencies : {false, true}) {
        const int n = shape.first, m = shape.second;
        CAPTURE(n);
        CAPTURE(m);
        CAPTURE(ratio);
        const auto on = cluster(n, m, ratio, latencies);
        const auto bytes_of = [](int blocks) { return static_cast<std::size_t>(blocks) * s; };
        const std::int64_t common = (n - 1) * (on.alpha_e + on.between(s)) + on.alpha_a;
        for (const collective what : {collective::all_gather, collective::reduce_scatter}) {
          CHECK(time_of("hierarchical", what, on.on, count) == common + on.inside(bytes_of(n)));
          CHECK(time_of("hierarchical_pipeline", what, on.on, count) == common + on.inside(s));
        }
      }
}

TEST_CASE("spec 2: where a wire answers more slowly than a rail, the pipeline still pays each latency once a level") {
  constexpr std::size_t count = 32, s = count * element_bytes;
  for (const auto& shape : {std::pair{2, 3}, {4, 8}, {16, 4}}) {
    CAPTURE(shape.first);
    auto on = cluster(shape.first, shape.second, 1, true);
    on.on.set("mesh.latency", "5us");
    on.on.set("rail.latency", "1us");
    on.alpha_a = on.on.time_alone(0, 1, 0, 0).count();
    on.alpha_e = on.on.time_alone(0, shape.second, 0, 0).count();
    const std::int64_t once = (shape.first - 1) * (on.alpha_e + on.between(s)) + on.alpha_a + on.inside(s);
    for (const collective what : {collective::all_gather, collective::reduce_scatter})
      CHECK(time_of("hierarchical_pipeline", what, on.on, count) == once);
    // All distances between servers at once: one after the other they would take a latency each. Sixteen blocks for a card need
    // the eight credits twice.
    setup with;
    with.streams = shape.first;
    CHECK(time_of("hierarchical_pipeline", collective::all_to_all, on.on, count, with) <
          on.alpha_e + (shape.first > 8 ? 2 : 1) * on.alpha_a + 2 * shape.first * shape.second * on.between(s));
  }
}

TEST_CASE("spec 4: Staged pays a latency a block inside, one a server between, and a barrier after every step") {
  constexpr std::size_t count = 20'000, s = count * element_bytes;
  for (const auto& shape : {std::pair{2, 2}, {4, 8}, {3, 5}, {1, 4}, {5, 1}}) {
    const int n = shape.first, m = shape.second;
    CAPTURE(n);
    CAPTURE(m);
    machine_under_test on = m == 1 ? cluster(n, 2, 1, true) : cluster(n, m, 1, true);
    if (m == 1) {  // nobody beside to measure α_a with
      preset_request r;
      r.layout = std::to_string(n) + "x1";
      on.on = build_preset("ascend_a2", r);
      on.rail = 0;
    }
    const auto blocks = static_cast<std::size_t>(m) * s;
    const std::int64_t inside = (m - 1) * (n * (on.alpha_a + on.inside(s)) + rounds_of_barrier(m) * on.alpha_a);
    const std::int64_t between = (n - 1) * (on.alpha_e + on.between(blocks) + rounds_of_barrier(n) * on.alpha_e);
    CHECK(time_of("staged_pairwise", collective::all_to_all, on.on, count) == inside + between);
  }
}

TEST_CASE("spec 4: DirectFullMesh on wires: a round of C exchanges takes α + n·β") {
  constexpr std::size_t count = 50'000;
  for (const int p : {2, 5, 8, 9, 16})
    for (const int streams : {1, 2, 3, 4, 8}) {
      CAPTURE(p);
      CAPTURE(streams);
      const auto on = cluster(1, p, 1, true);
      setup with;
      with.streams = streams;
      const std::int64_t rounds = (p - 1 + streams - 1) / streams;
      const std::int64_t exchange = on.alpha_a + on.inside(count * element_bytes);
      CHECK(time_of("direct_full_mesh", collective::all_to_all, on.on, count, with) == rounds * exchange);
    }
}

TEST_CASE(
    "spec 4: DirectFullMesh by BCopy: a copy goes on while the block before it travels, as long as it is the shorter") {
  constexpr std::size_t count = 25'000, bytes = count * element_bytes;
  for (const int p : {2, 3, 8, 9})
    for (const char* rate : {"unlimited", "100 GB/s", "20 GB/s", "1 GB/s"}) {
      CAPTURE(p);
      CAPTURE(rate);
      const auto [on, message, copy] = staging_machine(p, rate, bytes);
      setup with;
      with.streams = 1;
      with.through_scratch = true;
      // An Ack before each message and a DataSignal behind it. The first copy goes on during the first Ack alone; of two halves one is read, so
      // where copies take longer than rounds a round's message begins with the end of its copy, which began with that of the one before.
      const std::int64_t round = alpha + message + alpha;
      const std::int64_t first = std::max(alpha, copy) + message + alpha;
      const std::int64_t time = time_of("direct_full_mesh", collective::all_to_all, on, count, with);
      if (copy <= round) CHECK(time == first + (p - 2) * round);
      else CHECK(time == (p - 1) * copy + message + alpha);
    }
}

TEST_CASE("spec 4: DirectFullMesh by BCopy between servers: copy in, Ack, data, Done, copy out, one after the other") {
  constexpr std::size_t count = 25'000, s = count * element_bytes;
  for (const int n : {2, 3}) {
    CAPTURE(n);
    machine_under_test on = cluster(n, 1, 1, true);
    on.on.set("host.copy_rate", "20 GB/s");
    const std::int64_t copy = static_cast<std::int64_t>(s) * 50;  // ps
    setup with;
    with.through_scratch = true;
    const std::int64_t exchange = copy + on.alpha_e + on.between(s) + 2 * on.alpha_e + copy;
    const std::int64_t time = time_of("direct_full_mesh", collective::all_to_all, on.on, count, with);
    CAPTURE(exchange);
    CHECK(time >= exchange);
    CHECK(time <=
          exchange +
              2 * (n - 2) * on.between(s));  // a stream's data and its Done wait for the other stream's on the rail
  }
}

TEST_CASE("spec 4: DirectFullMesh: the network's streams run beside those of a server") {
  constexpr std::size_t count = 50'000, s = count * element_bytes;
  for (const auto& shape : {std::pair{2, 4}, {4, 3}, {3, 8}}) {
    const int n = shape.first, m = shape.second;
    CAPTURE(n);
    CAPTURE(m);
    const machine_under_test on = cluster(n, m, 1, true);
    setup with;
    with.streams = 1;
    const std::int64_t inside = (m - 1) * (on.alpha_a + on.inside(s));
    const std::int64_t between =
        (n - 1) * m * on.between(s);  // the rail is what is short, and two streams keep it busy
    const std::int64_t time = time_of("direct_full_mesh", collective::all_to_all, on.on, count, with);
    const std::int64_t least = std::max(inside, between + on.alpha_e);
    CHECK(time >= least);
    CHECK(time <= least + on.alpha_e);  // streams that wait for another rank's port
  }
}

TEST_CASE("spec 4: Pairwise by BCopy: the Ack's way more in every step, and the copies of the first and the last") {
  constexpr std::size_t count = 25'000, bytes = count * element_bytes;
  for (const int p : {2, 3, 8})
    for (const char* rate : {"unlimited", "100 GB/s", "20 GB/s"}) {
      CAPTURE(p);
      CAPTURE(rate);
      const auto [on, message, copy] = staging_machine(p, rate, bytes);
      setup with;
      CHECK(time_of("pairwise", collective::all_to_all, on, count, with) == copy + (p - 1) * message);
      with.through_scratch = true;
      const std::int64_t steps = (p - 1) * (alpha + message);
      CHECK(time_of("pairwise", collective::all_to_all, on, count, with) ==
            copy + steps + std::max(alpha, copy));  // the last Done, or the last copy out of scratch
    }
}

TEST_CASE("spec 4: an epoch of LL-A2A takes α and all of a rank's slots") {
  for (const int p : {2, 3, 8, 33})
    for (const std::size_t slots : {std::size_t{1}, std::size_t{64}, std::size_t{2048}}) {
      CAPTURE(p);
      CAPTURE(slots);
      const hardware on = flat_hardware(p);
      virtual_options o;
      o.protocol = *on.protocol("ll");
      call_shape shape;
      shape.count = slots * 8 / element_bytes;
      shape.element_size = element_bytes;
      const score s = write_score(*find_choreography("one_shot"), flat_setup(collective::all_to_all, p));
      CHECK(perform_virtually(s, shape, {}, on, o).end_ps ==
            1'000'000 + static_cast<std::int64_t>(slots) * (p - 1) * 16 * 100);
    }
}
