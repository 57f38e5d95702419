#include "topology/rings.hpp"

#include "memory/error.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

using namespace troupe;

namespace {

using edge = std::pair<int, int>;

bool refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const error& e) {
    return e.code_value() == errc::invalid_argument;
  }
  return false;
}

std::vector<edge> edges(const ring_order& order) {
  std::vector<edge> result;
  for (std::size_t i = 0; i < order.size(); ++i) result.emplace_back(order[i], order[(i + 1) % order.size()]);
  return result;
}

int totient(int n) {
  int count = 0;
  for (int s = 1; s < n; ++s) count += std::gcd(s, n) == 1 ? 1 : 0;
  return std::max(count, 1);
}

// Every group of ranks (a server, a card) is left exactly once, or never if it is alone.
template <class Group>
void check_left_once(const ring_order& order, Group group) {
  std::map<decltype(group(0)), int> left;
  for (int rank : order) left[group(rank)] += 0;
  for (const auto& [a, b] : edges(order))
    if (group(a) != group(b)) ++left[group(a)];
  for (const auto& entry : left) CHECK(entry.second == (left.size() == 1 ? 0 : 1));
}

}  // namespace

TEST_CASE("identity ring") {
  CHECK(identity_ring(4) == ring_order{0, 1, 2, 3});
  CHECK(refused([] { (void)identity_ring(0); }));
}

TEST_CASE("positions invert an order and refuse what is none") {
  CHECK(ring_positions({2, 0, 1}) == std::vector<int>{1, 2, 0});
  CHECK(refused([] { (void)ring_positions({0, 0}); }));
  CHECK(refused([] { (void)ring_positions({0, 2}); }));
  CHECK(refused([] { (void)ring_positions({-1}); }));
}

TEST_CASE("channel 0 of a grid is the rank order, however the ranks are numbered otherwise") {
  CHECK(hierarchical_ring(layout::grid(2, 3, 4)) == identity_ring(24));
  CHECK(hierarchical_ring(layout::parse("1.0.0,0.1.0,0.0.0,1.1.0")) == ring_order{2, 1, 0, 3});
}

TEST_CASE("property: every channel visits each rank once and leaves each server and card once") {
  std::mt19937_64 random(seed());
  CAPTURE(seed());
  for (int round = 0; round < 300; ++round) {
    const auto up_to = [&](int n) { return std::uniform_int_distribution<int>(1, n)(random); };
    layout l = layout::grid(up_to(4), up_to(5), up_to(4));
    if (round % 3 == 1) l = layout::flat(up_to(20));
    if (round % 3 == 2) {
      std::vector<coordinates> places;
      for (int n = up_to(20); n > 0; --n) places.push_back({up_to(3) - 1, up_to(4) - 1, up_to(4) - 1});
      l = layout::placed(places);
    }
    const int channel = up_to(12) - 1;
    const std::string of = l.to_string();
    CAPTURE(of);
    CAPTURE(channel);
    const ring_order order = hierarchical_ring(l, channel);
    REQUIRE(order.size() == static_cast<std::size_t>(l.size()));
    (void)ring_positions(order);  // throws unless it is a permutation
    check_left_once(order, [&](int r) { return l.of(r).server; });
    check_left_once(order, [&](int r) { return std::pair(l.of(r).server, l.of(r).card); });
    const auto of_channels = channel_rings(l, channel + 1);
    CHECK(of_channels.back() == order);
  }
}

TEST_CASE("one server in full mesh: the first φ(n) channels share no directed link") {
  for (int n = 2; n <= 40; ++n) {
    CAPTURE(n);
    for (const layout& l : {layout::flat(n), layout::grid(1, n)}) {
      std::set<edge> used;
      for (const auto& ring : channel_rings(l, totient(n)))
        for (const edge& e : edges(ring)) CHECK(used.insert(e).second);
      CHECK(used.size() == static_cast<std::size_t>(n * totient(n)));
    }
  }
}

TEST_CASE("several servers: as many channels as cards enter and leave every card once") {
  for (int cards = 1; cards <= 9; ++cards)
    for (int block = 0; block < 3; ++block) {
      const layout l = layout::grid(3, cards, 2);
      CAPTURE(cards);
      std::set<std::pair<int, int>> entered, left;  // (server, card)
      for (int c = 0; c < cards; ++c)
        for (const auto& [a, b] : edges(hierarchical_ring(l, block * cards + c))) {
          if (l.of(a).server == l.of(b).server) continue;
          CHECK(left.emplace(l.of(a).server, l.of(a).card).second);
          CHECK(entered.emplace(l.of(b).server, l.of(b).card).second);
        }
      CHECK(left.size() == static_cast<std::size_t>(3 * cards));
      CHECK(entered.size() == static_cast<std::size_t>(3 * cards));
    }
}

TEST_CASE("several servers of one card: channels of one direction enter and leave at different core groups") {
  const layout l = layout::grid(2, 1, 4);
  for (int way = 0; way < 2; ++way) {
    std::set<int> entered, left;
    for (int c = way; c < 8; c += 2)
      for (const auto& [a, b] : edges(hierarchical_ring(l, c)))
        if (l.of(a).server != l.of(b).server) left.insert(a), entered.insert(b);
    CHECK(left.size() == 8);
    CHECK(entered.size() == 8);
  }
}

TEST_CASE("inside a card, odd channels run the ring bus backwards") {
  const layout l = layout::grid(1, 1, 4);
  CHECK(hierarchical_ring(l, 0) == ring_order{0, 1, 2, 3});
  std::set<edge> used;
  for (const auto& ring : channel_rings(l, 2))
    for (const auto& [a, b] : edges(ring)) {
      CHECK(used.emplace(a, b).second);
      CHECK((std::abs(a - b) == 1 || std::abs(a - b) == 3));  // neighbours on the bus
    }
}

TEST_CASE("rings refuse nonsense") {
  CHECK(refused([] { (void)hierarchical_ring(layout::flat(3), -1); }));
  CHECK(refused([] { (void)channel_rings(layout::flat(3), -1); }));
  CHECK_THROWS_AS((void)hierarchical_ring(layout{0, 1, 1}), error);
}
