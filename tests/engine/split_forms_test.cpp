// SPDX-License-Identifier: Apache-2.0
// Splits and duplicates by a thread that drives several ranks, and those that fail on some ranks.

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <system_error>
#include <vector>

#include "tests/engine/jobs.hpp"

using namespace engine_tests;
using namespace std::chrono_literals;

namespace {

void sums(std::vector<communicator>& parts, std::int32_t expected) {
  std::vector<std::int32_t> data(parts.size(), 1);
  troupe::group together;
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].all_reduce_async(together, data[i]);
  together.wait();
  for (const std::int32_t sum : data) CHECK(sum == expected);
}

}  // namespace

TEST_CASE("one thread splits and duplicates the communicators of all its ranks") {
  for (const char* layout : {"", "2x2"}) {
    troupe::engine_options options;
    options.layout = layout;
    troupe::engine engine(options);
    auto world = engine.communicators(4);
    std::vector<communicator> halves(4), twins(4);
    troupe::group together;
    for (std::size_t r = 0; r < 4; ++r) {
      world[r].split_async(together, halves[r], static_cast<int>(r) / 2, -static_cast<int>(r));
      world[r].duplicate_async(together, twins[r]);
    }
    together.wait();
    for (std::size_t r = 0; r < 4; ++r) {
      CHECK(halves[r].size() == 2);
      CHECK(halves[r].rank() == static_cast<int>(1 - r % 2));
      CHECK(twins[r].size() == 4);
      CHECK(twins[r].rank() == static_cast<int>(r));
    }
    sums(halves, 2);
    sums(twins, 4);

    std::vector<troupe::request> all;
    std::vector<communicator> some(4);
    for (std::size_t r = 0; r < 4; ++r) all.push_back(world[r].split_async(some[r], r == 1 ? -1 : 5, 0));
    for (auto& one : all) one.wait();
    CHECK_FALSE(some[1]);
    some.erase(some.begin() + 1);
    sums(some, 3);
    // In place of the one that is split.
    all.clear();
    for (auto& c : twins) all.push_back(c.duplicate_async(c));
    for (auto& one : all) one.wait();
    sums(twins, 4);
  }
}

TEST_CASE("a split that fails says so, and leaves what it should have written alone") {
  troupe::engine engine;
  auto world = engine.communicators(2);
  troupe::call_options soon;
  soon.deadline = 1ms;
  communicator part;
  CHECK(world[0].try_split(part, 0, 0, soon) == make_error_code(troupe::errc::timed_out));
  CHECK_FALSE(part);
  CHECK(world[1].try_duplicate(part) == make_error_code(troupe::errc::timed_out));
  CHECK_FALSE(part);
  std::vector<communicator> twins(2);
  troupe::request other = world[1].duplicate_async(twins[1]);
  CHECK(world[0].try_duplicate(twins[0]) == std::error_code{});
  other.wait();
  sums(twins, 2);
}

TEST_CASE("a rank that drops its part has left it, and the others are told") {
  troupe::engine engine;
  auto world = engine.communicators(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<communicator> parts(3);
    std::vector<troupe::request> all;
    for (std::size_t r = 0; r < 3; ++r) all.push_back(world[r].duplicate_async(parts[r]));
    for (auto& one : all) one.wait();
    parts[0] = {};
    CHECK_THROWS_WITH_AS(parts[1].barrier(), doctest::Contains("rank 0 left"), troupe::error);
  }
}
