// SPDX-License-Identifier: Apache-2.0
// Partitioned operations with real threads and bytes.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/api/troupe.hpp"

using namespace troupe;

namespace {

std::vector<int> shuffled(int count, unsigned seed) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937{seed});
  return order;
}

/// [begin, end) of part p of `count` elements.
std::pair<std::size_t, std::size_t> part_of(std::size_t count, int parts, int p) {
  const auto k = static_cast<std::size_t>(parts), at = static_cast<std::size_t>(p);
  return {at * count / k, (at + 1) * count / k};
}

}  // namespace

TEST_CASE("an all_gather's parts travel as they get ready, in any order, and arrive whole") {
  constexpr int ranks = 3, parts = 8;
  for (const std::size_t count : {std::size_t{5}, std::size_t{1000}, std::size_t{100'003}}) {
    CAPTURE(count);
    engine e;
    e.run(ranks, [&](communicator& c) {
      const auto me = static_cast<std::size_t>(c.rank());
      std::vector<std::int32_t> in(count), out(count * ranks);
      partitioned gather = c.all_gather_init(in, out, partitions(parts));
      CHECK(gather.input_parts() == parts);
      CHECK(gather.output_parts() == parts * ranks);
      for (unsigned round = 0; round < 3; ++round) {
        std::fill(in.begin(), in.end(), -1);
        std::fill(out.begin(), out.end(), -2);
        gather.start();
        const auto value = [&](std::size_t r, std::size_t i) {
          return static_cast<std::int32_t>(r * 1'000'000 + i + round);
        };
        for (const int p : shuffled(parts, round * 10 + static_cast<unsigned>(me))) {
          const auto [begin, end] = part_of(count, parts, p);
          for (std::size_t i = begin; i < end; ++i) in[i] = value(me, i);
          gather.ready(p);
        }
        std::set<int> seen;
        while (const auto part = gather.next_arrived()) {
          CHECK(gather.arrived(*part));
          CHECK(seen.insert(*part).second);
          const auto r = static_cast<std::size_t>(*part / parts);
          const auto [begin, end] = part_of(count, parts, *part % parts);
          bool right = true;
          for (std::size_t i = begin; i < end; ++i) right = right && out[r * count + i] == value(r, i);
          CHECK(right);
        }
        CHECK(seen.size() == parts * ranks);
        gather.wait();
      }
    });
  }
}

TEST_CASE("a part arrives while others are not ready anywhere") {
  engine e;
  e.run(3, [](communicator& c) {
    std::vector<float> in(64, 1.0F), out(64);
    partitioned all = c.all_reduce_init(in, out, sum, partitions(4));
    all.start();
    all.ready(2);
    const auto first = all.next_arrived();
    REQUIRE(first == 2);
    CHECK(std::all_of(out.begin() + 32, out.begin() + 48, [](float x) { return x == 3.0F; }));
    CHECK_FALSE(all.arrived(0));
    CHECK_FALSE(all.done());
    for (const int p : {0, 1, 3}) all.ready(p);
    all.wait();
    CHECK(std::all_of(out.begin(), out.end(), [](float x) { return x == 3.0F; }));
    while (all.next_arrived()) {}
  });
}
