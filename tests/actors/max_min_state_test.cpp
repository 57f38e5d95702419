// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/max_min_state.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <vector>

using namespace troupe::actors;
// Not "index", which is a function in strings.h.
using max_min_index = max_min_state::index;

TEST_CASE("max_min: what one link denies a flow, the flows beside it on another one get") {
  max_min_state s;
  const max_min_index up = s.add_element(0.01), down = s.add_element(0.01);
  const auto join = [&](std::vector<max_min_index> on, std::uint64_t bytes) { return s.join(0, bytes, on, 0); };
  const max_min_index free = join({up}, 1000), both = join({up, down}, 1000);
  join({down}, 1000), join({down}, 1000);
  CHECK(s.unsettled());
  s.settle(0);
  CHECK(s.rate(both) == doctest::Approx(0.01 / 3));
  CHECK(s.rate(free) == doctest::Approx(0.02 / 3));  // equal shares of each link would be 0.005
  CHECK(s.next() == 150'000);
  CHECK(s.take_done(149'999) == max_min_state::none);
  CHECK(s.take_done(150'000) == free);
  CHECK(!s.unsettled());  // the others are held back elsewhere
  CHECK(s.next() == 300'000);
  CHECK(s.take_done(300'000) == both);
  CHECK(s.size() == 2);
}

TEST_CASE("max_min: a limit of its own, no limit, no bytes") {
  max_min_state s;
  const max_min_index rails = s.add_element(0.04), endless = s.add_element(0);
  const std::array<max_min_index, 2> way{rails, endless};
  const max_min_index one = s.join(0, 1000, way, 0.01), other = s.join(0, 1000, way, 0);
  s.settle(0);
  CHECK(s.rate(one) == doctest::Approx(0.01));
  CHECK(s.rate(other) == doctest::Approx(0.03));
  const std::array<max_min_index, 1> nothing{endless};
  const max_min_index at_once = s.join(5, 1 << 20, nothing, 0), empty = s.join(5, 0, way, 0);
  CHECK(s.take_done(5) == at_once);
  CHECK(s.take_done(5) == empty);
}

namespace {

using flow_ways = std::map<max_min_index, std::vector<max_min_index>>;

/// An allocation is max-min fair exactly if every flow has a bottleneck: a full element on which nobody is faster.
void require_fair(const max_min_state& s, const flow_ways& there, const std::vector<double>& capacity) {
  REQUIRE(s.size() == there.size());
  std::vector<double> used(capacity.size()), fastest(capacity.size());
  for (const auto& [f, way] : there)
    for (const max_min_index e : way) used[e] += s.rate(f), fastest[e] = std::max(fastest[e], s.rate(f));
  for (std::size_t e = 0; e < capacity.size(); ++e) REQUIRE(used[e] <= capacity[e] * (1 + 1e-9));
  for (const auto& [f, way] : there)
    REQUIRE(std::any_of(way.begin(), way.end(), [&, flow = f](max_min_index e) {
      return used[e] >= capacity[e] * (1 - 1e-9) && s.rate(flow) >= fastest[e] * (1 - 1e-9);
    }));
}

}  // namespace

TEST_CASE("max_min: whatever comes and goes, every flow has a bottleneck and no element is overfull") {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    max_min_state s;
    const max_min_index elements = round % 2 == 0 ? 12 : 90;  // ways are of about two
    std::vector<double> capacity;
    for (max_min_index e = 0; e < elements; ++e) {
      capacity.push_back(0.001 * static_cast<double>(1 + random() % 9));
      s.add_element(capacity.back());
    }
    flow_ways there;
    std::int64_t now = 0;
    for (int change = 0; change < 200; ++change) {
      if (random() % 3 != 0) {
        std::vector<max_min_index> way;
        for (max_min_index e = 0; e < elements; ++e)
          if (random() % (elements / 2 - 1) == 0) way.push_back(e);
        if (way.empty()) continue;
        there[s.join(now, 1 + random() % 100'000, way, 0)] = way;
      } else if (!s.unsettled() && s.size() > 0) {
        now = s.next();
        for (max_min_index f = s.take_done(now); f != max_min_state::none; f = s.take_done(now)) there.erase(f);
      }
      if (random() % 4 == 0) continue;  // several changes at once
      if (s.unsettled()) s.settle(now);
      require_fair(s, there, capacity);
    }
  }
}

// Where all elements are alike, many are equally full at a time, and flows can be held by several of their elements.
namespace {

/// Ranks on a torus: four links each.
struct torus {
  max_min_index side;

  max_min_index ranks() const { return side * side; }
  std::vector<double> add_to(max_min_state& s) const {
    std::vector<double> capacity(std::size_t{4} * ranks(), 0.01);
    for (const double c : capacity) s.add_element(c);
    return capacity;
  }
  /// Along x first, then along y, the shorter way round.
  std::vector<max_min_index> way(max_min_index from, max_min_index to) const {
    std::vector<max_min_index> links;
    max_min_index at[2] = {from % side, from / side};
    const max_min_index end[2] = {to % side, to / side};
    for (max_min_index d = 0; d < 2; ++d)
      while (at[d] != end[d]) {
        const bool up = (end[d] + side - at[d]) % side <= side / 2;
        links.push_back(4 * (at[0] + side * at[1]) + 2 * d + (up ? 0 : 1));
        at[d] = (at[d] + (up ? 1 : side - 1)) % side;
      }
    return links;
  }
};

}  // namespace

TEST_CASE("max_min: on a torus of equal links, few come and go at a time") {
  std::mt19937 random(11);
  for (const max_min_index side : {4u, 7u, 8u}) {
    max_min_state s;
    const torus links{side};
    const std::vector<double> capacity = links.add_to(s);
    flow_ways there;
    std::int64_t now = 0;
    const max_min_index ranks = links.ranks();
    for (int change = 0; change < 600; ++change) {
      // Many at first, then a few at a time, as many as go.
      for (auto come = change == 0 ? 4 * ranks : s.size() < 4 * ranks ? random() % 4 : 0; come > 0; --come) {
        const auto from = static_cast<max_min_index>(random() % ranks),
                   to = static_cast<max_min_index>(random() % ranks);
        if (from == to) continue;
        const auto way = links.way(from, to);
        there[s.join(now, 1000 * (1 + random() % 3), way, 0)] = way;
      }
      if (s.unsettled()) s.settle(now);
      require_fair(s, there, capacity);
      now = s.next();
      for (max_min_index f = s.take_done(now); f != max_min_state::none; f = s.take_done(now)) there.erase(f);
    }
  }
}

TEST_CASE("max_min: on a torus where everybody sends to everybody, four at a time") {
  std::mt19937 random(12);
  for (const bool alike : {true, false})
    for (const max_min_index side : {5u, 6u, 9u}) {
      CAPTURE(alike);
      CAPTURE(side);
      max_min_state s;
      const torus links{side};
      const std::vector<double> capacity = links.add_to(s);
      const max_min_index ranks = links.ranks();
      flow_ways there;
      std::map<max_min_index, max_min_index> sender;  // by flow
      std::vector<max_min_index> next(ranks, 1);      // distance of the next peer
      std::int64_t now = 0;
      const auto send = [&](max_min_index from) {
        if (next[from] == ranks) return;
        const auto way = links.way(from, (from + next[from]++) % ranks);
        const auto flow = s.join(now, alike ? 4096 : 1 + random() % 4096, way, 0);
        there[flow] = way;
        sender[flow] = from;
      };
      for (int stream = 0; stream < 4; ++stream)
        for (max_min_index r = 0; r < ranks; ++r) send(r);
      std::size_t ended = 0;
      while (!there.empty()) {
        if (s.unsettled()) s.settle(now);
        require_fair(s, there, capacity);
        now = s.next();
        std::vector<max_min_index> free;
        for (max_min_index f = s.take_done(now); f != max_min_state::none; f = s.take_done(now)) {
          there.erase(f);
          free.push_back(sender.at(f));
          ++ended;
        }
        for (const max_min_index r : free) send(r);
      }
      CHECK(ended == std::size_t{ranks} * (ranks - 1));
    }
}
