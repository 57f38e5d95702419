// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/caf_compat.hpp"
#include "actors/virtual/element_state.hpp"
#include "actors/virtual/event_queue.hpp"
#include "actors/virtual/virtual_scheduler.hpp"
#include "tests/seed.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

using namespace troupe::actors;

struct numbered {
  std::int64_t number;
};
struct relayed {
  std::int64_t number;
};
TROUPE_BEGIN_MESSAGES(virtual_scheduler_test, 220)
TROUPE_LOCAL_MESSAGE(virtual_scheduler_test, numbered)
TROUPE_LOCAL_MESSAGE(virtual_scheduler_test, relayed)
TROUPE_END_MESSAGES(virtual_scheduler_test)

// -- event_queue ------------------------------------------------------------------------------------------------------

TEST_CASE("events come in the order of time, and of equal times in the order of their making") {
  std::mt19937_64 random(seed());
  struct planned {
    std::int64_t time;
    int number;
  };
  for (const int spread : {1, 3, 40, 5000, 1'000'000}) {
    event_queue<int> queue;
    std::vector<planned> expected;
    std::vector<planned> taken;
    std::int64_t now = 0;
    int made = 0;
    const auto push = [&] {
      const std::int64_t time = now + static_cast<std::int64_t>(random() % static_cast<unsigned>(spread));
      queue.push(time, made);
      expected.push_back({time, made++});
    };
    for (int turn = 0; turn < 20000; ++turn) {
      if (queue.empty() || random() % 100 < (turn < 10000 ? 55u : 45u)) {
        push();
        continue;
      }
      REQUIRE(queue.next_time() >= now);
      const auto [time, number] = queue.pop();
      now = time;
      taken.push_back({time, number});
    }
    while (!queue.empty()) {
      const auto [time, number] = queue.pop();
      taken.push_back({time, number});
    }
    std::stable_sort(expected.begin(), expected.end(),
                     [](const planned& a, const planned& b) { return a.time < b.time; });
    REQUIRE(taken.size() == expected.size());
    for (std::size_t i = 0; i < taken.size(); ++i) {
      REQUIRE(taken[i].time == expected[i].time);
      REQUIRE(taken[i].number == expected[i].number);
    }
  }
}

// -- element states ---------------------------------------------------------------------------------------------------

TEST_CASE("fifo: one after the other, idle time is lost") {
  fifo_state one;
  const auto a = one.reserve(100, 50);
  CHECK(a.start == 100);
  CHECK(a.end == 150);
  const auto b = one.reserve(120, 10);
  CHECK(b.start == 150);
  CHECK(b.end == 160);
  const auto c = one.reserve(500, 1);
  CHECK(c.start == 500);
  CHECK(one.free_at() == 501);
}

TEST_CASE("fifo with units: as many at once, the next one on the unit that is free first") {
  fifo_state two{2};
  CHECK(two.reserve(0, 100).start == 0);
  CHECK(two.reserve(0, 30).start == 0);
  CHECK(two.reserve(10, 5).start == 30);
  CHECK(two.reserve(10, 100).start == 35);
  CHECK(two.reserve(10, 1).start == 100);
  CHECK(two.free_at() == 101);
}

TEST_CASE("fair: equal shares, planned again whenever somebody comes or goes") {
  fair_state link;
  link.join(0, {1}, 100);
  CHECK(link.next().time == 100);
  link.join(50, {2}, 100);  // 1 has 50 left, at half speed: done at 150
  CHECK(link.next().time == 150);
  CHECK(link.next().who.message == 1);
  link.leave(150);  // 2 has got 50 of 100
  CHECK(link.next().time == 200);
  CHECK(link.next().who.message == 2);
  link.leave(200);
  CHECK(link.empty());
}

TEST_CASE("fair: k equal messages are all done at k times the time of one, first come first named") {
  for (const std::uint32_t k : {2u, 3u, 7u, 31u, 64u}) {
    fair_state link;
    for (std::uint32_t m = 0; m < k; ++m) link.join(1000, {m}, 12345);
    std::int64_t last = 0;
    for (std::uint32_t m = 0; m < k; ++m) {
      const auto next = link.next();
      CHECK(next.who.message == m);
      CHECK(next.time >= last);
      CHECK(std::abs(next.time - (1000 + 12345 * static_cast<std::int64_t>(k))) <= 1);
      last = next.time;
      link.leave(next.time);
    }
  }
}

TEST_CASE("fair: whatever comes when, no more is carried than the time allows, and nothing is lost") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 200; ++round) {
    fair_state link;
    std::int64_t now = 0, first = -1, work = 0, idle_from = 0, idle = 0;
    std::size_t open = 0;
    const auto leave = [&] {
      now = link.next().time;
      link.leave(now);
      if (--open == 0) idle_from = now;
    };
    for (std::uint32_t m = 0; m < 40; ++m) {
      const std::int64_t comes = now + static_cast<std::int64_t>(random() % 500);
      while (open > 0 && link.next().time <= comes) leave();
      now = std::max(now, comes);
      if (open == 0 && first >= 0) idle += now - idle_from;
      if (first < 0) first = now;
      const auto alone = static_cast<std::int64_t>(random() % 2000);
      work += alone;
      link.join(now, {m}, alone);
      ++open;
    }
    while (open > 0) leave();
    // Work-conserving: busy exactly as long as the work takes, but for rounding up each completion.
    CHECK(now - first - idle >= work);
    CHECK(now - first - idle <= work + 40);
  }
}

// A caller that asks too early asks again, so that a bound may be early, but not late, and not before anything happens.
TEST_CASE("fair: no message is done before it is said to be") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 100; ++round) {
    fair_state link;
    std::int64_t now = 1'000'000;
    const std::uint32_t count = 1 + static_cast<std::uint32_t>(random() % 60);
    const std::int64_t most = round % 2 == 0 ? 1 : 1'000'000;  // equal ones, or all kinds
    for (std::uint32_t m = 0; m < count; ++m) {
      now += static_cast<std::int64_t>(random() % 1000);
      while (!link.empty() && link.next().time <= now) link.leave(link.next().time);
      link.join(now, {m}, 1'000'000 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)));
    }
    while (!link.empty()) {
      fair_state rest = link;
      for (; !rest.empty(); rest.leave(rest.next().time)) {
        const std::uint32_t who = rest.next().who.message;
        CHECK(link.arrival(who) <= rest.next().time);
        CHECK(link.arrival(who) >= link.next().time);
      }
      link.leave(link.next().time);
    }
  }
}

// -- the scheduler ----------------------------------------------------------------------------------------------------

namespace {

struct virtual_system {
  virtual_system() { system.reset(new caf::actor_system(make_virtual_actor_system(config))); }
  virtual_scheduler& time() { return virtual_scheduler::of(*system); }
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
};

using log_type = std::vector<std::string>;

caf::actor noting(virtual_system& in, const std::string& name, log_type& log,
                  std::vector<caf::actor>* peers = nullptr) {
  virtual_scheduler* time = &in.time();
  return spawn_actor<caf::lazy_init>(*in.system, [=, &log](caf::event_based_actor*) -> caf::behavior {
    return {[=, &log](numbered n) {
              log.push_back(std::to_string(time->now()) + " " + name + " " + std::to_string(n.number));
              if (peers)
                for (const auto& p : *peers) post(p, relayed{n.number});
            },
            [=, &log](relayed n) {
              log.push_back(std::to_string(time->now()) + " " + name + " from another " + std::to_string(n.number));
            }};
  });
}

}  // namespace

TEST_CASE("messages of actors take no virtual time and come before the next event") {
  log_type log;
  {
    virtual_system world;
    std::vector<caf::actor> peers;
    const auto a = noting(world, "a", log, &peers);
    const auto b = noting(world, "b", log), c = noting(world, "c", log);
    peers = {c, b};
    world.time().at(20, a, numbered{3});
    world.time().at(10, a, numbered{1});
    world.time().at(10, b, numbered{2});
    REQUIRE(world.time().run());
    CHECK(world.time().now() == 20);
    CHECK(world.time().events() == 3);
    peers.clear();
  }
  CHECK(log == log_type{"10 a 1", "10 c from another 1", "10 b from another 1", "10 b 2", "20 a 3",
                        "20 c from another 3", "20 b from another 3"});
}

TEST_CASE("what was to be earlier is now, and delayed messages of CAF are due in virtual time") {
  log_type log;
  {
    virtual_system world;
    virtual_scheduler& time = world.time();
    const auto a = noting(world, "a", log);
    const auto late = spawn_actor<caf::lazy_init>(*world.system, [&, a](caf::event_based_actor*) -> caf::behavior {
      return {[&, a](numbered) {
        time.at(5, a, numbered{1});  // 5 is past: the clock stands at 1000000
        post_later(a, std::chrono::microseconds{2}, numbered{2});
      }};
    });
    time.at(1'000'000, late, numbered{0});
    time.at(2'500'000, a, numbered{9});
    REQUIRE(time.run());
  }
  CHECK(log == log_type{"1000000 a 1", "2500000 a 9", "3000000 a 2"});
}

TEST_CASE("the trace is the same for the same run, and another one for another order") {
  const auto trace_of = [](std::vector<std::int64_t> times) {
    log_type log;
    virtual_system world;
    const auto a = noting(world, "a", log), b = noting(world, "b", log);
    for (std::size_t i = 0; i < times.size(); ++i) world.time().at(times[i], i % 2 == 0 ? a : b, numbered{7});
    world.time().run();
    return world.time().trace();
  };
  CHECK(trace_of({1, 2, 3, 3}) == trace_of({1, 2, 3, 3}));
  CHECK(trace_of({1, 2, 3, 3}) != trace_of({2, 1, 3, 3}));
  CHECK(trace_of({1, 2, 3, 3}) != trace_of({1, 2, 3, 4}));
}

TEST_CASE("a run that is stopped leaves nothing behind") {
  log_type log;
  virtual_system world;
  const auto a = noting(world, "a", log);
  for (int i = 0; i < 100; ++i) world.time().at(i, a, numbered{i});
  CHECK_FALSE(world.time().run(10, [] { return false; }));
  CHECK(log.size() == 10);
}
