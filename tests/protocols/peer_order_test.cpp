// SPDX-License-Identifier: Apache-2.0
#include "protocols/choreographies/peer_order.hpp"

#include <doctest/doctest.h>

#include <set>
#include <utility>
#include <vector>

using namespace troupe;

TEST_CASE(
    "order of peers: in every round each rank sends to one and receives from it at the other end; every pair once") {
  for (const layout& places :
       {layout::grid(1, 1), layout::grid(1, 5), layout::grid(2, 1), layout::grid(4, 2), layout::grid(3, 4),
        layout::grid(8, 1), layout::grid(5, 3), layout::grid(2, 9), layout::ragged(std::vector{3, 1, 2})}) {
    CAPTURE(places.to_string());
    const choreographies::peer_order order{places};
    const int ranks = places.size();
    std::set<std::pair<rank_t, rank_t>> met;
    int round = 0;
    for (const int distance : order.distances())
      for (int step = 0; step < order.steps(); ++step, ++round)
        for (rank_t me = 0; me < ranks; ++me) {
          const rank_t to = order.at(me, distance, step);
          if (to < 0) continue;
          CHECK(met.emplace(me, to).second);
          CHECK(order.at(to, -distance, -step) == me);
          CHECK(order.round(me, to) == round);
          CHECK(order.channel_between(me, to) == order.channel(distance, step));
          CHECK(order.channel(distance, step) >= 0);
        }
    CHECK(met.size() == static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks));
  }
}

TEST_CASE("order of peers: servers at the distances 0, n/2, 1, -1, n/2 - 1, ...") {
  CHECK(choreographies::peer_order{layout::grid(8, 1)}.distances() == std::vector<int>{0, 4, 1, 7, 3, 5, 2, 6});
  CHECK(choreographies::peer_order{layout::grid(4, 2)}.distances() == std::vector<int>{0, 2, 1, 3});
  // Eight steps a channel.
  CHECK(choreographies::peer_order{layout::grid(2, 9)}.channel_between(0, 9 + 8) == 2);
  CHECK(choreographies::peer_order{layout::grid(1, 9)}.channel_between(0, 8) == 8);
}
