// SPDX-License-Identifier: Apache-2.0
#include "actors/elements/transfers_under_way.hpp"

#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

using namespace troupe::actors;

TEST_CASE("an asker is told when its last piece is back, and not at all if one was lost") {
  transfers_under_way<std::string, int> engine;
  const auto a = engine.begin("a", 3), b = engine.begin("b", 2), c = engine.begin("c", 1);
  CHECK_FALSE(engine.came_back(a, true));
  CHECK(engine.came_back(c, true) == "c");
  CHECK_FALSE(engine.came_back(b, false));
  CHECK_FALSE(engine.came_back(a, true));
  CHECK_FALSE(engine.came_back(b, true));
  CHECK(engine.came_back(a, true) == "a");
  CHECK(engine.flush(1));
}

TEST_CASE("a flush waits for what began before it, lost or not, and for nothing later") {
  transfers_under_way<std::string, int> engine;
  CHECK(engine.flush(0));
  const auto a = engine.begin("a", 1);
  CHECK_FALSE(engine.flush(1));
  const auto b = engine.begin("b", 1);
  CHECK_FALSE(engine.flush(2));
  const auto c = engine.begin("c", 1);
  CHECK(engine.came_back(b, true) == "b");
  CHECK_FALSE(engine.flushed());
  CHECK_FALSE(engine.came_back(a, false));
  CHECK(engine.flushed() == 1);
  CHECK(engine.flushed() == 2);
  CHECK_FALSE(engine.flushed());
  CHECK(engine.came_back(c, true) == "c");
}

TEST_CASE("an engine that ends leaves no flush without its answer") {
  transfers_under_way<std::string, int> engine;
  engine.begin("a", 2);
  CHECK_FALSE(engine.flush(1));
  engine.begin("b", 1);
  CHECK_FALSE(engine.flush(2));
  engine.end();
  CHECK(engine.flushed() == 1);
  CHECK(engine.flushed() == 2);
  CHECK_FALSE(engine.flushed());
}

TEST_CASE("transfers and flushes in any order: every flush is answered when all before it are back") {
  std::mt19937_64 random(seed());
  transfers_under_way<int, int> engine;
  std::set<std::uint64_t> open;
  std::vector<std::uint64_t> ends;  // of flush k: the transfers before it
  int answered = 0;
  std::uint64_t begun = 0;
  const auto check_answers = [&] {
    while (const auto answer = engine.flushed()) {
      CHECK(*answer == answered);
      REQUIRE((open.empty() || *open.begin() >= ends[static_cast<std::size_t>(answered)]));
      ++answered;
    }
    if (answered < static_cast<int>(ends.size())) REQUIRE(*open.begin() < ends[static_cast<std::size_t>(answered)]);
  };
  for (int step = 0; step < 20'000; ++step) {
    const auto what = random() % 5;
    if (what < 2) {
      open.insert(engine.begin(static_cast<int>(begun), 1));
      ++begun;
    } else if (what == 2) {
      if (!engine.flush(static_cast<int>(ends.size()))) ends.push_back(begun);
      else CHECK(open.empty());
    } else if (!open.empty()) {
      const auto which = std::next(open.begin(), static_cast<std::ptrdiff_t>(random() % open.size()));
      const std::uint64_t number = *which;
      open.erase(which);
      CHECK(engine.came_back(number, true) == static_cast<int>(number));
    }
    check_answers();
  }
}
