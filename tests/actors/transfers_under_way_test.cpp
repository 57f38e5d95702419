// SPDX-License-Identifier: Apache-2.0
#include "actors/elements/transfers_under_way.hpp"

#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>

using namespace troupe::actors;

TEST_CASE("an asker is told when its last piece is back, and not at all if one was lost") {
  transfers_under_way<std::string> engine;
  const auto a = engine.begin("a", 3), b = engine.begin("b", 2), c = engine.begin("c", 1);
  CHECK_FALSE(engine.came_back(a, true));
  CHECK(engine.came_back(c, true) == "c");
  CHECK_FALSE(engine.came_back(b, false));
  CHECK_FALSE(engine.came_back(a, true));
  CHECK_FALSE(engine.came_back(b, true));
  CHECK(engine.came_back(a, true) == "a");
  for (const auto number : {a, b, c}) CHECK_FALSE(engine.open(number));
}

TEST_CASE("what is dropped is nobody's, whatever comes back of it; others' transfers go on") {
  transfers_under_way<std::string> engine;
  const auto a = engine.begin("a", 2), b = engine.begin("b", 1), other = engine.begin("a", 1);
  CHECK_FALSE(engine.came_back(a, true));
  engine.drop([](const std::string& asker) { return asker == "a"; });
  CHECK_FALSE(engine.open(a));
  CHECK_FALSE(engine.open(other));
  const auto later = engine.begin("a", 1);
  CHECK(engine.open(later));
  CHECK(engine.came_back(b, true) == "b");
  CHECK(engine.came_back(later, true) == "a");
}

TEST_CASE(
    "transfers and drops in any order: a number is open until its last piece is back or its asker's are dropped") {
  std::mt19937_64 random(seed());
  transfers_under_way<int> engine;
  struct transfer {
    int asker;
    std::size_t pieces;
  };
  std::map<std::uint64_t, transfer> open;
  std::uint64_t begun = 0;
  for (int step = 0; step < 20'000; ++step) {
    const auto what = random() % 8;
    if (what < 3) {
      const transfer one{static_cast<int>(random() % 5), 1 + random() % 3};
      const std::uint64_t number = engine.begin(one.asker, one.pieces);
      CHECK(number == begun++);
      open[number] = one;
    } else if (what == 3) {
      const int asker = static_cast<int>(random() % 5);
      engine.drop([&](int of) { return of == asker; });
      std::erase_if(open, [&](const auto& one) { return one.second.asker == asker; });
    } else if (!open.empty()) {
      const auto which = std::next(open.begin(), static_cast<std::ptrdiff_t>(random() % open.size()));
      const auto told = engine.came_back(which->first, true);
      const bool last = --which->second.pieces == 0;
      CHECK(told.has_value() == last);
      if (told) CHECK(*told == which->second.asker);
      if (last) open.erase(which);
    }
    const std::uint64_t any = random() % (begun + 1);
    REQUIRE(engine.open(any) == open.contains(any));
  }
}
