// SPDX-License-Identifier: Apache-2.0
// Flows on real threads and bytes.

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <vector>

#include "engine/api/troupe.hpp"
#include "engine/flow/flow.hpp"

using namespace troupe;

TEST_CASE("tiles go from a source through an operator, an all_gather and an operator to a sink") {
  constexpr int ranks = 2, tiles = 8;
  engine e;
  e.run(ranks, [&](communicator& c) {
    const auto value = [](int rank, int index, std::size_t i) {
      return static_cast<float>(rank * 1000 + index * 10) + static_cast<float>(i);
    };
    std::vector<int> seen;
    bool right = true;
    flow f{e, "thread"};
    const auto rows = f.source<float>("rows", {2, 3}, tiles, [&](tile<float> out) {
      for (std::size_t i = 0; i < 6; ++i) out.flat()[i] = value(c.rank(), out.index, i);
    });
    const auto twice = f.map("twice", rows, [](tile<const float> in, tile<float> out) {
      for (std::size_t i = 0; i < 6; ++i) out.flat()[i] = 2 * in.flat()[i];
    });
    const auto whole = f.all_gather("gather", twice, c);
    const auto negative = f.map("negative", whole, [](tile<const float> in, tile<float> out) {
      for (std::size_t i = 0; i < 6; ++i) out.flat()[i] = -in.flat()[i];
    });
    f.sink("store", negative, [&](tile<const float> in) {
      seen.push_back(in.index);
      for (std::size_t i = 0; i < 6; ++i)
        right = right && in.flat()[i] == -2 * value(in.index % ranks, in.index / ranks, i);
    });
    for (int run = 0; run < 3; ++run) {
      seen.clear();
      f.start();
      f.wait();
      CHECK(right);
      REQUIRE(seen.size() == tiles * ranks);
      for (int i = 0; i < tiles * ranks; ++i) CHECK(seen[static_cast<std::size_t>(i)] == i);
    }
  });
}
