// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/shared_segment.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace troupe;

TEST_CASE("a shared segment is the ranks' shares, one behind the other, as equal as its cells allow") {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (int cells = 1; cells <= 90; ++cells) {
      CAPTURE(ranks);
      CAPTURE(cells);
      std::vector<int> share(static_cast<std::size_t>(ranks));
      int before = 0;
      for (int cell = 0; cell < cells; ++cell) {
        const int home = home_of_shared_cell(cell, cells, ranks);
        REQUIRE(home >= before);
        REQUIRE(home < ranks);
        before = home;
        ++share[static_cast<std::size_t>(home)];
      }
      CHECK(*std::ranges::max_element(share) - *std::ranges::min_element(share) <= 1);
    }
}

TEST_CASE("a row of cells for each rank lies in that rank's share") {
  for (int row = 1; row <= 8; ++row)
    for (int cell = 0; cell < 4 * row; ++cell) CHECK(home_of_shared_cell(cell, 4 * row, 4) == cell / row);
}
