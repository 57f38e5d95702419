// SPDX-License-Identifier: Apache-2.0
// How a thread waits, step by step: the policy alone, without a thread.

#include <doctest/doctest.h>

#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "actors/rank/rank_state.hpp"
#include "actors/waiting/core_leaver.hpp"
#include "actors/waiting/crowded_core.hpp"
#include "actors/waiting/policy.hpp"
#include "actors/waiting/shared_cores.hpp"
#include "actors/waiting/yielding.hpp"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

/// The steps until the sleep, as "3l 5p 2y".
std::string steps_of(wait_course& course) {
  const char* const letters = "lpy";
  std::string text;
  int count = 0;
  auto last = wait_course::step::sleep;
  while (true) {
    const auto next = course.next();
    if (next != last && count > 0)
      text += (text.empty() ? "" : " ") + std::to_string(count) + letters[static_cast<int>(last)];
    if (next == wait_course::step::sleep) return text;
    count = next == last ? count + 1 : 1;
    last = next;
  }
}

}  // namespace

TEST_CASE("waiting: threads that have cores look, those that share them yield") {
  CHECK(waiting_for(2, 2).spin == 4096);
  CHECK(waiting_for(2, 2).yields == 0);
  CHECK(waiting_for(3, 2).spin == 0);
  CHECK(waiting_for(3, 2).yields == 32);
  CHECK(waiting_for(1, 64, 100).spin == 100);
  CHECK(waiting_for(1, 64, 1 << 20).spin == 4096);
  CHECK(waiting_for(1, 64, 0).spin == 0);
}

TEST_CASE("waiting: who shares a core looks beside others on other cores for a while, and yields then") {
  CHECK(waiting_for(2, 2).beside == 0);
  CHECK(waiting_for(3, 2).beside == looks_beside);
  CHECK(waiting_for(15, 2).beside == looks_beside);
  CHECK(waiting_for(16, 2).beside == 0);
  CHECK(waiting_for(most_asked + 1, most_asked).beside == 0);
  wait_course course{{.spin = 1, .yields = 2, .beside = 3}, 0};
  const auto beside = [&] { return course.next_beside(); };
  using step = wait_course::step;
  CHECK(beside() == step::pause);  // of the looks that it has anyway
  CHECK(beside() == step::pause);
  CHECK(beside() == step::pause);
  CHECK(course.next() == step::yield);  // one on its core is needed
  CHECK(beside() == step::pause);
  CHECK(beside() == step::yield);
  CHECK(beside() == step::sleep);
  CHECK(course.taken() == 6);
  course.restart();
  CHECK(course.taken() == 0);
  CHECK(beside() == step::pause);
}

TEST_CASE("waiting: where very many share each core, whoever sleeps interrupts nobody, and a wait is long later") {
  for (const int cores : {1, 2, 64}) {
    CHECK_FALSE(waiting_for(4 * cores, cores).many_sleep);
    CHECK(waiting_for(8 * cores, cores).many_sleep);
    CHECK(actors::long_wait_of(cores, cores) == 5ms);
    CHECK(actors::long_wait_of(16 * cores, cores) == 5ms);
    CHECK(actors::long_wait_of(64 * cores, cores) == 20ms);
  }
}

TEST_CASE("waiting: a wait spins, yields, sleeps") {
  wait_course alone{waiting_for(2, 2)};
  CHECK(steps_of(alone) == "64l 4032p");
  CHECK(steps_of(alone) == "");  // it was told to sleep
  wait_course sharing{waiting_for(8, 2)};
  CHECK(steps_of(sharing) == "32y");
  wait_course both{{5, 3}, 2};
  CHECK(steps_of(both) == "2l 3p 3y");
  CHECK(both.taken() == 8);
}

TEST_CASE("waiting: where yields take long, a thread sleeps instead, and tries again when they are a small part of its "
          "time") {
  wait_course sharing{waiting_for(8, 2)};
  CHECK(sharing.next() == wait_course::step::yield);
  sharing.stop_yielding();
  CHECK(sharing.next() == wait_course::step::sleep);
  sharing.restart();  // what it waits for has moved
  CHECK(sharing.next() == wait_course::step::yield);

  yield_cost cost;
  const yield_cost::clock::time_point start{1h};
  CHECK(cost.may_yield(start));
  CHECK(cost.yielded(start, start + yield_cost::long_yield - 1ns));
  CHECK(cost.may_yield(start + yield_cost::long_yield));
  auto now = start;
  const auto loses = [&](std::chrono::nanoseconds lost) {
    CHECK(cost.may_yield(now));
    CHECK_FALSE(cost.yielded(now, now + lost));
    now += lost;
  };
  const auto sleeps_for = [&](std::chrono::nanoseconds time) {
    CHECK_FALSE(cost.may_yield(now + time - 1ns));
    now += time;
  };
  // One after the other: longer and longer.
  loses(4ms);
  sleeps_for(yield_cost::least * 4ms);
  for (int times = 2 * yield_cost::least; times < 4 * yield_cost::most; times *= 2) {
    loses(3ms);
    sleeps_for(std::min(times, yield_cost::most) * 3ms);
  }
  // After a while without: as at first.
  now += yield_cost::rare * 2ms - 1ns;
  loses(2ms);
  sleeps_for(yield_cost::most * 2ms);
  now += yield_cost::rare * 2ms;
  loses(2ms);
  sleeps_for(yield_cost::least * 2ms);
}

TEST_CASE("waiting: a core is crowded if a yield gave it away, too, and for a while; one loss alone was somebody who "
          "is gone") {
  crowding core;
  auto now = crowding::clock::time_point{1h};
  const auto asked = [&](long given_away) {
    CHECK(core.wants_count(now));
    core.counted(given_away, now);
    return core.says_so(now);
  };
  const auto waits = [&](std::chrono::nanoseconds time) {
    CHECK_FALSE(core.wants_count(now));
    now += time;
  };
  CHECK_FALSE(asked(0));
  waits(crowding::between_questions);
  CHECK(asked(1));        // so the thread yields, and asks again at once …
  CHECK_FALSE(asked(1));  // … and nobody was there
  waits(crowding::between_questions);
  CHECK(asked(2));
  CHECK(asked(3));
  waits(crowding::between_questions);
  CHECK(asked(3));  // believed
  waits(crowding::between_questions);
  CHECK(asked(7));  // each loss prolongs it
  CHECK_FALSE(core.wants_count(now));
  for (auto left = crowding::believed; left > 0ms; left -= crowding::between_questions) {
    now += crowding::between_questions;
    CHECK(asked(7) == (left > crowding::between_questions));
  }
}

TEST_CASE(
    "waiting: a look that did not pay is left out once, then three times, seven …, and one that paid brings it back") {
  seldom_looks looks;
  const auto left_out = [&] {
    int times = 0;
    while (!looks.due()) ++times;
    return times;
  };
  CHECK(left_out() == 0);
  for (const int times : {1, 3, 7, 15, 31, 63, 63}) {
    looks.looked(false);
    CHECK(left_out() == times);
  }
  looks.looked(true);
  CHECK(left_out() == 0);
  looks.looked(false);
  CHECK(left_out() == 1);
}

TEST_CASE("waiting: who finds something begins again; who is woken for nothing does not yield again") {
  wait_course course{{4, 2}, 0};
  CHECK(steps_of(course) == "4p 2y");
  course.woken();
  CHECK(steps_of(course) == "4p");
  course.restart();
  CHECK(steps_of(course) == "4p 2y");
}

TEST_CASE("waiting: who need not spin, as others do, yields at once") {
  wait_course course{{4, 2}, 0};
  CHECK(course.next_without_spin() == wait_course::step::yield);
  CHECK(steps_of(course) == "1y");
  course.restart();
  CHECK(steps_of(course) == "4p 2y");
}

TEST_CASE("waiting: a sleep that was too short to be worth it brings the looks back, a long one quarters them") {
  const waiting_policy most{4096, 0};
  int spin = most.spin;
  for (const int expected : {1024, 256, 64, 64}) CHECK((spin = learn_spin(spin, most, 1ms)) == expected);
  CHECK(learn_spin(spin, most, 10us) == most.spin);
  CHECK(learn_spin(10, waiting_policy{10, 0}, 1ms) == 10);
}

TEST_CASE("naps: short while something is taken, longer when nothing is, and none when nothing was left for a while") {
  nap_course naps;
  CHECK(naps.over());
  naps.missed();
  CHECK_FALSE(naps.over());
  for (int i = 0; i < 4; ++i) {
    naps.looked(true, false);
    CHECK(naps.next() == nap_course::shortest);
  }
  naps.looked(true, false);
  CHECK(naps.next() == 2 * nap_course::shortest);
  for (int i = 0; i < 20; ++i) naps.looked(true, false);
  CHECK(naps.next() == nap_course::longest);
  naps.looked(true, true);
  CHECK(naps.next() == nap_course::shortest);
  int until_over = 0;
  for (; !naps.over(); ++until_over) naps.looked(false, false);
  CHECK(until_over == 100);
  CHECK(naps.next() == nap_course::longest);
  naps.woken();
  CHECK(naps.next() == nap_course::shortest);
}

TEST_CASE("dozes after work: short ones first, for a while, and again when there was work") {
  dozes_after_work dozes;
  std::chrono::nanoseconds idle{0}, before{0};
  int count = 0;
  for (auto doze = dozes.next(idle); doze.count() > 0; doze = dozes.next(idle), ++count) {
    CHECK(doze >= before);
    CHECK(doze <= dozes_after_work::longest);
    if (count == 0) CHECK(doze == dozes_after_work::shortest);
    before = doze;
    idle += doze;
  }
  CHECK(before == dozes_after_work::longest);
  CHECK(count < 200);
  CHECK(idle >= dozes_after_work::in_all);
  dozes.worked();
  CHECK(dozes.next(std::chrono::nanoseconds{0}) == dozes_after_work::shortest);
}

TEST_CASE("a thread shares its core with another one that was last seen there") {
  shared_cores::entry entries[3];
  shared_cores cores{3, entries};
  CHECK_FALSE(cores.is_shared(0));  // nobody was seen anywhere
  cores.note(0, 5);
  CHECK_FALSE(cores.is_shared(0));
  cores.note(2, 5);
  CHECK(cores.is_shared(0));
  CHECK(cores.is_shared(2));
  CHECK_FALSE(cores.is_shared(1));  // nor does who was not seen
  cores.note(1, 4);
  CHECK_FALSE(cores.is_shared(1));
  cores.note(2, 4);
  CHECK_FALSE(cores.is_shared(0));
  CHECK(cores.is_shared(1));
}

TEST_CASE("threads that were put on one core find out") {
  cpu_set_t all;
  CPU_ZERO(&all);
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  shared_cores::entry entries[2];
  shared_cores cores{2, entries};
  const auto note_on = [&](int me, int core) {
    std::thread([&] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(static_cast<std::size_t>(core), &one);
      REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
      cores.note(me);
    }).join();
  };
  std::vector<int> usable;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<std::size_t>(core), &all)) usable.push_back(core);
  note_on(0, usable.front());
  note_on(1, usable.front());
  CHECK(cores.is_shared(0));
  if (usable.size() < 2) return;
  note_on(1, usable.back());
  CHECK_FALSE(cores.is_shared(0));
}

TEST_CASE("of threads that share a core the last one leaves, and may run afterwards where it might before") {
  cpu_set_t all, after;
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  shared_cores::entry entries[3];
  shared_cores cores{3, entries};
  const int here = sched_getcpu();
  std::thread([&] {  // whatever it does to where it may run is its own
    core_leaver first, last;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(here), &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    cores.note(0);
    cores.note(2);
    CHECK_FALSE(first.leave(cores, 0));  // it stays: the other one goes
    CHECK_FALSE(last.leave(cores, 2));   // there is no other core
    CHECK(cores.is_shared(2));
    REQUIRE(sched_setaffinity(0, sizeof all, &all) == 0);
    core_leaver fresh;
    if (CPU_COUNT(&all) > 1) {
      CHECK(fresh.leave(cores, 2));
      CHECK_FALSE(cores.is_shared(2));
      CHECK_FALSE(cores.is_shared(0));
    }
    REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
    CHECK(CPU_EQUAL(&all, &after));
    CHECK_FALSE(fresh.leave(cores, 0));  // nobody below it
  })
      .join();
}
