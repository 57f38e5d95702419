// SPDX-License-Identifier: Apache-2.0
#include "topology/reach.hpp"

#include "memory/error.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace troupe;

TEST_CASE("ranks of one process reach each other, unless the layout puts servers between them") {
  const reach_map flat{layout::flat(5)};
  CHECK(flat.between(0, 4) == reach::process);
  CHECK(flat.farthest() == reach::process);
  CHECK_FALSE(flat.routed());
  CHECK(flat.why_apart().empty());

  // Core groups and cards of a server share its memory, but what they send goes through its elements.
  for (const char* text : {"1x4", "1x1x4", "0.0.0,0.0.1,0.0.0"}) {
    CAPTURE(text);
    const reach_map server{layout::parse(text)};
    CHECK(server.farthest() == reach::process);
    CHECK(server.why_apart().empty());
    CHECK(server.routed());
  }

  const reach_map servers{layout::parse("2x4")};
  CHECK(servers.between(0, 3) == reach::process);
  CHECK(servers.between(3, 4) == reach::network);
  CHECK(servers.between(4, 0) == reach::network);
  CHECK(servers.farthest() == reach::network);
  CHECK(servers.routed());
  CHECK(servers.why_apart() == "ranks 0 and 4 are on different servers, which share no memory");

  // Pods of servers are further apart than servers, and no more than that; cards and core groups of a server still share its memory.
  const reach_map pods{layout::parse("2x2x2x2")};
  CHECK(pods.between(0, 3) == reach::process);
  CHECK(pods.between(3, 4) == reach::network);
  CHECK(pods.between(4, 8) == reach::network);
  CHECK(pods.farthest() == reach::network);
  CHECK(pods.why_apart() == "ranks 0 and 4 are on different servers, which share no memory");
}

namespace {
layout with_homes(layout on, std::vector<residence> homes) {
  on.homes = std::move(homes);
  return on;
}
}  // namespace

TEST_CASE("processes of a host could share segments, hosts nothing") {
  const reach_map joined{with_homes(layout::flat(4), {{0, 0}, {0, 0}, {0, 1}, {1, 2}})};
  CHECK(joined.between(0, 1) == reach::process);
  CHECK(joined.between(1, 2) == reach::segment);
  CHECK(joined.between(2, 3) == reach::network);
  CHECK(joined.between(3, 3) == reach::process);
  CHECK(joined.farthest() == reach::network);
  CHECK(joined.farthest_link() == reach::network);
  CHECK(joined.nearest_link() == reach::process);
  CHECK(joined.most_ranks_of_computer() == 3);
  CHECK(joined.why_apart() == "ranks 0 and 3 are on different hosts, which share no memory");

  const reach_map host{with_homes(layout::flat(3), {{7, 3}, {7, 3}, {7, 9}})};
  CHECK(host.farthest() == reach::segment);
  CHECK(host.nearest_link() == reach::process);
  CHECK(host.why_apart() == "ranks 0 and 2 are in different processes, which share no memory");
  CHECK_FALSE(host.routed());

  // A layout that a join has found is no model: nothing lies between but the network.
  const reach_map hosts{with_homes(layout::parse("2x2"), {{0, 0}, {0, 1}, {1, 2}, {1, 3}})};
  CHECK_FALSE(hosts.routed());
  CHECK(hosts.between(0, 1) == reach::segment);
  CHECK(hosts.link_between(0, 1) == reach::segment);
  CHECK(hosts.nearest_link() == reach::segment);
  CHECK(hosts.most_ranks_of_computer() == 2);
  CHECK(reach_map{with_homes(layout::flat(2), {{0, 0}, {1, 1}})}.nearest_link() == reach::network);

  // A host has a computer of its own, unless it is said that hosts share one.
  CHECK(hosts.computers() == 2);
  CHECK(host.computers() == 1);
  const reach_map shared{with_homes(layout::parse("3x1"), {{0, 0, 4}, {1, 1, 7}, {2, 2, 4}})};
  CHECK(shared.between(0, 2) == reach::network);
  CHECK(shared.computers() == 2);
  CHECK(shared.most_ranks_of_computer() == 2);
  CHECK(shared.most_ranks_of_host() == 1);
  CHECK(hosts.most_ranks_of_host() == 2);
  CHECK(joined.most_ranks_of_host() == 3);

  // A model's servers are apart, and its messages stay here.
  const reach_map model{layout::parse("2x2")};
  CHECK(model.between(0, 3) == reach::network);
  CHECK(model.link_between(0, 3) == reach::process);
  CHECK(model.most_ranks_of_computer() == 4);
  CHECK(model.computers() == 1);
  CHECK_THROWS_WITH_AS(reach_map(with_homes(layout::flat(4), {{0, 0}})), doctest::Contains("the homes of 1 ranks"),
                       error);
}

TEST_CASE("a part of a layout keeps its ranks' homes") {
  const layout whole = with_homes(layout::parse("2x2"), {{0, 0}, {0, 1}, {1, 2}, {1, 2}});
  const std::vector<int> members{3, 2};
  const layout part = whole.subset(members);
  CHECK(part.homes == std::vector<residence>{{1, 2}, {1, 2}});
  CHECK(reach_map{part}.farthest() == reach::process);
  CHECK(part != layout::parse("0.0.1,0.0.0"));
}

TEST_CASE("hosts have numbers in the order in which ranks meet them") {
  using numbers = std::vector<std::uint32_t>;
  const auto of = [](std::vector<residence> homes) {
    return reach_map{with_homes(layout::flat(static_cast<int>(homes.size())), homes)};
  };
  CHECK(of({{7, 0}, {7, 0}, {3, 1}, {7, 0}, {5, 2}}).hosts() == numbers{0, 0, 1, 0, 2});
  CHECK(of({{7, 0}, {7, 1}}).hosts().empty());
  CHECK(reach_map{layout::parse("2x4")}.hosts().empty());  // a model
  CHECK(of({{7, 0}, {7, 0}, {3, 1}, {7, 0}}).one_process_a_host());
  CHECK_FALSE(of({{7, 0}, {3, 1}, {7, 2}}).one_process_a_host());
}

TEST_CASE("hosts of different groups are parted by as many borders as there are levels that differ") {
  // Two groups of two pods, of two hosts with two ranks each.
  std::vector<std::vector<int>> paths;
  std::vector<residence> homes;
  for (int host = 0; host < 8; ++host)
    for (int r = 0; r < 2; ++r) {
      paths.push_back({host / 4, host / 2 % 2, host % 2, 0, r});
      homes.push_back({host, host});
    }
  layout on = layout::placed_in_groups(paths);
  CHECK(reach_map{on}.borders_between(0, 15) == 0);  // a model, whose messages pass no link
  on.homes = homes;
  const reach_map where{on};
  CHECK(where.most_borders_between() == 2);
  CHECK(where.borders_between(0, 1) == 0);
  CHECK(where.borders_between(0, 2) == 0);
  CHECK(where.borders_between(3, 4) == 1);
  CHECK(where.borders_between(7, 8) == 2);
  CHECK(where.borders_between(15, 0) == 2);
  // Of one group of pods only the pods are left.
  const reach_map part{on.subset(std::vector<int>{0, 2, 4, 6})};
  CHECK(part.most_borders_between() == 1);
  CHECK(part.borders_between(0, 1) == 0);
  CHECK(part.borders_between(1, 2) == 1);
}

TEST_CASE("hosts with several ranks each are alike, or there are none") {
  const auto each = [](std::vector<residence> homes) {
    return ranks_of_each_host(with_homes(layout::flat(static_cast<int>(homes.size())), homes));
  };
  CHECK(each({{0, 0}, {0, 1}, {1, 2}, {1, 3}}) == 2);
  CHECK(each({{3, 0}, {3, 0}, {1, 2}, {1, 2}, {0, 7}, {0, 7}}) == 2);
  CHECK(each({{0, 0}, {0, 1}, {1, 2}}) == 0);                          // not as many
  CHECK(each({{0, 0}, {1, 1}, {2, 2}}) == 0);                          // one each
  CHECK(each({{0, 0}, {0, 1}}) == 0);                                  // one host
  CHECK(each({{0, 0}, {0, 0}, {1, 1}, {1, 2}}) == 0);                  // one has them in one process, the other in two
  CHECK(each({{0, 0}, {1, 1}, {0, 0}, {1, 1}}) == 0);                  // they do not follow each other
  CHECK(each({{0, 0}, {0, 1}, {1, 2}, {1, 3}, {0, 4}, {0, 5}}) == 0);  // a host comes twice
  CHECK(ranks_of_each_host(layout::parse("2x4")) == 0);                // a model
  const layout on = with_homes(layout::flat(4), {{0, 0}, {0, 1}, {1, 2}, {1, 3}});
  CHECK(layout_of_host(on, 2).homes == std::vector<residence>{{0, 0}, {0, 1}});
  CHECK(layout_of_first_ranks(on, 2).homes == std::vector<residence>{{0, 0}, {1, 2}});
}
