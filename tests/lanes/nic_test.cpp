// SPDX-License-Identifier: Apache-2.0
// The process's NIC: the driver alone, where every order of postings and recalls is tried, and its thread with ranks on threads.

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include <sys/resource.h>

#include "tests/lanes/ranks_on_threads.hpp"
#include "tests/seed.hpp"

using namespace ranks_test;
using namespace std::chrono_literals;

namespace {

/// Ranks that post all-reduces of i32, and their memory.
struct party {
  party(int n, std::size_t c, const char* choreography = "ring")
      : ranks(n), count(c), how(nic_sum_plan(n, c, choreography)) {
    for (rank_t r = 0; r < n; ++r) {
      clients.push_back(std::make_shared<noting_client>());
      in.emplace_back(c, r + 1);
      out.emplace_back(c, -1);
    }
  }
  nic_posting posting(rank_t r, epoch_t epoch, std::uint64_t fingerprint = 7) {
    const auto at = static_cast<std::size_t>(r);
    return nic_sum_posting(how, r, epoch, fingerprint, in[at], out[at]);
  }
  void post(nic_driver& driver, rank_t r, epoch_t epoch, std::uint64_t fingerprint = 7) {
    driver.post(clients[static_cast<std::size_t>(r)], posting(r, epoch, fingerprint));
  }
  bool right() const {
    const int sum_of_all = ranks * (ranks + 1) / 2;
    return std::all_of(out.begin(), out.end(), [&](const auto& o) {
      return std::all_of(o.begin(), o.end(), [&](std::int32_t x) { return x == sum_of_all; });
    });
  }
  bool untouched() const {
    return std::all_of(out.begin(), out.end(),
                       [](const auto& o) { return std::all_of(o.begin(), o.end(), [](auto x) { return x == -1; }); });
  }

  int ranks;
  std::size_t count;
  plan_ptr how;
  std::vector<std::shared_ptr<noting_client>> clients;
  std::vector<std::vector<std::int32_t>> in, out;
};

void finish(nic_driver& driver) {
  for (picoseconds now{0}; driver.turn(now); now += picoseconds{1000}) {}
}

double seconds_of_cpu() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

}  // namespace

TEST_CASE("nic driver: an operation begins with its last rank, in whatever order they post, and is right") {
  for (const char* choreography : {"ring", "halving_doubling", "double_binary_tree"}) {
    std::vector<rank_t> order{0, 1, 2, 3};
    epoch_t epoch = 0;
    nic_driver driver;
    do {
      party of(4, 50'001, choreography);
      for (const rank_t r : order) {
        CHECK(of.untouched());
        of.post(driver, r, epoch);
        if (r != order.back()) CHECK_FALSE(driver.turn(picoseconds{0}));
      }
      finish(driver);
      CHECK(of.right());
      for (const auto& c : of.clients) {
        REQUIRE(c->ended.size() == 1);
        CHECK(c->ended[0].first == epoch);
        CHECK_FALSE(c->ended[0].second);
      }
      CHECK(driver.empty());
      ++epoch;
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_CASE("nic driver: who posts another call is told so, nobody's memory is touched, and all get theirs back") {
  nic_driver driver;
  party of(3, 1000);
  of.post(driver, 2, 5);
  of.post(driver, 0, 5, 8);
  of.post(driver, 1, 5);
  finish(driver);
  CHECK(of.clients[0]->different == std::vector<std::pair<epoch_t, rank_t>>{{5, 2}});
  CHECK(of.clients[1]->different.empty());
  for (rank_t r = 0; r < 3; ++r) driver.recall(*of.clients[static_cast<std::size_t>(r)], 1, 5, r, picoseconds{0});
  for (const auto& c : of.clients) CHECK(c->free == std::vector<epoch_t>{5});
  CHECK(of.untouched());
  CHECK(driver.empty());
}

TEST_CASE(
    "nic driver: memory that is recalled at any moment is not touched afterwards, and the next operations are right") {
  constexpr int ranks = 3;
  nic_driver driver;
  std::mt19937_64 random(seed());
  int in_the_middle = 0;
  for (epoch_t epoch = 0; epoch < 60; ++epoch) {
    party broken(ranks, 400'000), next(ranks, 1000);
    for (rank_t r = 0; r < ranks; ++r) broken.post(driver, r, 2 * epoch);
    for (rank_t r = 0; r < ranks; ++r) next.post(driver, r, 2 * epoch + 1);
    for (std::uint64_t turns = random() % 6; turns > 0; --turns) driver.turn(picoseconds{0});
    const auto first = static_cast<rank_t>(random() % ranks);
    in_the_middle += !broken.untouched() && !broken.right();
    driver.recall(*broken.clients[static_cast<std::size_t>(first)], 1, 2 * epoch, first, picoseconds{0});
    const auto then = broken.out;
    finish(driver);
    CHECK(broken.out == then);
    CHECK(next.right());
    for (rank_t r = 0; r < ranks; ++r)
      if (r != first) driver.recall(*broken.clients[static_cast<std::size_t>(r)], 1, 2 * epoch, r, picoseconds{0});
    CHECK(driver.empty());
    CHECK(driver.under_way() == 0);
  }
  CHECK(in_the_middle > 5);
}

TEST_CASE("nic driver: more operations than there are JobIDs wait, and nothing is lost") {
  constexpr int operations = 600;
  nic_driver driver;
  std::vector<std::unique_ptr<party>> all;
  for (epoch_t e = 0; e < operations; ++e) {
    all.push_back(std::make_unique<party>(2, 10));
    all.back()->post(driver, 0, e);
  }
  CHECK(driver.under_way() == 0);
  for (epoch_t e = operations; e-- > 0;) all[e]->post(driver, 1, e);
  driver.turn(picoseconds{0});
  CHECK(driver.under_way() <= static_cast<std::size_t>(offload::most_jobs));
  finish(driver);
  CHECK(driver.empty());
  CHECK(std::all_of(all.begin(), all.end(), [](const auto& p) { return p->right(); }));
}

TEST_CASE("nic driver: scratch is for what is being performed, is bounded, and comes back however an operation ends") {
  constexpr std::size_t count = 20'000, operations = 40;
  constexpr int ranks = 8;
  const auto needs = [&](const party& p) {
    std::size_t bytes = 0;
    for (rank_t r = 0; r < ranks; ++r) bytes += p.how->descriptors_of(r, count)->scratch_bytes;
    return bytes;
  };
  const auto make = [&] { return std::make_unique<party>(ranks, count, "double_binary_tree"); };
  const std::size_t each = needs(*make());
  REQUIRE(each > 0);
  nic_driver driver{nic_config(), 3 * each};
  std::vector<std::unique_ptr<party>> all;
  for (epoch_t e = 0; e < operations; ++e) all.push_back(make());
  for (epoch_t e = 0; e < operations; ++e)
    for (rank_t r = 1; r < ranks; ++r) all[e]->post(driver, r, e);
  CHECK(driver.scratch().high_water == 0);  // they wait for rank 0
  for (epoch_t e = 0; e < operations; ++e) all[e]->post(driver, 0, e);
  driver.turn(picoseconds{0});
  CHECK(driver.under_way() > 1);
  driver.recall(*all[0]->clients[0], 1, 0, 0, picoseconds{0});
  for (rank_t r = 1; r < ranks; ++r)
    driver.recall(*all[0]->clients[static_cast<std::size_t>(r)], 1, 0, r, picoseconds{0});
  finish(driver);
  CHECK(driver.empty());
  CHECK(std::all_of(all.begin() + 1, all.end(), [](const auto& p) { return p->right(); }));
  CHECK(driver.scratch().in_use == 0);
  // The arena's blocks are a quarter too large at most.
  CHECK(driver.scratch().high_water <= 3 * each * 5 / 4);
  CHECK(driver.scratch().retained <= 3 * each * 5 / 4);

  nic_driver narrow{nic_config(), 1};  // nothing fits: one after the other
  for (epoch_t e = 0; e < 3; ++e) all[e] = make();
  for (epoch_t e = 0; e < 3; ++e)
    for (rank_t r = 0; r < ranks; ++r) all[e]->post(narrow, r, e);
  narrow.turn(picoseconds{0});
  CHECK(narrow.under_way() == 1);
  finish(narrow);
  for (epoch_t e = 0; e < 3; ++e) CHECK(all[e]->right());
  CHECK(narrow.scratch().retained == 0);
}

TEST_CASE(
    "nic driver: others are performed beside an operation that needs more scratch than all may have, and past the "
    "next one") {
  constexpr int ranks = 8;
  const auto needs = [&](const party& p) {
    std::size_t bytes = 0;
    for (rank_t r = 0; r < ranks; ++r) bytes += p.how->descriptors_of(r, p.count)->scratch_bytes;
    return bytes;
  };
  party large(ranks, 2'000'000, "double_binary_tree"), next(ranks, 2'000'000, "double_binary_tree");
  party small(ranks, 1000, "double_binary_tree"), behind(ranks, 1000, "double_binary_tree");
  const std::size_t few = 3 * needs(small);
  REQUIRE(needs(large) > few);
  nic_driver driver{nic_config(), few};
  epoch_t epoch = 0;
  const auto post = [&](party& p) {
    for (rank_t r = 0; r < ranks; ++r) p.post(driver, r, epoch);
    ++epoch;
  };
  const auto go_on = [&](const party& until) {
    for (int turns = 0; turns < 1000 && !until.right(); ++turns) driver.turn(picoseconds{0});
    CHECK(until.right());
  };
  post(large);
  driver.turn(picoseconds{0});
  post(small);
  go_on(small);
  CHECK_FALSE(large.right());
  post(next);
  post(behind);
  go_on(behind);
  CHECK_FALSE(large.right());
  CHECK(next.untouched());
  finish(driver);
  CHECK(large.right());
  CHECK(next.right());
  CHECK(driver.empty());
  CHECK(driver.scratch().in_use == 0);
  CHECK(driver.scratch().high_water <= (needs(large) + few) * 5 / 4);
}

TEST_CASE("nic driver: what needs little scratch does not wait behind what needs much, and what needs none waits for "
          "nobody's") {
  constexpr int ranks = 8;
  const auto needs = [&](const party& p) {
    std::size_t bytes = 0;
    for (rank_t r = 0; r < ranks; ++r) bytes += p.how->descriptors_of(r, p.count)->scratch_bytes;
    return bytes;
  };
  party first(ranks, 1'000'000, "double_binary_tree"), second(ranks, 1'000'000, "double_binary_tree");
  std::vector<std::unique_ptr<party>> brief;
  for (int k = 0; k < 40; ++k) brief.push_back(std::make_unique<party>(ranks, 100, "double_binary_tree"));
  const std::size_t most = needs(first) * 3 / 2;  // room for one of them
  REQUIRE(needs(*brief[0]) * 32 < most);
  nic_driver driver{nic_config(), most};
  epoch_t epoch = 0;
  const auto post = [&](party& p) {
    for (rank_t r = 0; r < ranks; ++r) p.post(driver, r, epoch);
    ++epoch;
  };
  post(first);
  driver.turn(picoseconds{0});
  post(second);
  for (auto& p : brief) post(*p);
  for (int turns = 0; turns < 1000 && !brief.back()->right(); ++turns) driver.turn(picoseconds{0});
  for (auto& p : brief) CHECK(p->right());
  CHECK_FALSE(first.right());
  CHECK(second.untouched());
  finish(driver);
  CHECK(first.right());
  CHECK(second.right());
  CHECK(driver.empty());
  CHECK(driver.scratch().in_use == 0);
  CHECK(driver.scratch().high_water <= most * 5 / 4);
}

TEST_CASE("nic arrivals: the last of an operation's ranks is told so, and none before") {
  nic_arrivals all;
  for (epoch_t first : {epoch_t{0}, epoch_t{1} << 40}) {
    for (epoch_t e = first; e < first + 200; e += 2) {
      CHECK_FALSE(all.complete(e, 3));
      CHECK_FALSE(all.complete(e + 1, 3));
      CHECK_FALSE(all.complete(e, 3));
      CHECK(all.complete(e, 3));
      CHECK_FALSE(all.complete(e + 1, 3));
      CHECK(all.complete(e + 1, 3));
    }
  }
  CHECK_FALSE(all.complete(epoch_t{1} << 41, 2));  // its other rank never comes
  CHECK_FALSE(all.complete((epoch_t{1} << 41) + 64, 2));
  CHECK(all.complete(epoch_t{1} << 41, 2));  // late: rather once too often
  CHECK(all.complete((epoch_t{1} << 41) + 64, 2));
  for (int round = 0; round < 50; ++round) {
    nic_arrivals together;
    std::atomic<int> last{0};
    std::vector<std::thread> threads;
    for (int r = 0; r < 4; ++r)
      threads.emplace_back([&] {
        for (epoch_t e = 0; e < 60; ++e) last += together.complete(e, 4);
      });
    for (auto& t : threads) t.join();
    CHECK(last == 60);
  }
}

TEST_CASE("nic thread: blocking and started operations of several threads, beside those on the boards") {
  for (const int ranks : {2, 4}) {
    house o(ranks);
    const auto by_nic = nic_sum_plan(ranks, 3), on_board = sum_plan(ranks, 3);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (rank_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        constexpr std::size_t rounds = 400;
        std::vector<std::array<std::int32_t, 3>> in(rounds), out(rounds);
        std::vector<completion_ptr> open;
        for (std::size_t i = 0; i < rounds; ++i) {
          const auto& how = i % 3 == 0 ? on_board : by_nic;
          in[i].fill(static_cast<std::int32_t>(i) * (r + 1));
          if ((i * 7 + static_cast<std::size_t>(r)) % 5 != 0)
            open.push_back(start(o.table(), r, how, in[i].data(), out[i].data()));
          else if (run(o.table(), r, how, in[i].data(), out[i].data())) ++wrong;
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

TEST_CASE("nic thread: who posts compiles no descriptors; the NIC does, when all have posted") {
  constexpr int ranks = 3;
  constexpr std::size_t count = 1000;
  house o(ranks);
  const auto how = nic_sum_plan(ranks, count);
  const auto ask = [&] { how->nic()->descriptors.get(count, {}, []() -> descriptor_cache::list { throw ranks; }); };
  std::vector<std::vector<std::int32_t>> in(ranks, std::vector<std::int32_t>(count, 1)), out(in);
  std::vector<completion_ptr> open;
  for (rank_t r = 0; r < ranks; ++r) {
    CHECK_THROWS_AS(ask(), int);  // there are none
    const auto at = static_cast<std::size_t>(r);
    open.push_back(start(o.table(), r, how, in[at].data(), out[at].data()));
  }
  for (const auto& done : open) {
    wait_for(done);
    CHECK_FALSE(done->why());
  }
  ask();
  for (const auto& each : out) CHECK(each == std::vector<std::int32_t>(count, ranks));
}

TEST_CASE(
    "nic thread: cancelled at any moment, operations are right or cancelled, and their memory is the caller's again") {
  constexpr int ranks = 3, rounds = 60;
  constexpr std::size_t count = 60'000;
  house o(ranks);
  const auto how = nic_sum_plan(ranks, count);
  std::mt19937_64 random(seed());
  std::vector<std::uint64_t> pauses(rounds);
  for (auto& p : pauses) p = random() % 400;
  std::atomic<int> wrong{0}, cancelled{0};
  std::vector<std::thread> threads;
  for (rank_t r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      std::vector<std::int32_t> in(count, r + 1), out(count);
      for (int i = 0; i < rounds; ++i) {
        std::fill(out.begin(), out.end(), -1);
        const auto op = begin(o.table(), r, how, in.data(), out.data());
        if (r == i % ranks) {
          std::this_thread::sleep_for(std::chrono::microseconds(pauses[static_cast<std::size_t>(i)]));
          o.table().at(r).post(rank_order{
              [op](rank_state& s, rank_outbox& out_) { s.end(op, make_failure(errc::cancelled, "cancelled"), out_); }});
        }
        o.table().at(r).help(*op->done, no_deadline);
        wait_for(op->done);
        const auto why = op->done->why();
        const std::vector<std::int32_t> then = out;
        if (why) {
          wrong += why->code != errc::cancelled;
          ++cancelled;
        } else {
          wrong += out != std::vector<std::int32_t>(count, ranks * (ranks + 1) / 2);
        }
        std::this_thread::yield();
        wrong += out != then;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(cancelled > 0);
}

TEST_CASE(
    "doorbell: who need not be seen at once wakes a sleeper, and leaves one alone that dozes; who waits wakes both") {
  doorbell bell;
  CHECK_FALSE(bell.announced());
  bell.announce_doze();
  bell.wake_sleeper();
  CHECK(bell.dozes());
  bell.wake();
  CHECK_FALSE(bell.announced());
  bell.announce();
  CHECK_FALSE(bell.dozes());
  bell.wake_sleeper();
  CHECK_FALSE(bell.announced());
}

TEST_CASE("nic thread: a caller that waits ends its doze, where its rank was the last to post, and only while that is "
          "under way") {
  doorbell bell;
  house o(2);
  o.no_nic_but(bell);
  const auto how = nic_sum_plan(2, 4);
  rank_cell& mine = o.table().at(0);
  std::array<std::int32_t, 4> in{}, out{};
  const auto perform = [&](const operation_ptr& op) {
    mine.post(rank_order{[epoch = op->epoch](rank_state& s, rank_outbox& to) { s.offloaded(epoch, nullptr, to); }});
    mine.help(*op->done, no_deadline);
    wait_for(op->done);
    CHECK_FALSE(op->done->why());
  };
  parker place;
  bell.announce_doze();
  SUBCASE("who posts leaves it alone, who waits then does not") {
    const operation_ptr op = begin(o.table(), 0, how, in.data(), out.data());
    CHECK(bell.dozes());
    mine.enter_wait(place);
    CHECK_FALSE(bell.announced());
    // Once is enough: it was awake since the posting.
    bell.announce_doze();
    parker another;
    mine.enter_wait(another);
    CHECK(bell.dozes());
    mine.leave_wait(another);
    mine.leave_wait(place);
    perform(op);
  }
  SUBCASE("who posts ends it where a caller waits already") {
    mine.enter_wait(place);
    CHECK(bell.dozes());
    const operation_ptr op = begin(o.table(), 0, how, in.data(), out.data());
    CHECK_FALSE(bell.announced());
    mine.leave_wait(place);
    perform(op);
  }
  SUBCASE("nobody does when it has been performed") {
    const operation_ptr op = begin(o.table(), 0, how, in.data(), out.data());
    perform(op);
    mine.enter_wait(place);
    CHECK(bell.dozes());
    mine.leave_wait(place);
  }
}

TEST_CASE("nic thread: while it dozes it takes what is posted although nobody wakes it, and then it sleeps") {
  struct answers final : nic_queue {
    using nic_queue::nic_queue;
    void performed(epoch_t, failure_ptr why) override { ended = why ? -1 : ended.load() + 1; }
    void differs(epoch_t, rank_t) override { ended = -1; }
    void let_go(epoch_t) override {}
    std::atomic<int> ended{0};
  };
  nic_thread nic(8, true);  // cores enough, it is told
  party of(2, 1000);
  nic_arrivals arrivals;
  const std::array queues{std::make_shared<answers>(nic, arrivals), std::make_shared<answers>(nic, arrivals)};
  int left_alone = 0;
  epoch_t epoch = 0;
  const auto post_all = [&] {
    for (const rank_t r : {0, 1}) {
      const auto how = queues[static_cast<std::size_t>(r)]->post(of.posting(r, epoch));
      CHECK(how == (r == 1 ? nic_queue::posted::complete : nic_queue::posted::well));
    }
    ++epoch;
  };
  for (int i = 0; i < 2000 && left_alone < 20; ++i) {
    post_all();
    nic.bell().wake();
    while (queues[0]->ended < static_cast<int>(epoch) || queues[1]->ended < static_cast<int>(epoch)) give_way();
    while (!nic.bell().announced()) give_way();
    if (!nic.bell().dozes()) continue;
    post_all();
    // Asleep by now, if this thread was kept from its core for long.
    while (queues[0]->ended < static_cast<int>(epoch) || queues[1]->ended < static_cast<int>(epoch)) {
      nic.bell().wake_sleeper();
      give_way();
    }
    ++left_alone;
    CHECK(of.right());
  }
  if (left_alone < 20) MESSAGE("others wanted its core: it dozed " << left_alone << " times");
  while (nic.bell().dozes() || !nic.bell().announced()) give_way();  // it sleeps in the end
  const double before = seconds_of_cpu();
  std::this_thread::sleep_for(400ms);
  CHECK(seconds_of_cpu() - before < 0.1);
}

TEST_CASE("nic thread: there is none before a posting, and it sleeps while an operation lacks a rank") {
  house o(2);
  CHECK_FALSE(o.nic().started());
  const auto how = nic_sum_plan(2, 10);
  std::vector<std::int32_t> in(10, 1), out(10), in2(10, 2), out2(10);
  const auto first = start(o.table(), 0, how, in.data(), out.data());
  CHECK(o.nic().started());
  std::this_thread::sleep_for(100ms);
  const double before = seconds_of_cpu();
  std::this_thread::sleep_for(400ms);
  CHECK(seconds_of_cpu() - before < 0.1);
  CHECK_FALSE(first->done());
  const auto second = start(o.table(), 1, how, in2.data(), out2.data());
  wait_for(first);
  wait_for(second);
  CHECK(out == std::vector<std::int32_t>(10, 3));
  CHECK(out2 == out);
}
