// SPDX-License-Identifier: Apache-2.0
// Communicators made of communicators, and how independent they are.

#include <doctest/doctest.h>

#include <thread>

#include "tests/engine/jobs.hpp"

namespace engine_tests::split_test {

namespace {

/// Ranks of the world in the order of the new communicator.
std::vector<std::int32_t> members(communicator& of, int world_rank) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(of.size()));
  const std::int32_t mine[1] = {world_rank};
  of.all_gather(mine, all);
  return all;
}

}  // namespace

TEST_CASE("split: colors form groups, keys order them, equal keys keep the order of ranks") {
  troupe::engine engine;
  engine.run(6, [](communicator& world) {
    const int me = world.rank();
    communicator by_parity = world.split(me % 2, -me);
    CHECK(by_parity.size() == 3);
    CHECK(by_parity.name().find("world.split") == 0);
    CHECK(members(by_parity, me) == (me % 2 ? std::vector<std::int32_t>{5, 3, 1} : std::vector<std::int32_t>{4, 2, 0}));
    communicator same_key = world.split(1'000'000 + me / 3, 7);
    CHECK(members(same_key, me) == (me < 3 ? std::vector<std::int32_t>{0, 1, 2} : std::vector<std::int32_t>{3, 4, 5}));
    communicator alone = world.split(me, 0);
    CHECK(alone.size() == 1);
    CHECK(members(alone, me) == std::vector<std::int32_t>{me});
  });
}

TEST_CASE("split: a negative color gets an empty communicator") {
  troupe::engine engine;
  engine.run(4, [](communicator& world) {
    communicator some = world.split(world.rank() == 2 ? -1 : 0, 0);
    CHECK(static_cast<bool>(some) == (world.rank() != 2));
    CHECK(some.size() == (world.rank() == 2 ? 0 : 3));
    if (some) CHECK(members(some, world.rank()) == std::vector<std::int32_t>{0, 1, 3});
    communicator nobody = world.split(-5, 0);
    CHECK_FALSE(nobody);
    world.barrier();
  });
}

TEST_CASE("split of a split of a split, and duplicates") {
  troupe::engine engine;
  engine.run(8, [](communicator& world) {
    const int me = world.rank();
    communicator half = world.split(me / 4, 0);
    communicator quarter = half.split(half.rank() / 2, 0);
    communicator one = quarter.split(quarter.rank(), 0);
    CHECK(one.size() == 1);
    CHECK(members(quarter, me) == std::vector<std::int32_t>{me / 2 * 2, me / 2 * 2 + 1});
    communicator twin = half.duplicate();
    CHECK(twin.size() == 4);
    CHECK(twin.rank() == half.rank());
    CHECK(twin.name() != half.name());
    std::vector<std::int32_t> a(100, 1), b(100, 2);
    // Operations of different communicators may be called in different orders by different ranks.
    if (me % 2) {
      auto first = half.all_reduce_async(a);
      twin.all_reduce(b);
      first.wait();
    } else {
      auto first = twin.all_reduce_async(b);
      half.all_reduce(a);
      first.wait();
    }
    CHECK(a == std::vector<std::int32_t>(100, 4));
    CHECK(b == std::vector<std::int32_t>(100, 8));
  });
}

TEST_CASE("every collective on the parts of a machine with a layout") {
  troupe::engine_options options;
  options.layout = "2x2x2";
  troupe::engine engine(options);
  engine.run(8, [](communicator& world) {
    communicator part = world.split(world.rank() % 3, -world.rank());
    for (const collective what : all_collectives) {
      job j;
      j.what = what;
      j.ranks = part.size();
      j.count = 77;
      j.root = part.size() - 1;
      CHECK(wrong_bytes(part, j) == 0);
    }
  });
}

TEST_CASE("several communicators at once, each from a thread of its own") {
  troupe::engine engine;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&engine, t] {
      auto comms = engine.communicators(2 + t);
      for (int i = 0; i < 30; ++i) {
        job j;
        j.what = all_collectives[static_cast<std::size_t>(i + t) % all_collectives.size()];
        j.ranks = 2 + t;
        j.count = static_cast<std::size_t>(i * 31);
        j.root = t;
        j.salt = static_cast<std::uint64_t>(100 * t + i);
        CHECK(wrong_bytes(comms, j) == 0);
      }
    });
  for (auto& t : threads) t.join();
}

TEST_CASE("the same ranks with a communicator for each of their threads") {
  troupe::engine engine;
  engine.run(3, [](communicator& world) {
    communicator twins[3] = {world.duplicate(), world.duplicate(), world.duplicate()};
    std::vector<std::thread> threads;
    for (auto& twin : twins)
      threads.emplace_back([&twin] {
        for (int i = 1; i < 40; ++i) {
          std::vector<std::int32_t> data(static_cast<std::size_t>(i), i);
          twin.all_reduce(data);
          CHECK(data.back() == 3 * i);
        }
      });
    for (auto& t : threads) t.join();
    world.barrier();
  });
}

TEST_CASE("several runs at once on one engine") {
  troupe::engine engine;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&engine] {
      for (int i = 0; i < 5; ++i)
        engine.run(4, [](communicator& comm) {
          std::vector<std::int32_t> data(50, comm.rank());
          comm.all_reduce(data);
          CHECK(data[49] == 6);
        });
    });
  for (auto& t : threads) t.join();
}

TEST_CASE("a communicator destroyed early: what it called completes, what it did not is told") {
  troupe::engine engine;
  auto comms = engine.communicators(3);
  std::vector<std::int32_t> a(4, 1), b(4, 1), c(4, 1);
  auto first = comms[2].all_reduce_async(c);
  comms.pop_back();
  auto second = comms[1].all_reduce_async(b);
  comms[0].all_reduce(a);
  first.wait();
  second.wait();
  CHECK(c == std::vector<std::int32_t>(4, 3));
  CHECK_THROWS_WITH_AS(comms[0].barrier(),
                       doctest::Contains("rank 2 left the communicator after 1 operation and cannot call it"),
                       troupe::error);
  communicator moved = std::move(comms[0]);
  CHECK(moved.rank() == 0);
  CHECK_FALSE(comms[0]);
}

TEST_CASE("parents and children outlive each other") {
  troupe::engine engine;
  engine.run(4, [](communicator& world) {
    communicator child;
    {
      communicator middle = world.duplicate();
      child = middle.split(world.rank() / 2, 0);
    }
    std::vector<std::int32_t> data(5, 1);
    child.all_reduce(data);
    CHECK(data[0] == 2);
    child = {};
    world.barrier();
  });
}

TEST_CASE("a part is aborted without the whole") {
  troupe::engine engine;
  engine.run(4, [](communicator& world) {
    communicator half = world.split(world.rank() / 2, 0);
    if (world.rank() == 0) half.abort("enough");
    if (world.rank() < 2) CHECK_THROWS_AS(half.barrier(), troupe::error);
    else half.barrier();
    world.barrier();
  });
}

}  // namespace engine_tests::split_test
