// SPDX-License-Identifier: Apache-2.0
// A crash: ranks that a layout places apart have no boards, but those of a split that lie on one core group got plans for boards.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <vector>

using namespace troupe;

TEST_CASE("a split onto one core group of a layout with several has boards of its own") {
  engine_options o;
  o.layout = "0.0.0,0.0.0,1.0.0,1.0.0";
  engine e{o};
  e.run(4, [](communicator& world) {
    communicator pair = world.split(world.rank() / 2, world.rank());
    REQUIRE(pair.size() == 2);
    for (const std::size_t count : {2U, 200'000U}) {
      std::vector<float> mine(count, static_cast<float>(1 + world.rank()));
      pair.all_reduce(mine, sum);
      CHECK(mine.front() == (world.rank() < 2 ? 3 : 7));
      pair.all_reduce_async(mine, mine, sum).wait();
      CHECK(mine.back() == (world.rank() < 2 ? 6 : 14));
    }
  });
}
