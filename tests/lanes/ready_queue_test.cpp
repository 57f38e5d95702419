// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/ready_queue.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <random>
#include <thread>
#include <vector>

using troupe::actors::ready_queue;

TEST_CASE("ready_queue: one thread sees first in first out, across the overflow and back") {
  ready_queue<int> queue(4);
  std::vector<int> items(100);
  CHECK(queue.empty());
  CHECK(queue.pop() == nullptr);
  for (int lap = 0; lap < 3; ++lap) {
    for (auto& item : items) queue.push(&item);
    CHECK(queue.size() == items.size());
    for (auto& item : items) REQUIRE(queue.pop() == &item);
    CHECK(queue.pop() == nullptr);
    CHECK(queue.empty());
  }
}

TEST_CASE("ready_queue: what overflowed is not overtaken for ever by new elements") {
  ready_queue<int> queue(2);
  std::vector<int> first(5);
  int later = 0;
  for (auto& item : first) queue.push(&item);
  // One in, one out: with a fixed number inside, each of the first five must come out within ten turns.
  std::size_t seen = 0;
  for (int turn = 0; turn < 10; ++turn) {
    queue.push(&later);
    const int* popped = queue.pop();
    REQUIRE(popped != nullptr);
    seen += popped != &later;
  }
  CHECK(seen == first.size());
}

namespace {

struct item {
  std::size_t producer = 0;
  std::size_t number = 0;
  std::atomic<int> taken{0};
};

// Every element comes out exactly once, with the contents its producer wrote.
void stress(std::size_t capacity, std::size_t producers, std::size_t consumers, std::size_t each) {
  ready_queue<item> queue(capacity);
  std::vector<std::vector<item>> items(producers);
  for (auto& own : items) own = std::vector<item>(each);
  std::atomic<std::size_t> popped{0};
  std::atomic<std::size_t> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t p = 0; p < producers; ++p)
    threads.emplace_back([&, p] {
      std::minstd_rand random(static_cast<unsigned>(seed() + p));
      for (std::size_t i = 0; i < each; ++i) {
        items[p][i].producer = p;  // plain writes: the queue must publish them
        items[p][i].number = i;
        queue.push(&items[p][i]);
        if (random() % 64 == 0) std::this_thread::yield();
      }
    });
  for (std::size_t c = 0; c < consumers; ++c)
    threads.emplace_back([&] {
      while (popped.load() < producers * each) {
        item* got = queue.pop();
        if (got == nullptr) {
          std::this_thread::yield();
          continue;
        }
        const bool right = &items[got->producer][got->number] == got && got->taken.fetch_add(1) == 0;
        wrong.fetch_add(!right);
        popped.fetch_add(1);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
  CHECK(popped.load() == producers * each);
  CHECK(queue.empty());
  for (auto& own : items)
    for (auto& one : own) REQUIRE(one.taken.load() == 1);
}

}  // namespace

TEST_CASE("ready_queue: many producers and consumers, ring only") { stress(4096, 3, 3, 40'000); }
TEST_CASE("ready_queue: many producers and consumers, tiny ring, mostly overflow") { stress(2, 4, 2, 20'000); }
TEST_CASE("ready_queue: many threads on few cores") { stress(8, 8, 8, 5'000); }
