// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/ready_queue.hpp"
#include "actors/waiting/parking.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace parking_test {

using namespace troupe::actors;
using namespace std::chrono_literals;

namespace {

// A lost wake-up would hang for ever; this turns it into a failure. Never reached by a correct run.
constexpr auto hang = 30s;

steady_time give_up() { return std::chrono::steady_clock::now() + hang; }

void random_delay(std::minstd_rand& random) {
  switch (random() % 8) {
    case 0: std::this_thread::yield(); break;
    case 1: std::this_thread::sleep_for(std::chrono::microseconds(random() % 50)); break;
    default:
      for (auto turns = random() % 200; turns > 0; --turns)
        std::atomic_signal_fence(std::memory_order_seq_cst);  // keeps the empty loop
  }
}

}  // namespace

TEST_CASE("parker: an early wake-up is kept, once") {
  parker place;
  place.wake();
  place.wake();
  CHECK(place.park(give_up()));  // returns at once
  CHECK_FALSE(place.park(std::chrono::steady_clock::now() + 1ms));
}

TEST_CASE("parker: a deadline in the past or before the clock's start ends the wait") {
  parker place;
  CHECK_FALSE(place.park(std::chrono::steady_clock::now() - 1s));
  CHECK_FALSE(place.park(steady_time::min()));
}

TEST_CASE("wait_token: completion is sticky and survives a wake-up for work") {
  wait_token token;
  CHECK_FALSE(token.done());
  token.complete();
  token.wake();
  CHECK(token.done());
  CHECK(token.park(give_up()));
  CHECK(token.done());
  token.reset();
  CHECK_FALSE(token.done());
}

TEST_CASE("parker: two threads hand a turn back and forth, no wake-up is lost") {
  constexpr std::uint32_t rounds = 20'000;
  parker places[2];
  std::atomic<std::uint32_t> turn{0};
  std::atomic<bool> late{false};
  const auto play = [&](std::uint32_t me) {
    std::minstd_rand random(static_cast<unsigned>(seed() + me));
    for (std::uint32_t round = 0; round < rounds && !late; ++round) {
      while (turn.load() % 2 != me && !late)
        if (!places[me].park(give_up())) late = true;
      turn.fetch_add(1);
      places[1 - me].wake();
      if (random() % 16 == 0) random_delay(random);
    }
  };
  std::thread other(play, 1u);
  play(0);
  other.join();
  CHECK_FALSE(late);
  CHECK(turn.load() == 2 * rounds);
}

TEST_CASE("wait_token: lives on the waiter's stack and ends as soon as it is done") {
  constexpr int rounds = 20'000;
  std::atomic<wait_token*> posted{nullptr};
  std::atomic<bool> over{false};
  int plain = 0;  // published by complete()
  std::thread completer([&] {
    std::minstd_rand random(static_cast<unsigned>(seed()));
    while (!over) {
      if (wait_token* token = posted.exchange(nullptr)) {
        random_delay(random);
        ++plain;
        token->complete();
      } else {
        std::this_thread::yield();
      }
    }
  });
  bool late = false;
  for (int round = 0; round < rounds && !late; ++round) {
    std::optional<wait_token> token(std::in_place);
    posted.store(&*token);
    while (!token->done() && !late) late = !token->park(give_up());
    token.reset();  // destroyed at once: the completer may touch it no more
    REQUIRE((late || plain == round + 1));
  }
  over = true;
  completer.join();
  CHECK_FALSE(late);
}

namespace {

struct job {
  std::atomic<int> runs{0};
};

/// The scheduler's idle protocol reduced to its bones: what `scheduler::drive` does, without actors.
struct sleepers {
  ready_queue<job> queue{64};
  idle_set idle;
  std::atomic<bool> stopping{false};
  std::atomic<std::size_t> executed{0};
  std::atomic<bool> late{false};

  void push(job& what) {
    queue.push(&what);
    idle.wake_one();
  }

  void work(unsigned number, unsigned spins, std::uint32_t limit) {
    std::minstd_rand random(static_cast<unsigned>(seed() * 31 + number));
    parker place;
    bool searching = false;
    bool was_idle = false;
    unsigned looks = 0;
    while (!stopping.load() && !late.load()) {
      if (job* got = queue.pop()) {
        if (was_idle && (!std::exchange(searching, false) || idle.stop_search()) && !queue.empty()) idle.wake_one();
        was_idle = false;
        looks = 0;
        got->runs.fetch_add(1);
        random_delay(random);
        executed.fetch_add(1);
        continue;
      }
      was_idle = true;
      if (looks++ < spins && (searching || (searching = idle.start_search(limit)))) continue;
      if (!queue.empty()) {
        std::this_thread::yield();
        continue;
      }
      random_delay(random);  // widen the window between "nothing there" and "asleep"
      idle_set::sleeper self(place);
      idle.announce(self, searching);
      random_delay(random);
      if (queue.empty() && !stopping.load() && !place.park(give_up())) late = true;
      searching = idle.retract(self);
      looks = 0;
    }
    if (searching && idle.stop_search() && !queue.empty()) idle.wake_one();
  }
};

void no_lost_wake_up(unsigned workers, unsigned producers, unsigned spins, std::size_t each) {
  sleepers all;
  std::vector<std::vector<job>> jobs(producers);
  for (auto& own : jobs) own = std::vector<job>(each);
  std::vector<std::thread> threads;
  for (unsigned w = 0; w < workers; ++w) threads.emplace_back([&, w] { all.work(w, spins, 2); });
  std::vector<std::thread> sources;
  for (unsigned p = 0; p < producers; ++p)
    sources.emplace_back([&, p] {
      std::minstd_rand random(static_cast<unsigned>(seed() * 17 + p));
      for (std::size_t i = 0; i < each && !all.late; ++i) {
        all.push(jobs[p][i]);
        random_delay(random);
        // Often let everybody fall asleep first: a wake-up lost here is made good by nobody.
        if (producers == 1 && random() % 4 == 0)
          while (all.executed.load() != i + 1 && !all.late) std::this_thread::yield();
      }
    });
  for (auto& source : sources) source.join();
  const auto until = give_up();
  while (all.executed.load() != producers * each && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(100us);
  CHECK(all.executed.load() == producers * each);
  all.stopping = true;
  all.idle.wake_all();
  for (auto& thread : threads) thread.join();
  CHECK_FALSE(all.late);
  for (auto& own : jobs)
    for (auto& one : own) REQUIRE(one.runs.load() == 1);
  CHECK(all.idle.parked_threads() == 0);
  CHECK(all.idle.searching_threads() == 0);
}

}  // namespace

TEST_CASE("idle_set: no wake-up is lost, one producer and one worker") { no_lost_wake_up(1, 1, 0, 12'000); }
TEST_CASE("idle_set: no wake-up is lost, one producer and several workers") { no_lost_wake_up(4, 1, 8, 12'000); }
TEST_CASE("idle_set: no wake-up is lost, several producers and workers") { no_lost_wake_up(3, 3, 8, 8'000); }
TEST_CASE("idle_set: no wake-up is lost, more threads than cores, no spinning") { no_lost_wake_up(12, 4, 0, 4'000); }

TEST_CASE("idle_set: a push wakes one thread, and none while one searches") {
  idle_set idle;
  parker first, second;
  idle_set::sleeper a(first), b(second);
  CHECK(idle.wake_one() == idle_set::woken::nobody);
  idle.announce(a, false);
  idle.announce(b, false);
  CHECK(idle.parked_threads() == 2);
  CHECK(idle.wake_one() == idle_set::woken::one);
  CHECK(idle.searching_threads() == 1);  // the chosen thread counts before it runs
  CHECK(idle.wake_one() == idle_set::woken::searching);
  CHECK(idle.retract(b));  // last in, first out
  CHECK_FALSE(idle.retract(a));
  CHECK(idle.stop_search());
  CHECK(idle.wakes() == 1);
}

}  // namespace parking_test
