// SPDX-License-Identifier: Apache-2.0
// A split of two ranks made and dropped with 68 allocations, of which the ranks' states went to the system's heap and back each time. What lasts as long
// as a part lies in one block now, which the next part gets.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/issues/heap_use.hpp"

namespace split_cost_test {

TEST_CASE("a split of two ranks takes few allocations") {
  troupe::engine e;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  constexpr std::size_t splits = 100, most = 40;
  e.run(2, [&](troupe::communicator& world) {
    // What is made once for the splits to come may be made in any of them.
    for (int round = 0; round < 4; ++round) {
      world.barrier();
      const std::size_t before = issues::allocations();
      for (std::size_t i = 0; i < splits; ++i) {
        const troupe::communicator part = world.split(0, -world.rank());
        CHECK(part.rank() == 1 - world.rank());
      }
      world.barrier();
      if (world.rank() == 0) least = std::min(least, issues::allocations() - before);
    }
  });
  CHECK(least <= most * splits);
}

TEST_CASE("parts of all sizes come and go in the memory of those before them") {
  troupe::engine e;
  constexpr int ranks = 6;
  std::vector<int> wrong(ranks);
  e.run(ranks, [&](troupe::communicator& world) {
    const int me = world.rank();
    for (int round = 0; round < 60; ++round) {
      const int color = me % (1 + round % ranks);
      auto part = world.split(color, me);
      std::vector<int> sum{me}, all(static_cast<std::size_t>(part.size()));
      if (round % 3 == 0) part.all_gather(sum, all);
      part.all_reduce(sum, troupe::sum);
      int expected = 0;
      for (int r = color; r < ranks; r += 1 + round % ranks) expected += r;
      const bool gathered = round % 3 != 0 || std::accumulate(all.begin(), all.end(), 0) == expected;
      wrong[static_cast<std::size_t>(me)] += sum.front() == expected && gathered ? 0 : 1;
    }
  });
  CHECK(std::accumulate(wrong.begin(), wrong.end(), 0) == 0);
}

}  // namespace split_cost_test
