// SPDX-License-Identifier: Apache-2.0
#include "topology/layout/layout.hpp"

#include "memory/error.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>

using namespace troupe;

namespace {

errc code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const error& e) {
    CHECK(std::string(e.what()).size() > 20);  // a sentence, not a word
    return e.code_value();
  }
  return errc::ok;
}

layout random_layout(std::mt19937_64& random) {
  const auto up_to = [&](int n) { return std::uniform_int_distribution<int>(1, n)(random); };
  switch (up_to(8)) {
    case 7: {
      const layout some = random_layout(random);
      return some.has_hosts() ? some : some.with_hosts();
    }
    case 8: {  // ranks at hosts anywhere in the list, servers with nothing else
      std::vector<coordinates> places;
      for (int n = up_to(12); n > 0; --n) places.push_back({up_to(3) - 1, up_to(3) - 1, up_to(3) - 1, up_to(3) == 1});
      return layout::placed(places);
    }
    case 5: {  // groups of groups of servers
      std::vector<int> extents;
      for (int levels = 3 + up_to(3); levels > 0; --levels) extents.push_back(up_to(3));
      return layout::nested(extents);
    }
    case 6: {  // groups of any size
      const int levels = 1 + up_to(3);
      std::string text;
      for (int n = up_to(12); n > 0; --n) {
        if (!text.empty()) text += ',';
        for (int level = 0; level < levels; ++level) text += std::to_string(up_to(3) - 1) + '.';
        text += std::to_string(up_to(2) - 1) + '.' + std::to_string(up_to(2) - 1);
      }
      return layout::parse(text);
    }
    case 1: return layout::grid(up_to(4), up_to(4), up_to(4));
    case 2: return layout::flat(up_to(9));
    case 3: {
      const int servers = up_to(4);
      return layout::spread(servers + up_to(12), servers, up_to(3));
    }
    default: break;
  }
  std::vector<coordinates> places;
  for (int n = up_to(12); n > 0; --n) places.push_back({up_to(3) - 1, up_to(3) - 1, up_to(3) - 1});
  return layout::placed(places);
}

// What the queries must answer, written without their shortcuts.
std::vector<int> ranks_in_order(const layout& l, const std::function<bool(coordinates)>& keep) {
  std::vector<int> ranks;
  for (int r = 0; r < l.size(); ++r)
    if (keep(l.of(r))) ranks.push_back(r);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return l.of(a) < l.of(b); });
  return ranks;
}

void check_queries(const layout& l) {
  std::set<std::size_t> sizes;
  int occupied = 0;
  for (int s = 0; s < l.servers; ++s) {
    const auto expected = ranks_in_order(l, [&](coordinates at) { return at.server == s; });
    CHECK(l.ranks_of_server(s) == expected);
    if (!expected.empty()) sizes.insert(expected.size()), ++occupied;
    for (int c = 0; c < l.cards; ++c)
      CHECK(l.ranks_of_card(s, c) == ranks_in_order(l, [&](coordinates at) { return at.server == s && at.card == c; }));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(l.local_index(expected[i]) == static_cast<int>(i));
      std::vector<int> peers;
      for (int t = 0; t < l.servers; ++t)
        if (const auto there = ranks_in_order(l, [&](coordinates at) { return at.server == t; }); i < there.size())
          peers.push_back(there[i]);
      CHECK(l.same_index_peers(expected[i]) == peers);
    }
  }
  CHECK(l.server_count() == occupied);
  CHECK(l.uniform() == (sizes.size() == 1));
  const bool one_place =
      ranks_in_order(l, [&](coordinates at) { return at == l.of(0); }).size() == static_cast<std::size_t>(l.size());
  if (!l.is_grid() || l.size() > 1) CHECK(l.is_flat() == one_place);
}

}  // namespace

TEST_CASE("a grid numbers its ranks server by server, card by card") {
  const layout l = layout::grid(2, 3, 4);
  CHECK(l.size() == 24);
  CHECK(l.of(0) == coordinates{0, 0, 0});
  CHECK(l.of(5) == coordinates{0, 1, 1});
  CHECK(l.of(12) == coordinates{1, 0, 0});
  CHECK(l.of(23) == coordinates{1, 2, 3});
  CHECK(l.ranks_of_card(1, 1) == std::vector<int>{16, 17, 18, 19});
  CHECK(l.same_index_peers(5) == std::vector<int>{5, 17});
  CHECK(l.uniform());
  CHECK_FALSE(l.is_flat());
  CHECK(layout{}.size() == 1);
}

TEST_CASE("odd counts: seven ranks on two servers are 4 + 3") {
  for (const layout& l : {layout::spread(7, 2), layout::parse("4+3"), layout::ragged(std::vector{4, 3})}) {
    CHECK(l.size() == 7);
    CHECK(l.server_count() == 2);
    CHECK_FALSE(l.uniform());
    CHECK(l.ranks_of_server(0) == std::vector<int>{0, 1, 2, 3});
    CHECK(l.ranks_of_server(1) == std::vector<int>{4, 5, 6});
    CHECK(l.same_index_peers(3) == std::vector<int>{3});
    CHECK(l.same_index_peers(6) == std::vector<int>{2, 6});
  }
  CHECK(layout::spread(8, 2) == layout::grid(2, 4));
  CHECK(layout::spread(16, 2, 4) == layout::grid(2, 2, 4));
}

TEST_CASE("flat layouts have no hierarchy") {
  const layout l = layout::flat(5);
  CHECK(l.size() == 5);
  CHECK(l.is_flat());
  CHECK(l.server_count() == 1);
  CHECK(l.of(4) == coordinates{0, 0, 0});
  CHECK(l.ranks_of_card(0, 0) == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("texts are read, and refused with what would be right") {
  CHECK(layout::parse("2x4x1") == layout::grid(2, 4, 1));
  CHECK(layout::parse("2x4") == layout::grid(2, 4));
  CHECK(layout::parse("8") == layout::flat(8));
  CHECK(layout::parse("4+3x2").size() == 14);
  CHECK(layout::parse("1.0.0,0.0.1,0.0.0").of(0) == coordinates{1, 0, 0});
  CHECK(layout::parse("0.0.0,0.0.1,0.host") == layout::parse("1x1x2+host"));
  for (const char* bad : {"",
                          "x",
                          "2x",
                          "2x0x1",
                          "-1",
                          "2x4x1x0",
                          "2x4y",
                          " 2x4",
                          "4+",
                          "4+3x2x",
                          "0.0",
                          "0.0.0,",
                          "0.0.-1",
                          "99999999999",
                          "16777217",
                          "4096x4096x2",
                          "16777216+1",
                          "0.0.16777216",
                          "16777215.16777215.0",
                          "2x2x2x2x2x2x2x2x2",
                          "4+3x1x1x1x1x1x1x1",
                          "0.0.0.0.0.0.0.0.0",
                          "0.0.0,0.0.0.0",
                          "host",
                          "+host",
                          "0.host.0",
                          "1x4+hosts",
                          "0.0.0,0.host+host",
                          "2x4+3x8x1",
                          "256x256x256x2",
                          "16777216x2x1x1",
                          "2x16777216x1x1",
                          "16777216+1x1x1",
                          "0.16777215.0.0,1.16777215.0.0",
                          "2x2x2x2:some"}) {
    CAPTURE(bad);
    CHECK(code_of([&] { (void)layout::parse(bad); }) == errc::bad_config);
  }
  const auto sentence_of = [](const char* bad) {
    try {
      (void)layout::parse(bad);
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string{};
  };
  CHECK(sentence_of("1x2x3x4x5x6x7x8x9").find("has 9 levels; at most 8") != std::string::npos);
  CHECK(sentence_of("0.0.0,0.0.0.0").find("has 4 numbers, the first rank has 3") != std::string::npos);
  CHECK(code_of([] { (void)layout::flat(0); }) == errc::bad_config);
  CHECK(code_of([] { (void)layout::grid(2, -1); }) == errc::bad_config);
  CHECK(code_of([] { (void)layout::spread(3, 4); }) == errc::bad_config);
  CHECK(code_of([] { (void)layout::placed({}); }) == errc::bad_config);
  CHECK(code_of([] { (void)layout::ragged({}); }) == errc::bad_config);
}

TEST_CASE("hosts: the last ranks, one behind the cards of each server") {
  const layout l = layout::parse("2x1x4+host:between");
  CHECK(l.size() == 10);
  CHECK(l.has_hosts());
  CHECK(l.reduces_between());
  for (int r = 0; r < 8; ++r) CHECK(l.of(r) == layout::grid(2, 1, 4).of(r));
  CHECK(l.of(8) == coordinates{0, 1, 0, true});
  CHECK(l.of(9) == coordinates{1, 1, 0, true});
  CHECK(l.ranks_of_server(1) == std::vector<int>{4, 5, 6, 7, 9});
  CHECK(l.uniform());
  CHECK(l.to_string() == "2x1x4+host:between");
  CHECK(layout::parse("4+3+host").of(7) == coordinates{0, 4, 0, true});
  CHECK(layout::parse("4+3+host").of(8) == coordinates{1, 3, 0, true});
  CHECK(layout::parse("8+host").to_string() == "8+host");
  CHECK(layout::parse("2x2x1x2+host").to_string() == "2x2x1x2+host");
  CHECK(layout::parse("0.host,0.0.1").to_string() == "0.host,0.0.1");
  CHECK(layout::parse("1.0.host,0.0.0.0").of(0).host);
  CHECK_FALSE(layout::grid(1, 1, 4).has_hosts());
  // A part of them: a host is behind the cards that are left.
  const layout part = layout::parse("1x2x2+host").subset(std::vector{4, 1});
  CHECK(part.of(0) == coordinates{0, 1, 0, true});
  CHECK(part.of(1) == coordinates{0, 0, 0});
  CHECK(layout::parse("1x2x2+host").subset(std::vector{4}).of(0) == coordinates{0, 0, 0, true});
  layout moved = layout::parse("1x1x4+host");
  moved.placement[4].card = 0;
  CHECK(code_of([&] { moved.validate(); }) == errc::bad_config);
}

TEST_CASE("servers in groups, from the outside in") {
  const layout l = layout::parse("2x3x4x1");  // two pods of three servers
  CHECK(l == layout::nested(std::vector{2, 3, 4, 1}));
  CHECK(l.size() == 24);
  CHECK(l.servers == 6);
  CHECK(l.cards == 4);
  CHECK(l.server_of(12) == 3);  // servers are numbered through
  CHECK(l.outer == std::vector<std::vector<int>>{{3, 3}});
  CHECK(l.group_of_server(0, 2) == 0);
  CHECK(l.group_of_server(0, 3) == 1);
  CHECK(l.same_index_peers(1) == std::vector<int>{1, 5, 9, 13, 17, 21});
  CHECK(l.to_string() == "2x3x4x1");
  CHECK_FALSE(l == layout::grid(6, 4));
  CHECK_FALSE(l == layout::parse("3x2x4x1"));
  CHECK(code_of([&] { (void)l.group_of_server(1, 0); }) == errc::invalid_argument);
  CHECK(code_of([&] { (void)l.group_of_server(0, 6); }) == errc::invalid_argument);

  const layout deep = layout::parse("2x3x2x2x1x2:between");
  CHECK(deep.outer ==
        std::vector<std::vector<int>>{{12, 12}, {4, 4, 4, 4, 4, 4}, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}});
  CHECK(deep.servers == 24);
  CHECK(deep.reduces_between());
  CHECK(deep.to_string() == "2x3x2x2x1x2:between");

  // Unequal groups: as a sum where only the outermost differ, else rank by rank.
  const layout uneven = layout::parse("2+1x4x1");
  CHECK(uneven.size() == 12);
  CHECK(uneven.outer == std::vector<std::vector<int>>{{2, 1}});
  CHECK(uneven.to_string() == "2+1x4x1");
  CHECK(uneven == layout::parse("0.0.0.0,0.0.1.0,0.0.2.0,0.0.3.0,0.1.0.0,0.1.1.0,0.1.2.0,0.1.3.0,"
                                "1.0.0.0,1.0.1.0,1.0.2.0,1.0.3.0"));
  const layout racks = layout::parse("2+1x2x2x1");
  CHECK(racks.outer == std::vector<std::vector<int>>{{4, 2}, {2, 2, 2}});
  CHECK(racks.to_string() == "2+1x2x2x1");

  // Ranks in any order: hosts of a pod need not follow each other among them.
  const layout in_turn = layout::placed_in_groups({{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}});
  CHECK(in_turn.outer == std::vector<std::vector<int>>{{2, 2}});
  CHECK(in_turn.server_of(1) == 2);
  CHECK(in_turn == layout::parse("0.0.0.0,1.0.0.0,0.1.0.0,1.1.0.0"));
  CHECK(layout::placed_in_groups({{0, 0, 0}, {1, 0, 0}}) == layout::grid(2, 1));
  CHECK(code_of([] { (void)layout::placed_in_groups({}); }) == errc::bad_config);
  CHECK(code_of([] { (void)layout::placed_in_groups({{0, 0}}); }) == errc::bad_config);
  CHECK(code_of([] { (void)layout::placed_in_groups({{0, 0, 0, 0}, {1, 0, 0}}); }) == errc::bad_config);
  CHECK(code_of([] { (void)layout::placed_in_groups({std::vector<int>(9, 0)}); }) == errc::bad_config);

  // Levels that part nothing are left out: equal layouts are equal.
  CHECK(layout::parse("1x2x4x1") == layout::grid(2, 4));
  CHECK(layout::parse("2x1x4x1") == layout::grid(2, 4));
  CHECK(layout::parse("2x1x3x4x1") == layout::parse("2x3x4x1"));
  CHECK(layout::parse("5.0.0.0,7.0.0.0") == layout::grid(2, 1));

  // Groups stay groups in a subset, and one that is left alone is none.
  CHECK(l.subset(std::vector{0, 1, 4, 5, 12, 13, 16, 17}) == layout::parse("2x2x2x1"));
  CHECK(l.subset(std::vector{0, 1, 4, 5, 20, 21}) == layout::parse("2+1x2x1"));
  CHECK(l.subset(std::vector{20, 21, 16, 17}).to_string() == "1.0.0,1.1.0,0.0.0,0.1.0");

  layout edited = l;
  edited.outer = {{3, 2}};
  CHECK(code_of([&] { edited.validate(); }) == errc::bad_config);
  edited.outer = {{3, 3}, {2, 4}};
  CHECK(code_of([&] { edited.validate(); }) == errc::bad_config);
  edited.outer = {{3, 3}, {3, 0, 3}};
  CHECK(code_of([&] { edited.validate(); }) == errc::bad_config);
  edited.outer.assign(6, {3, 3});
  CHECK(code_of([&] { edited.validate(); }) == errc::bad_config);
  CHECK(code_of([] { (void)layout::nested(std::vector{2, 2}); }) == errc::bad_config);
  CHECK(code_of([] { (void)layout::nested(std::vector{2, 2, 0, 1}); }) == errc::bad_config);
  CHECK(code_of([] { (void)layout::nested(std::vector(9, 1)); }) == errc::bad_config);
  CHECK(code_of([] { (void)layout::nested(std::vector{2'000'000'000, 2'000'000'000, 1, 1}); }) == errc::bad_config);
}

TEST_CASE("wrong ranks, servers and cards are errors, edited members too") {
  const layout l = layout::grid(2, 2);
  CHECK(code_of([&] { (void)l.of(4); }) == errc::invalid_argument);
  CHECK(code_of([&] { (void)l.of(-1); }) == errc::invalid_argument);
  CHECK(code_of([&] { (void)l.ranks_of_server(2); }) == errc::invalid_argument);
  CHECK(code_of([&] { (void)l.ranks_of_card(0, 2); }) == errc::invalid_argument);
  CHECK(code_of([&] { (void)l.local_index(9); }) == errc::invalid_argument);
  layout edited{2, 0, 1};
  CHECK(edited.size() == 0);
  CHECK(code_of([&] { edited.validate(); }) == errc::bad_config);
  edited = layout{2'000'000'000, 2'000'000'000, 2'000'000'000, 2'000'000'000};
  CHECK(edited.size() > 0);  // saturates instead of overflowing
  CHECK(code_of([&] { edited.validate(); }) == errc::bad_config);
  edited = layout{1, 1, 1};
  edited.placement = {{0, 0, 1}};
  CHECK(code_of([&] { edited.validate(); }) == errc::bad_config);
}

TEST_CASE("a subset closes the gaps and keeps the order of its list") {
  const layout l = layout::grid(3, 2, 2);  // server 1 loses all its ranks, card 0.0 too
  const layout sub = l.subset(std::vector{11, 2, 3, 9});
  CHECK(sub.of(0) == coordinates{1, 1, 0});  // was 2.1.1
  CHECK(sub.of(1) == coordinates{0, 0, 0});  // was 0.1.0
  CHECK(sub.of(2) == coordinates{0, 0, 1});  // was 0.1.1
  CHECK(sub.of(3) == coordinates{1, 0, 0});  // was 2.0.1
  CHECK(sub.server_count() == 2);
  CHECK(sub.servers == 2);
  CHECK(l.subset(std::vector{0, 1, 4, 5}) == layout::grid(2, 1, 2));  // a regular subset is a grid again
  CHECK(code_of([&] { (void)l.subset({}); }) == errc::invalid_argument);
  CHECK(code_of([&] { (void)l.subset(std::vector{1, 1}); }) == errc::invalid_argument);
  CHECK(code_of([&] { (void)l.subset(std::vector{12}); }) == errc::invalid_argument);
}

TEST_CASE("property: queries agree with their definition; texts and subsets keep every layout's meaning") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 400; ++round) {
    CAPTURE(seed());
    CAPTURE(round);
    const layout l = random_layout(random);
    const std::string text = l.to_string();
    CAPTURE(text);
    l.validate();
    check_queries(l);
    CHECK(layout::parse(text) == l);

    std::vector<int> members(static_cast<std::size_t>(l.size()));
    std::iota(members.begin(), members.end(), 0);
    std::shuffle(members.begin(), members.end(), random);
    members.resize(std::uniform_int_distribution<std::size_t>(1, members.size())(random));
    const layout sub = l.subset(members);
    check_queries(sub);
    CHECK(sub.server_count() == sub.servers);  // no empty server is left
    std::set<coordinates> used;
    for (int r = 0; r < sub.size(); ++r) used.insert(sub.of(r));
    for (const coordinates& at : used) {  // nor any other gap
      if (at.card > 0) CHECK(used.contains({at.server, at.card - 1, 0}));
      if (at.core_group > 0) CHECK(used.contains({at.server, at.card, at.core_group - 1}));
    }
    for (std::size_t a = 0; a < members.size(); ++a)
      for (std::size_t b = 0; b < members.size(); ++b) {  // order and sharing of places survive the renumbering
        const coordinates x = l.of(members[a]), y = l.of(members[b]);
        const coordinates u = sub.of(static_cast<int>(a)), v = sub.of(static_cast<int>(b));
        CHECK((x <=> y) == (u <=> v));
        CHECK((x.server == y.server) == (u.server == v.server));
        // Ranks that share the innermost group still do, and none is joined by more levels than before.
        int joined = 0, joined_before = 0;
        for (int level = 0; level < sub.outer_levels(); ++level)
          joined += sub.group_of_server(level, u.server) == sub.group_of_server(level, v.server);
        for (int level = 0; level < l.outer_levels(); ++level)
          joined_before += l.group_of_server(level, x.server) == l.group_of_server(level, y.server);
        CHECK(joined <= joined_before);
        if (joined_before == l.outer_levels()) CHECK(joined == sub.outer_levels());
        CHECK((x.server == y.server && x.card == y.card) == (u.server == v.server && u.card == v.card));
      }
  }
}
