// SPDX-License-Identifier: Apache-2.0
// Two threads wait for different operations of one rank. The one that turned the rank, and has what it wanted, hands it over: the other
// must not have to wait until the attendant looks.

#include <doctest/doctest.h>

#include <array>

#include "tests/lanes/ranks_on_threads.hpp"

using namespace ranks_test;
using namespace std::chrono_literals;

TEST_CASE("a caller that leaves with an operation on the board wakes the caller that waits for it") {
  house all{2};
  const plan_ptr how = sum_plan(2, 4);
  std::array<std::int32_t, 4> in{1, 2, 3, 4}, a{}, b{}, c{}, d{};
  rank_cell& mine = all.table().at(0);
  // The second caller is about to sleep.
  parker place;
  mine.enter_wait(place);
  CHECK_FALSE(mine.wants_turn());
  start(all.table(), 1, how, in.data(), b.data());
  const operation_ptr first = make_operation(how, in.data(), a.data(), std::nullopt, sum);
  const operation_ptr second = make_operation(how, in.data(), c.data(), std::nullopt, sum);
  // The first one performs its own, behind which the other's begins and cannot end yet.
  const operation_ptr both[] = {first, second};
  std::thread caller([&] { mine.submit_and_help({&both[0], 1}); });
  caller.join();
  REQUIRE(first->done->done());
  CHECK_FALSE(mine.wants_turn());
  mine.submit(second);
  // It wants the turn now, unless the attendant has come first. Either way the waiting one is woken.
  CHECK(place.park(std::chrono::steady_clock::now() + 20s));  // at once
  mine.leave_wait(place);
  const completion_ptr peer = start(all.table(), 1, how, in.data(), d.data());
  mine.help(*second->done, no_deadline);
  wait_for(second->done);
  wait_for(peer);
  CHECK_FALSE(mine.wants_turn());
  CHECK(a == std::array{2, 4, 6, 8});
  CHECK(c == a);
}

TEST_CASE("who waits for what was left to the attendant performs it, if the attendant has not come yet") {
  house all{2, 2, 100, false};
  constexpr std::size_t count = 100'000;  // too long to be performed where it is submitted
  const plan_ptr how = direct_sum_plan(2, count);
  std::array<std::vector<std::int32_t>, 2> in, out;
  std::array<operation_ptr, 2> ops;
  for (std::size_t r = 0; r < 2; ++r) {
    in[r].assign(count, static_cast<std::int32_t>(r) + 1);
    out[r].resize(count);
    ops[r] = make_operation(how, in[r].data(), out[r].data(), std::nullopt, sum);
    all.table().at(static_cast<rank_t>(r)).submit(ops[r]);
    CHECK_FALSE(ops[r]->done->done());
  }
  std::array<std::thread, 2> callers;
  for (std::size_t r = 0; r < 2; ++r)
    callers[r] = std::thread(
        [&, r] { all.table().at(static_cast<rank_t>(r)).help(*ops[r]->done, std::chrono::steady_clock::now() + 20s); });
  for (std::thread& caller : callers) caller.join();
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(ops[r]->done->done());
    CHECK(out[r] == std::vector<std::int32_t>(count, 3));
  }
}

TEST_CASE("several callers of one rank, each for its own operation: every one is told") {
  constexpr int callers = 4, rounds = 200;
  house all{2};
  const plan_ptr how = sum_plan(2, 4);
  std::array<std::array<std::int32_t, 4>, callers> in{}, out{}, peers{};
  std::vector<completion_ptr> theirs;
  for (int round = 0; round < rounds; ++round) {
    std::array<operation_ptr, callers> ops;
    for (std::size_t i = 0; i < callers; ++i) {
      in[i].fill(static_cast<std::int32_t>(i) + round);
      ops[i] = make_operation(how, in[i].data(), out[i].data(), std::nullopt, sum);
      all.table().at(0).submit(ops[i]);
    }
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < callers; ++i)
      threads.emplace_back([&, i] {
        rank_cell& mine = all.table().at(0);
        const completion_ptr& done = ops[callers - 1 - i]->done;
        // As runtime::wait does it.
        parker place;
        mine.enter_wait(place);
        if (done->enter(place)) {
          while (!done->done()) {
            if (mine.wants_turn()) mine.help(*done, no_deadline);
            else place.park(std::chrono::steady_clock::now() + 20s);
          }
          done->leave(place);
        }
        mine.leave_wait(place);
        if (mine.wants_turn()) mine.help_briefly();
      });
    theirs.clear();
    for (std::size_t i = 0; i < callers; ++i)
      theirs.push_back(start(all.table(), 1, how, in[i].data(), peers[i].data()));
    for (std::thread& t : threads) t.join();
    for (const completion_ptr& done : theirs) {
      all.table().at(1).help(*done, no_deadline);
      wait_for(done);
    }
    for (std::size_t i = 0; i < callers; ++i) REQUIRE(out[i][0] == 2 * (static_cast<std::int32_t>(i) + round));
  }
}
