// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/routes.hpp"

#include "memory/error.hpp"
#include "tests/code_of.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

namespace routes_test {

using namespace troupe;

namespace {

using troupe_tests::code_of;

std::string text(const machine& m, int from, int to, int channel = 0) {
  return to_string(m, route_between(m, from, to, channel));
}

// Follows the hops one by one, each from where the last one ended; says where the chunk arrives.
struct walker {
  const machine& on;
  coordinates at;
  int to;
  enum { in_memory, at_dma, at_nic, at_remote, arrived } state = in_memory;

  void step(const hop& h) {
    const machine_element same{h.kind, h.server, h.card, h.index,
                               h.kind == element_kind::ring_segment || h.kind == element_kind::pcie ? h.way
                                                                                                    : direction::out};
    REQUIRE(on.at(h.id) == same);
    switch (h.kind) {
      case element_kind::dma:
        if (state == in_memory) {
          REQUIRE(h.way == direction::out);
          REQUIRE(coordinates{h.server, h.card, h.index} == at);
          state = at_dma;
        } else {
          REQUIRE(h.way == direction::in);
          if (state == at_remote) at = {h.server, h.card, h.index};  // card links and NICs reach any core group
          REQUIRE(coordinates{h.server, h.card, h.index} == at);
          state = arrived;
        }
        return;
      case element_kind::ring_segment: {
        const int groups = on.ranks().core_groups;
        REQUIRE(state == at_dma);
        REQUIRE(h.server == at.server);
        REQUIRE(h.card == at.card);
        const bool clockwise = h.way == direction::clockwise;
        const int next = (h.index + 1) % groups;
        REQUIRE(at.core_group == (clockwise ? h.index : next));
        at.core_group = clockwise ? next : h.index;
        return;
      }
      case element_kind::card_link:
        REQUIRE(state == at_dma);
        REQUIRE(h.server == at.server);
        REQUIRE(h.card == at.card);
        at.card = h.index;
        state = at_remote;
        return;
      case element_kind::nic:
        REQUIRE(state == (h.way == direction::out ? at_dma : at_nic));
        if (h.way == direction::out) REQUIRE(h.server == at.server);
        at.server = h.server;
        state = h.way == direction::out ? at_nic : at_remote;
        return;
      case element_kind::network_switch: REQUIRE(state == at_nic); return;
      case element_kind::host:
        if (state == in_memory) {
          REQUIRE(h.way == direction::out);
          REQUIRE(at.host);
          REQUIRE(h.server == at.server);
          state = at_dma;
        } else {
          REQUIRE(h.way == direction::in);
          REQUIRE(state == at_remote);
          REQUIRE(h.server == at.server);
          at = on.ranks().of(to);
          REQUIRE(at.host);
          state = arrived;
        }
        return;
      case element_kind::pcie:
        REQUIRE(state == at_dma);
        REQUIRE(h.server == at.server);
        REQUIRE(at.host == (h.way == direction::in));
        if (!at.host) REQUIRE(h.card == at.card);
        at = {h.server, h.card, 0};
        state = at_remote;
        return;
    }
  }
};

void check_route(const machine& m, int from, int to, int channel) {
  const coordinates a = m.ranks().of(from), b = m.ranks().of(to);
  const route way = route_between(m, from, to, channel);
  CHECK(way.is_direct() == (a == b));
  if (way.is_direct()) return;
  walker w{m, a, to};
  for (const hop& h : way.hops) w.step(h);
  CHECK(w.state == walker::arrived);
  CHECK(w.at == b);
  const auto count = [&](element_kind kind) {
    return std::count_if(way.hops.begin(), way.hops.end(), [&](const hop& h) { return h.kind == kind; });
  };
  const bool same_server = a.server == b.server, same_card = same_server && a.card == b.card;
  const bool pcie = same_server && (a.host || b.host);
  CHECK(count(element_kind::dma) == (a.host ? 0 : 1) + (b.host ? 0 : 1));
  CHECK(count(element_kind::host) == (a.host ? 1 : 0) + (b.host ? 1 : 0));
  CHECK(count(element_kind::pcie) == (pcie ? 1 : 0));
  CHECK(count(element_kind::card_link) == (same_server && !same_card && !pcie ? 1 : 0));
  CHECK(count(element_kind::nic) == (same_server ? 0 : 2));
  CHECK(count(element_kind::network_switch) == (!same_server && m.options().has_switch ? 1 : 0));
  const int groups = m.ranks().core_groups, apart = std::abs(a.core_group - b.core_group);
  CHECK(count(element_kind::ring_segment) == (same_card ? std::min(apart, groups - apart) : 0));  // the shorter way
}

}  // namespace

TEST_CASE("routes read as the way a chunk takes") {
  const machine m(layout::grid(2, 2, 4));
  CHECK(text(m, 1, 1) == "rank 1 → rank 1 (direct)");
  CHECK(text(m, 1, 2) == "rank 1 → dma 0.0.1 → ring 0.0:1→2 → dma 0.0.2 → rank 2");
  CHECK(text(m, 0, 3) == "rank 0 → dma 0.0.0 → ring 0.0:0→3 → dma 0.0.3 → rank 3");
  CHECK(text(m, 3, 0) == "rank 3 → dma 0.0.3 → ring 0.0:3→0 → dma 0.0.0 → rank 0");
  CHECK(text(m, 4, 6) == "rank 4 → dma 0.1.0 → ring 0.1:0→1 → ring 0.1:1→2 → dma 0.1.2 → rank 6");  // tie: clockwise
  CHECK(text(m, 6, 4) == "rank 6 → dma 0.1.2 → ring 0.1:2→3 → ring 0.1:3→0 → dma 0.1.0 → rank 4");  // tie: clockwise
  CHECK(text(m, 1, 5) == "rank 1 → dma 0.0.1 → link 0:0→1 → dma 0.1.1 → rank 5");
  CHECK(text(m, 1, 9) == "rank 1 → dma 0.0.1 → nic 0:0 → switch → nic 1:0 → dma 1.0.1 → rank 9");
  const machine direct(layout::grid(2, 1, 1), {.nic_ports = 1, .has_switch = false});
  CHECK(text(direct, 1, 0) == "rank 1 → dma 1.0.0 → nic 1:0 → nic 0:0 → dma 0.0.0 → rank 0");
}

TEST_CASE("a host's way to its cards is PCIe, one link a card") {
  const machine m(layout::parse("2x2x4+host"));
  CHECK(text(m, 16, 5) == "rank 16 → host 0 → pcie 0.1 down → dma 0.1.1 → rank 5");
  CHECK(text(m, 5, 16) == "rank 5 → dma 0.1.1 → pcie 0.1 up → host 0 → rank 16");
  CHECK(text(m, 17, 0) == "rank 17 → host 1 → nic 1:0 → switch → nic 0:0 → dma 0.0.0 → rank 0");
  CHECK(text(m, 16, 17) == "rank 16 → host 0 → nic 0:0 → switch → nic 1:0 → host 1 → rank 17");
  CHECK(text(m, 1, 2) == text(machine(layout::grid(2, 2, 4)), 1, 2));
  CHECK(machine(layout::grid(2, 2, 4)).count_of(element_kind::pcie) == 0);
  CHECK(code_of([] { (void)machine(layout::grid(1, 1, 4)).id_of({element_kind::host}); }) == errc::invalid_argument);
}

TEST_CASE("rings of one and two core groups") {
  CHECK(machine(layout::grid(2, 2, 1)).count_of(element_kind::ring_segment) == 0);
  const machine two(layout::grid(1, 1, 2));
  CHECK(two.ring_segments_per_card() == 1);
  CHECK(two.count_of(element_kind::ring_segment) == 2);  // one segment, two directions
  CHECK(text(two, 0, 1) == "rank 0 → dma 0.0.0 → ring 0.0:0→1 → dma 0.0.1 → rank 1");
  CHECK(text(two, 1, 0) == "rank 1 → dma 0.0.1 → ring 0.0:1→0 → dma 0.0.0 → rank 0");
  CHECK(machine(layout::grid(1, 1, 3)).count_of(element_kind::ring_segment) == 6);
}

TEST_CASE("ranks without a layout hand over references") {
  const machine m(layout::flat(4));
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b) CHECK(route_between(m, a, b).is_direct());
}

TEST_CASE("NIC ports spread by place and channel; same-index peers use the same port") {
  const machine m(layout::grid(2, 4, 1), {.nic_ports = 2});
  std::set<element_id> ports;
  for (int card = 0; card < 4; ++card) {
    const route way = route_between(m, card, 4 + card);
    CHECK(way.hops[1].index == card % 2);
    CHECK(way.hops[3].index == card % 2);
    ports.insert(way.hops[1].id);
  }
  CHECK(ports.size() == 2);
  CHECK(route_between(m, 0, 4, 1).hops[1].index == 1);
  CHECK(route_between(m, 0, 4, 2147483647).hops[1].index == 1);
}

TEST_CASE("property: element ids are dense and name one element each") {
  std::mt19937_64 random(seed());
  CAPTURE(seed());
  for (int round = 0; round < 60; ++round) {
    const auto up_to = [&](int n) { return std::uniform_int_distribution<int>(1, n)(random); };
    layout places = layout::grid(up_to(4), up_to(5), up_to(5));
    if (round % 2 == 1) places = places.with_hosts();
    const machine m(places, {.nic_ports = up_to(3), .has_switch = up_to(2) == 1});
    const std::string of = m.ranks().to_string();
    CAPTURE(of);
    std::set<std::string> names;
    std::size_t sum = 0;
    for (int k = 0; k < element_kind_count; ++k) sum += m.count_of(static_cast<element_kind>(k));
    CHECK(sum == m.element_count());
    for (element_id id = 0; id < m.element_count(); ++id) {
      const machine_element what = m.at(id);
      CHECK(m.id_of(what) == id);
      names.insert(m.to_string(what));
    }
    CHECK(names.size() == m.element_count());
    CHECK(code_of([&] { (void)m.at(m.element_count()); }) == errc::invalid_argument);
  }
}

TEST_CASE("property: every route starts at one rank's memory and ends at the other's, the shorter way round") {
  std::mt19937_64 random(seed());
  CAPTURE(seed());
  for (int round = 0; round < 60; ++round) {
    const auto up_to = [&](int n) { return std::uniform_int_distribution<int>(1, n)(random); };
    layout l = layout::grid(up_to(3), up_to(3), up_to(7));
    if (round % 3 == 1) l = layout::spread(3 + up_to(14), up_to(3), up_to(5));
    if (round % 3 == 2) {  // irregular, with shared and empty places, in any order
      std::vector<coordinates> places;
      for (int n = up_to(14); n > 0; --n) places.push_back({up_to(3) - 1, up_to(3) - 1, up_to(7) - 1});
      l = layout::placed(places);
    }
    if (round % 4 == 3) l = l.with_hosts();
    const std::string of = l.to_string();
    CAPTURE(of);
    const machine m(l, {.nic_ports = up_to(3), .has_switch = round % 2 == 0});
    for (int a = 0; a < l.size(); ++a)
      for (int b = 0; b < l.size(); ++b) check_route(m, a, b, up_to(8) - 1);
  }
}

TEST_CASE("machines and routes refuse nonsense") {
  CHECK(code_of([] { machine(layout::flat(2), {.nic_ports = 0}); }) == errc::bad_config);
  CHECK(code_of([] { machine(layout{0, 1, 1}); }) == errc::bad_config);
  const machine m(layout::grid(2, 2, 2));
  CHECK(code_of([&] { (void)route_between(m, 0, 8); }) == errc::invalid_argument);
  CHECK(code_of([&] { (void)route_between(m, -1, 0); }) == errc::invalid_argument);
  CHECK(code_of([&] { (void)route_between(m, 0, 1, -1); }) == errc::invalid_argument);
  const auto no_such = [&](const machine_element& what) {
    return code_of([&] { (void)m.id_of(what); }) == errc::invalid_argument;
  };
  CHECK(no_such({element_kind::dma, 0, 0, 2}));
  CHECK(no_such({element_kind::dma, 0, -1, 0}));
  CHECK(no_such({element_kind::ring_segment, 0, 0, 1, direction::clockwise}));
  CHECK(no_such({element_kind::ring_segment, 0, 0, 0, direction::out}));
  CHECK(no_such({element_kind::card_link, 0, 1, 1}));
  CHECK(no_such({element_kind::nic, 0, 0, 1}));
  CHECK(no_such({element_kind::nic, 2, 0, 0}));
  CHECK(no_such({static_cast<element_kind>(99), 0, 0, 0}));
}

TEST_CASE("routes of a very large machine need no table") {
  const machine m(layout::grid(4096, 16, 4));
  const route way = route_between(m, 0, m.ranks().size() - 1);
  CHECK(way.hops.size() == 5);
  CHECK(m.at(way.hops[3].id) == machine_element{element_kind::nic, 4095, 0, 0});
}

}  // namespace routes_test
