// SPDX-License-Identifier: Apache-2.0
#include "memory/error.hpp"
#include "topology/machine/hardware.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace troupe;

namespace {

hardware ascend(const char* layout) {
  preset_request r;
  r.layout = layout;
  return build_preset("ascend_a2", r);
}

std::vector<std::string> names_on_the_way(const hardware& h, int from, int to) {
  std::vector<element_index> way;
  h.route(from, to, 0, way);
  std::vector<std::string> names;
  for (const element_index e : way) names.push_back(h.elements[static_cast<std::size_t>(e)].name);
  return names;
}

}  // namespace

TEST_CASE("ascend_a2: a wire of its own for every pair of a server, rails between equal indices, hops otherwise") {
  const hardware h = ascend("3x4");
  h.validate();
  CHECK(h.ranks == 12);
  CHECK(names_on_the_way(h, 0, 3) == std::vector<std::string>{"mesh 0:0-0:3"});
  CHECK(names_on_the_way(h, 7, 5) == std::vector<std::string>{"mesh 1:3-1:1"});
  CHECK(names_on_the_way(h, 2, 10) == std::vector<std::string>{"rail 0:2 out", "rail 2:2 in"});
  CHECK(names_on_the_way(h, 11, 0) == std::vector<std::string>{"mesh 2:3-2:0", "rail 2:0 out", "rail 0:0 in"});
}

TEST_CASE("ascend_a2: ways inside a server share nothing, on any number of cards") {
  for (const char* layout : {"1x1", "1x2", "2x5", "2x16"}) {
    const hardware h = ascend(layout);
    h.validate();
    const int cards = h.arrangement.cards;
    std::set<std::vector<std::string>> ways;
    for (int from = 0; from < h.ranks; ++from)
      for (int to = 0; to < h.ranks; ++to)
        if (from != to && from / cards == to / cards) CHECK(ways.insert(names_on_the_way(h, from, to)).second);
    CHECK(ways.size() == static_cast<std::size_t>(h.ranks * (cards - 1)));
    CHECK(h.elements.size() == static_cast<std::size_t>(h.ranks * (cards - 1) + 2 * h.ranks));
  }
}

TEST_CASE("ascend_a2: bw_a and bw_e by their classes; layouts it has no picture of are refused") {
  hardware h = ascend("2x2");
  h.set("mesh.bandwidth", "100 GB/s");
  h.set("rail.bandwidth", "50 GB/s");
  h.set("rail.latency", "0");
  CHECK(h.time_alone(0, 1, 0, 1'000'000) == std::chrono::microseconds{1 + 10});
  CHECK(h.time_alone(0, 2, 0, 1'000'000) == std::chrono::microseconds{20});
  CHECK(h.time_alone(0, 3, 0, 1'000'000) == std::chrono::microseconds{1 + 20});
  for (const char* layout : {"4+3", "8", "2x2x2"}) {
    CAPTURE(layout);
    CHECK_THROWS_WITH_AS(ascend(layout), doctest::Contains("must be servers x cards"), error);
  }
  preset_request r;
  r.ranks = 5;
  CHECK_THROWS_WITH_AS(build_preset("ascend_a2", r), doctest::Contains("leave ranks away"), error);
}
