// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/operation_queue.hpp"

#include <deque>
#include <random>

#include <doctest/doctest.h>

#include "tests/seed.hpp"

namespace operation_queue_test {

using namespace troupe;
using actors::operation;
using actors::operation_ptr;

namespace {
operation_ptr numbered(epoch_t epoch) {
  auto op = std::make_shared<operation>();
  op->epoch = epoch;
  return op;
}
}  // namespace

TEST_CASE("operation queue: first in, first out, and nothing that has left is kept") {
  std::mt19937_64 dice{seed()};
  actors::operation_queue queue;
  std::deque<epoch_t> expected;
  std::vector<std::weak_ptr<operation>> gone;
  epoch_t next = 0;
  for (int step = 0; step < 20'000; ++step) {
    const bool more = std::uniform_int_distribution{0, 9}(dice) < (step / 1000 % 2 == 0 ? 6 : 4);
    if (more) {
      queue.push_back(numbered(next));
      expected.push_back(next++);
    } else if (!expected.empty()) {
      REQUIRE(queue.front()->epoch == expected.front());
      gone.emplace_back(queue.front());
      queue.pop_front();
      expected.pop_front();
      REQUIRE(gone.back().expired());
    }
    REQUIRE(queue.empty() == expected.empty());
    REQUIRE(static_cast<std::size_t>(queue.end() - queue.begin()) == expected.size());
  }
  std::size_t at = 0;
  for (const operation_ptr& op : queue) CHECK(op->epoch == expected[at++]);
  queue.clear();
  CHECK(queue.empty());
}

}  // namespace operation_queue_test
