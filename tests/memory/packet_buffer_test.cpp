// SPDX-License-Identifier: Apache-2.0
#include "memory/packet_buffer.hpp"
#include "tests/memory/values.hpp"

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <set>

using namespace troupe;
using memory_tests::below;
using memory_tests::random_engine;

namespace {

// Owns memory, so that a packet lost, freed twice or read after its end shows under a sanitizer.
using packet = std::unique_ptr<std::uint64_t>;
using model = std::map<packet_key, std::uint64_t>;

packet_key random_key(random_engine& random, std::uint32_t jobs) {
  const auto part = [&](std::size_t end) { return static_cast<std::uint32_t>(below(random, end)); };
  return {part(jobs), part(6), part(3), part(8)};
}

void put(packet_buffer<packet>& buffer, model& wanted, const packet_key& key, std::uint64_t value) {
  auto owned = std::make_unique<std::uint64_t>(value);
  const bool expected = !wanted.contains(key) && wanted.size() < buffer.limit();
  REQUIRE(buffer.put(key, std::move(owned)) == expected);
  REQUIRE((owned == nullptr) == expected);  // a refused packet stays with its sender
  if (expected) wanted.emplace(key, value);
}

void take(packet_buffer<packet>& buffer, model& wanted, const packet_key& key) {
  const auto found = wanted.find(key);
  REQUIRE(buffer.contains(key) == (found != wanted.end()));
  const std::optional<packet> taken = buffer.take(key);
  REQUIRE(taken.has_value() == (found != wanted.end()));
  if (!taken) return;
  REQUIRE(**taken == found->second);
  wanted.erase(found);
}

void remove_job(packet_buffer<packet>& buffer, model& wanted, std::uint64_t job) {
  model removed;
  const std::size_t count = buffer.remove_job(job, [&](const packet_key& key, packet&& value) {
    REQUIRE(removed.emplace(key, *value).second);  // each exactly once
  });
  model expected;
  for (auto next = wanted.begin(); next != wanted.end();)
    if (next->first.job == job) expected.insert(wanted.extract(next++));
    else ++next;
  REQUIRE(count == expected.size());
  REQUIRE(removed == expected);
}

void check_all(packet_buffer<packet>& buffer, const model& wanted) {
  REQUIRE(buffer.size() == wanted.size());
  for (const auto& [key, value] : wanted) {
    const packet* found = buffer.find(key);
    REQUIRE(found != nullptr);
    REQUIRE(**found == value);
  }
}

}  // namespace

TEST_CASE("the packet buffer behaves like a bounded map") {
  random_engine random{seed()};
  for (std::size_t capacity : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{40},
                               std::size_t{100}, std::size_t{500}}) {
    packet_buffer<packet> buffer{capacity};
    model wanted;
    for (int step = 0; step < 6000; ++step) {
      const packet_key key = random_key(random, 5);
      // Long phases that mostly fill and mostly empty, so that both a full and an empty buffer are reached.
      const std::size_t fills = (step / 1000) % 2 == 0 ? 80 : 25;
      const std::size_t choice = below(random, 1000);
      if (choice < 2) remove_job(buffer, wanted, key.job);
      else if (choice < fills * 10) put(buffer, wanted, key, random());
      else take(buffer, wanted, key);
      if (step % 100 == 0) check_all(buffer, wanted);
    }
    check_all(buffer, wanted);
    CHECK(buffer.statistics().high_water <= buffer.limit());
  }
}

TEST_CASE("capacity, reserve and fill") {
  packet_buffer<int> buffer{90};
  CHECK(buffer.capacity() == 90);
  CHECK(buffer.limit() == 100);  // 10 % of the whole buffer is the reserve
  for (std::uint32_t i = 0; i < 90; ++i) REQUIRE(buffer.put({1, i, 0, 0}, 1));
  CHECK(buffer.statistics().fill == doctest::Approx(1.0));
  CHECK(buffer.statistics().average_fill == doctest::Approx(91.0 / 2 / 90));
  for (std::uint32_t i = 0; i < 10; ++i) REQUIRE(buffer.put({2, i, 0, 0}, 2));
  CHECK_FALSE(buffer.put({3, 0, 0, 0}, 3));
  CHECK(buffer.statistics().refused == 1);
  CHECK_FALSE(buffer.put({1, 0, 0, 0}, 9));  // present: not a refusal for want of room
  CHECK(buffer.statistics().refused == 1);
  CHECK(*buffer.find({1, 0, 0, 0}) == 1);
  CHECK(buffer.statistics().fill > 1.0);
  CHECK(buffer.remove_job(1) == 90);
  CHECK(buffer.size() == 10);
  CHECK(buffer.statistics().high_water == 100);
  packet_buffer<int> moved{std::move(buffer)};
  CHECK(moved.take({2, 9, 0, 0}) == 2);
  CHECK(buffer.empty());
  CHECK_FALSE(buffer.put({1, 1, 1, 1}, 1));  // moved from: refuses, does not crash
  CHECK_FALSE(buffer.take({1, 1, 1, 1}).has_value());
}

TEST_CASE("each part of the key distinguishes") {
  packet_buffer<int> buffer{10};
  REQUIRE(buffer.put({1, 2, 3, 4}, 0));
  for (packet_key other :
       {packet_key{0, 2, 3, 4}, packet_key{1, 0, 3, 4}, packet_key{1, 2, 0, 4}, packet_key{1, 2, 3, 0},
        packet_key{2, 1, 3, 4}, packet_key{1, 2, 4, 3}, packet_key{3, 4, 1, 2}})
    CHECK_FALSE(buffer.contains(other));
}

TEST_CASE("regular keys spread over the hash") {
  std::set<std::uint64_t> slots;
  for (std::uint32_t node = 0; node < 32; ++node)
    for (std::uint32_t sequence = 0; sequence < 32; ++sequence) slots.insert(hash_of({7, node, 0, sequence}) % 1024);
  // 1024 keys thrown at 1024 slots hit 1 - 1/e of them, about 647; fewer than 560 is out of the question by chance.
  CHECK(slots.size() > 560);
}

TEST_CASE("packet buffer: what is being read keeps its place, and the buffer never holds more than its limit") {
  packet_buffer<packet> buffer{8};
  REQUIRE(buffer.limit() == 9);
  for (std::uint32_t k = 0; k < 9; ++k) REQUIRE(buffer.put({0, k, 0, 0}, std::make_unique<std::uint64_t>(k)));
  CHECK_FALSE(buffer.begin_reading({1, 0, 0, 0}));
  const auto read = buffer.begin_reading({0, 3, 0, 0});
  REQUIRE(read);
  CHECK(**read == 3);
  CHECK(buffer.size() == 8);
  CHECK(buffer.occupied() == 9);
  CHECK(buffer.statistics().fill == 9.0 / 8);
  CHECK_FALSE(buffer.contains({0, 3, 0, 0}));
  auto next = std::make_unique<std::uint64_t>(9);
  CHECK_FALSE(buffer.put({0, 9, 0, 0}, std::move(next)));
  CHECK(next != nullptr);  // NOLINT(bugprone-use-after-move): what is refused was not taken
  buffer.end_reading();
  CHECK(buffer.occupied() == 8);
  CHECK(buffer.put({0, 9, 0, 0}, std::move(next)));
  CHECK(buffer.statistics().high_water == 9);
}
