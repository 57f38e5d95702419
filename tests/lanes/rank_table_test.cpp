// SPDX-License-Identifier: Apache-2.0
// The ranks of a communicator on threads of the test's own: order, forms, failures.

#include "tests/lanes/ranks_on_threads.hpp"

#include <doctest/doctest.h>

using namespace ranks_test;
using namespace std::chrono_literals;

TEST_CASE("blocking and asynchronous operations of several threads keep their order and their sums") {
  for (const int ranks : {2, 4}) {
    house o(ranks);
    const auto how = sum_plan(ranks, 3);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (rank_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        constexpr std::size_t rounds = 600;
        std::vector<std::array<std::int32_t, 3>> in(rounds), out(rounds);
        std::vector<completion_ptr> open;
        for (std::size_t i = 0; i < rounds; ++i) {
          in[i].fill(static_cast<std::int32_t>(i) * (r + 1));
          if ((i * 7 + static_cast<std::size_t>(r)) % 5 == 0)
            open.push_back(start(o.table(), r, how, in[i].data(), out[i].data()));
          else if (run(o.table(), r, how, in[i].data(), out[i].data())) ++wrong;
          if (i % 200 == 100 + static_cast<std::size_t>(r)) std::this_thread::sleep_for(8ms);
        }
        for (const auto& done : open) {
          wait_for(done);
          if (done->why()) ++wrong;
        }
        for (std::size_t i = 0; i < rounds; ++i)
          for (const std::int32_t x : out[i]) wrong += x != static_cast<std::int32_t>(i) * ranks * (ranks + 1) / 2;
      });
    for (auto& t : threads) t.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE(
    "where many ranks share each core, their board does without barriers in all threads, and a wait is long later") {
  house few(15), many(16), hundred(128);  // on two cores
  const auto state = [](house& of) -> rank_state& { return of.table().at(0).state(); };
  CHECK(state(few).port()->board().uses_membarrier() == slots_have_membarrier());
  CHECK_FALSE(state(many).port()->board().uses_membarrier());
  CHECK(state(many).patience() == 5ms);
  CHECK(state(hundred).patience() == 20ms);
}

TEST_CASE("rooted operations whose root moves on, among others that come again and again") {
  for (const agreement_form form : agreement_forms)
    for (const int ranks : {2, 3}) {
      house o(ranks);
      const auto sums = sum_plan(ranks, 3);
      std::vector<plan_ptr> broadcasts, reductions;
      for (rank_t root = 0; root < ranks; ++root) {
        broadcasts.push_back(rooted_plan(collective::broadcast, ranks, root, 3, form));
        reductions.push_back(rooted_plan(collective::reduce, ranks, root, 3, form));
      }
      std::atomic<int> wrong{0};
      std::vector<std::thread> threads;
      for (rank_t r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
          constexpr int rounds = 600;
          std::vector<std::array<std::int32_t, 3>> in(rounds), out(rounds);
          std::vector<completion_ptr> open;
          for (int i = 0; i < rounds; ++i) {
            const auto at = static_cast<std::size_t>(i), root = at % static_cast<std::size_t>(ranks);
            const auto& how = i % 7 == 0 ? sums : i % 3 == 0 ? reductions[root] : broadcasts[root];
            in[at].fill(i * (r + 1));
            out[at].fill(-1);
            if ((i * 7 + r) % 5 == 0) open.push_back(start(o.table(), r, how, in[at].data(), out[at].data()));
            else if (run(o.table(), r, how, in[at].data(), out[at].data())) ++wrong;
          }
          for (const auto& done : open) {
            wait_for(done);
            if (done->why()) ++wrong;
          }
          for (int i = 0; i < rounds; ++i) {
            const int root = i % ranks, sum = i * ranks * (ranks + 1) / 2;
            const bool adds = i % 7 == 0 || i % 3 == 0, has = i % 7 == 0 || i % 3 != 0 || r == root;
            for (const std::int32_t x : out[static_cast<std::size_t>(i)])
              wrong += x != (!has ? -1 : adds ? sum : i * (root + 1));
          }
        });
      for (auto& t : threads) t.join();
      CAPTURE(name(form));
      CAPTURE(ranks);
      CHECK(wrong == 0);
    }
}

TEST_CASE("one thread performs for all ranks at once") {
  house o(4);
  const auto how = sum_plan(4, 2);
  std::array<std::array<std::int32_t, 2>, 4> in{}, out{};
  for (std::int32_t round = 1; round < 50; ++round) {
    std::vector<completion_ptr> all;
    rank_cell::gathering together;
    for (rank_t r = 0; r < 4; ++r) {
      in[static_cast<std::size_t>(r)].fill(round);
      all.push_back(
          start(o.table(), r, how, in[static_cast<std::size_t>(r)].data(), out[static_cast<std::size_t>(r)].data()));
    }
    CHECK_FALSE(all[3]->done());
    together.drive();
    for (const auto& one : all) CHECK(one->done());
    for (const auto& one : out) CHECK(one == std::array{4 * round, 4 * round});
  }
}

TEST_CASE("what a group has for a rank is queued in one turn, begins when all of it is there, and ends in that turn") {
  house o(2);
  const auto how = sum_plan(2, 1);
  constexpr std::size_t many = 8;
  std::array<std::array<std::int32_t, many>, 2> in{}, out{};
  std::vector<completion_ptr> all;
  {
    rank_cell::gathering together;
    for (std::size_t i = 0; i < many; ++i)
      for (rank_t r = 0; r < 2; ++r) {
        const auto of = static_cast<std::size_t>(r);
        in[of][i] = static_cast<std::int32_t>(i) + 1;
        all.push_back(start(o.table(), r, how, &in[of][i], &out[of][i]));
        CHECK_FALSE(o.table().at(r).try_turn());  // the group has it, from its first operation on
        CHECK(o.table().at(r).inbox_empty());     // so nothing is left there to be told of
      }
    for (const auto& one : all) CHECK_FALSE(one->done());
    together.drive();
    for (const auto& one : all) CHECK(one->done());
    for (rank_t r = 0; r < 2; ++r) {
      REQUIRE(o.table().at(r).try_turn());
      o.table().at(r).end_turn();
    }
  }
  for (std::size_t i = 0; i < many; ++i) CHECK(out[0][i] == 2 * (static_cast<std::int32_t>(i) + 1));
  CHECK(out[1] == out[0]);
}

TEST_CASE("a deadline ends it on every rank, also on one that comes later; the next one succeeds") {
  house o(2);
  const auto how = sum_plan(2, 1);
  std::int32_t one = 1, a = 0, b = 0;
  for (int round = 0; round < 3; ++round) {
    const failure_ptr first = run(o.table(), 0, how, &one, &a, 5ms);
    REQUIRE(first);
    CHECK(first->code == errc::timed_out);
    CHECK(run(o.table(), 1, how, &one, &b) == first);
    std::thread other([&] { CHECK_FALSE(run(o.table(), 1, how, &one, &b)); });
    CHECK_FALSE(run(o.table(), 0, how, &one, &a));
    other.join();
    CHECK(a == 2);
    CHECK(b == 2);
    a = b = 0;
  }
}

TEST_CASE("different calls get the table, and the next ones succeed") {
  house o(2);
  const auto how = sum_plan(2, 1), other = sum_plan(2, 2);
  std::array<std::int32_t, 2> in{1, 1}, a{}, b{};
  std::thread peer([&] {
    const failure_ptr why = run(o.table(), 1, other, in.data(), b.data());
    CHECK((why && why->code == errc::mismatch));
    CHECK_FALSE(run(o.table(), 1, how, in.data(), b.data()));
  });
  const failure_ptr why = run(o.table(), 0, how, in.data(), a.data());
  CHECK((why && why->code == errc::mismatch));
  CHECK_FALSE(run(o.table(), 0, how, in.data(), a.data()));
  peer.join();
  CHECK(a[0] == 2);
}

namespace {
/// As a planner leaves it.
plan_ptr planned(const plan_ptr& how, const char* name) {
  plan& made = *std::const_pointer_cast<plan>(how);
  made.choreography = name;
  made.identity = made.computed_identity(digest(*made.notes));
  return how;
}
}  // namespace

TEST_CASE("ranks that planned the same call differently, on one port or two, get both plans in the error") {
  const std::array<std::array<plan_ptr, 2>, 4> pairs{
      {{planned(mailbox_sum_plan(2, 4), "doubling"), planned(mailbox_sum_plan(2, 4, "ring"), "ring")},
       {planned(sum_plan(2, 4), "shot"), planned(mailbox_sum_plan(2, 4), "doubling")},
       {planned(sum_plan(2, 4), "shot"), planned(direct_sum_plan(2, 4), "fused")},
       // Their messages are alike.
       {planned(sum_plan(2, 4), "shot"), planned(sum_plan(2, 4), "other shot")}}};
  for (const auto& plans : pairs) {
    house o(2);
    std::array<std::int32_t, 4> in{1, 1, 1, 1}, a{}, b{};
    failure_ptr first, second;
    std::thread peer([&] { second = run(o.table(), 1, plans[1], in.data(), b.data()); });
    first = run(o.table(), 0, plans[0], in.data(), a.data());
    peer.join();
    REQUIRE((first && second));
    CHECK(first->code == errc::mismatch);
    CHECK(second == first);
    INFO(first->text);
    for (const rank_t r : {0, 1})
      CHECK(first->text.find("rank " + std::to_string(r) + ": all_reduce(count 4, i32, sum), planned as " +
                             plans[static_cast<std::size_t>(r)]->title()) != std::string::npos);
  }
}

TEST_CASE("a rank leaves when its operations are over, and is then missed") {
  house o(2);
  const auto how = sum_plan(2, 1);
  std::int32_t one = 1, a = 0, b = 0;
  const completion_ptr first = start(o.table(), 0, how, &one, &a);
  o.table().at(0).post(rank_order{[](rank_state& s, rank_outbox& out) { s.leave(out); }});
  CHECK_FALSE(run(o.table(), 1, how, &one, &b));
  wait_for(first);
  CHECK_FALSE(first->why());
  const failure_ptr why = run(o.table(), 1, how, &one, &b);
  REQUIRE(why);
  CHECK(why->code == errc::rank_missing);
}

TEST_CASE("what is broken or closed fails at once, in every form") {
  for (const bool closed : {false, true}) {
    house o(2);
    const auto how = sum_plan(2, 1);
    std::int32_t one = 1, a = 0, b = 0;
    const completion_ptr first = start(o.table(), 0, how, &one, &a);
    failure_ptr blocked;
    std::thread caller([&] { blocked = run(o.table(), 0, how, &one, &b); });
    std::this_thread::sleep_for(1ms);
    if (closed) o.table().close();
    else o.table().broken(make_failure(errc::communicator_aborted, "enough"));
    caller.join();
    wait_for(first);
    CHECK(first->why());
    CHECK(blocked);
    CHECK(run(o.table(), 1, how, &one, &b));
    const completion_ptr late = start(o.table(), 1, how, &one, &b);
    wait_for(late);
    CHECK(late->why());
  }
}

TEST_CASE("what all ranks have performed is no failure, though it breaks before the last of them has looked") {
  house o(2);
  const auto how = sum_plan(2, 1);
  std::int32_t one = 1, a = 0, b = 0;
  const completion_ptr first = start(o.table(), 0, how, &one, &a);
  failure_ptr others;
  o.table().at(0).post(rank_order{[&](rank_state& s, rank_outbox& out) {  // it does not look meanwhile
    std::thread peer([&] { others = run(o.table(), 1, how, &one, &b); });
    peer.join();
    s.broken(make_failure(errc::communicator_aborted, "the peer has gone"), out);
  }});
  wait_for(first);
  CHECK_FALSE(others);
  CHECK(b == 2);
  CHECK_FALSE(first->why());
  CHECK(a == 2);
  CHECK(run(o.table(), 0, how, &one, &a));  // and nothing later
}

TEST_CASE("whether it stands still is asked twice") {
  house o(2);
  const auto how = sum_plan(2, 1);
  std::int32_t one = 1, a = 0, b = 0;
  CHECK(o.table().stands_still());
  const completion_ptr first = start(o.table(), 0, how, &one, &a);
  while (!o.table().stands_still()) std::this_thread::sleep_for(1ms);
  CHECK_FALSE(first->done());
  CHECK_FALSE(run(o.table(), 1, how, &one, &b));
  wait_for(first);
}

TEST_CASE("an urgent message that comes during a turn is read soon, also while a caller tends the rank") {
  for (const int ranks : {2, 4})  // as many as cores, and more
    for (const bool tended : {false, true}) {
      CAPTURE(ranks);
      CAPTURE(tended);
      house of(ranks, 2);
      rank_cell& cell = of.table().at(0);
      if (tended) cell.tend(true);
      std::atomic<bool> read{false};
      cell.post(rank_order{[&](rank_state&, rank_outbox&) {
        cell.post(rank_order{[&](rank_state&, rank_outbox&) { read.store(true); }});
      }});
      for (int i = 0; i < 60'000 && !read.load(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      CHECK(read.load());
      if (tended) cell.tend(false);
    }
}
