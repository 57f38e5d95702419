// SPDX-License-Identifier: Apache-2.0
// Ranks under random schedules: all forms of calls, by messages, on slots and on all ranks' buffers, with operations that are cancelled,
// run out of time or throw in the middle. Every operation has buffers of its own, which are poisoned as soon as it has ended.

#include <doctest/doctest.h>

#include <random>
#include <stdexcept>

#include "tests/lanes/ranks_on_threads.hpp"
#include "tests/seed.hpp"

namespace rank_table_stress_test {

using namespace ranks_test;
using namespace std::chrono_literals;

namespace {

constexpr std::int32_t poison = 0x7a7a7a7a;

enum class trouble { none, cancelled, out_of_time, throws, throws_no_exception };

/// The same at all ranks.
struct job {
  plan_ptr how;
  trouble what = trouble::none;
};

/// Fails now and then, on whichever thread performs it; otherwise a sum.
std::atomic<std::uint64_t> sums{0};
void failing_sum(const void* left, const void* right, void* out, std::size_t count, datatype, void* kind) {
  if (sums.fetch_add(1) % 3 == 0) {
    if (kind == nullptr) throw std::runtime_error("no such sum");
    throw 42;
  }
  for (std::size_t i = 0; i < count; ++i)
    static_cast<std::int32_t*>(out)[i] =
        static_cast<const std::int32_t*>(left)[i] + static_cast<const std::int32_t*>(right)[i];
}

op reduction_of(trouble what) {
  static char mark = 0;
  if (what == trouble::throws) return user_op(&failing_sum);
  if (what == trouble::throws_no_exception) return user_op(&failing_sum, &mark);
  return sum;
}

struct counts {
  std::atomic<int> wrong{0}, touched{0}, failed{0}, performed{0};
};

/// One rank's operation, with its own memory.
struct mine {
  std::vector<std::int32_t> in, out;
  operation_ptr what;
  completion_ptr done;
  int number = 0;

  mine(const job& j, int i, rank_t rank) : in(j.how->count, (i + 1) * (rank + 1)), out(j.how->count, -1), number(i) {}

  void end(const job& j, int ranks, const failure_ptr& why, counts& seen) {
    const std::int32_t expected = (number + 1) * ranks * (ranks + 1) / 2;
    if (why) {
      ++seen.failed;
      seen.wrong += j.what == trouble::none;
    } else {
      ++seen.performed;
      for (const std::int32_t x : out) seen.wrong += x != expected;
    }
    std::fill(in.begin(), in.end(), poison);
    std::fill(out.begin(), out.end(), poison);
  }
  void look(counts& seen) const {
    for (const std::int32_t x : in) seen.touched += x != poison;
    for (const std::int32_t x : out) seen.touched += x != poison;
  }
};

class rank_player {
public:
  rank_player(rank_table& table, rank_t rank, int ranks, const std::vector<job>& jobs, counts& seen, std::uint64_t from)
      : table_(table), rank_(rank), ranks_(ranks), jobs_(jobs), seen_(seen), random_(from) {}

  void play() {
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      all_.push_back(std::make_unique<mine>(jobs_[i], static_cast<int>(i), rank_));
      begin(i);
      if (random_() % 8 == 0) settle();
      if (random_() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 8000));
    }
    settle();
    for (const auto& one : all_) one->look(seen_);
  }

private:
  std::optional<std::chrono::nanoseconds> deadline(const job& j) {
    if (j.what != trouble::out_of_time || random_() % 2 == 0) return std::nullopt;
    return std::chrono::microseconds(random_() % 400);
  }

  void begin(std::size_t i) {
    const job& j = jobs_[i];
    mine& m = *all_[i];
    const op reduction = reduction_of(j.what);
    switch (random_() % 4) {
      case 0: {
        m.end(j, ranks_, run(table_, rank_, j.how, m.in.data(), m.out.data(), deadline(j), reduction), seen_);
        return;
      }
      case 1: {  // nobody but the attendant is sure to perform it
        open(i, ranks_test::begin(table_, rank_, j.how, m.in.data(), m.out.data(), deadline(j), reduction));
        break;
      }
      case 2: {
        open(i, ranks_test::begin(table_, rank_, j.how, m.in.data(), m.out.data(), deadline(j), reduction));
        const auto soon = std::chrono::steady_clock::now() + std::chrono::microseconds(random_() % 50);
        table_.at(rank_).help(*m.done, random_() % 2 == 0 ? no_deadline : soon);
        break;
      }
      default: {
        rank_cell::gathering together;
        open(i, ranks_test::begin(table_, rank_, j.how, m.in.data(), m.out.data(), deadline(j), reduction));
        if (random_() % 2 == 0) together.drive();
      }
    }
    if (j.what == trouble::cancelled && random_() % 2 == 0)
      table_.at(rank_).post(rank_order{
          [op = m.what](rank_state& s, rank_outbox& out) { s.end(op, make_failure(errc::cancelled, "enough"), out); }});
    if (random_() % 4 == 0) table_.at(rank_).help_briefly();
  }

  void open(std::size_t i, operation_ptr what) {
    all_[i]->done = what->done;
    all_[i]->what = std::move(what);
    open_.push_back(i);
  }

  void settle() {
    std::shuffle(open_.begin(), open_.end(), random_);
    for (const std::size_t i : open_) {
      mine& m = *all_[i];
      if (random_() % 2 == 0) table_.at(rank_).help(*m.done, no_deadline);
      wait_for(m.done);
      m.end(jobs_[i], ranks_, m.done->why(), seen_);
    }
    open_.clear();
  }

  rank_table& table_;
  rank_t rank_;
  int ranks_;
  const std::vector<job>& jobs_;
  counts& seen_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<mine>> all_;
  std::vector<std::size_t> open_;
};

std::vector<job> some_jobs(int ranks, std::size_t count, std::mt19937_64& random, bool troubled) {
  const std::vector<plan_ptr> plans{sum_plan(ranks, 3),         sum_plan(ranks, 200),
                                    direct_sum_plan(ranks, 5),  direct_sum_plan(ranks, 20'000),
                                    mailbox_sum_plan(ranks, 7), mailbox_sum_plan(ranks, 3000)};
  std::vector<job> jobs(count);
  for (job& j : jobs) {
    j.how = plans[random() % plans.size()];
    if (troubled && random() % 5 == 0) j.what = static_cast<trouble>(1 + random() % 4);
  }
  return jobs;
}

}  // namespace

TEST_CASE("random forms of calls, with and without operations that fail") {
  std::mt19937_64 random{seed()};
  for (const bool troubled : {false, true})
    for (const int ranks : {2, 3, 5}) {
      CAPTURE(troubled);
      CAPTURE(ranks);
      counts seen;
      house o(ranks, ranks > 3 ? 2 : ranks);
      const auto jobs = some_jobs(ranks, 250, random, troubled);
      std::vector<std::thread> threads;
      for (rank_t r = 0; r < ranks; ++r)
        threads.emplace_back([&, r, from = random()] { rank_player(o.table(), r, ranks, jobs, seen, from).play(); });
      for (auto& t : threads) t.join();
      CHECK(seen.wrong == 0);
      CHECK(seen.touched == 0);
      CHECK(seen.performed > 0);
      CHECK((seen.failed > 0) == troubled);
    }
}

TEST_CASE("calls of several threads for one rank, of which some are of a kind that the rank has not called before") {
  constexpr int ranks = 2, rounds = 400;
  house o(ranks);
  const auto how = sum_plan(ranks, 1);
  const call what = call_of(*how);
  std::atomic<int> wrong{0};
  const auto blocking = [&](rank_t r) {
    std::int32_t in = 1, out = 0;
    for (int i = 0; i < rounds && wrong == 0; ++i) {
      // perform() is for calls unlike the last ones: it compiles and remembers them, while others may submit.
      if (const auto end = o.table().at(r).perform(what, how, {&in, &out}, 1s); end != rank_cell::call_end::not_begun) {
        wrong += (end == rank_cell::call_end::later && end_of_rest(o.table().at(r))) || out != 2;
      } else {
        const completion_ptr done = start(o.table(), r, how, &in, &out, 1s);
        wait_for(done);
        wrong += done->why() || out != 2;
      }
    }
  };
  const auto asynchronous = [&](rank_t r) {
    std::int32_t in = 1, out = 0;
    for (int i = 0; i < rounds && wrong == 0; ++i) {
      const completion_ptr done = start(o.table(), r, how, &in, &out, 1s);
      o.table().at(r).help(*done, no_deadline);
      wait_for(done);
      wrong += done->why() || out != 2;
    }
  };
  std::vector<std::thread> threads;
  for (rank_t r = 0; r < ranks; ++r) threads.emplace_back(blocking, r), threads.emplace_back(asynchronous, r);
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("a callback that begins the next operation, on whichever thread, until thousands are done") {
  for (const int ranks : {2, 4}) {
    house o(ranks);
    const auto how = sum_plan(ranks, 2);
    constexpr int links = 1500;
    struct chain {
      house& o;
      plan_ptr how;
      rank_t rank;
      std::array<std::int32_t, 2> in{1, 1}, out{};
      std::atomic<int> left{links}, wrong{0};
      completion over;
      void next() {
        const completion_ptr done = start(o.table(), rank, how, in.data(), out.data());
        done->then([this, done] {
          wrong += done->why() != nullptr;
          if (--left > 0) next();
          else over.complete(nullptr);
        });
      }
    };
    std::vector<std::unique_ptr<chain>> chains;
    for (rank_t r = 0; r < ranks; ++r)
      chains.push_back(std::unique_ptr<chain>(new chain{o, how, r, {1, 1}, {}, {}, {}, {}}));
    for (auto& c : chains) c->left = links;
    for (auto& c : chains) c->next();
    for (auto& c : chains) {
      wait_for(completion_ptr(completion_ptr{}, &c->over));
      CHECK(c->wrong == 0);
    }
  }
}

TEST_CASE("closing while callers come, wait, park and hand over: everything ends") {
  std::mt19937_64 random{seed()};
  for (int round = 0; round < 60; ++round) {
    constexpr int ranks = 3;
    const auto jobs = some_jobs(ranks, 400, random, false);
    std::atomic<bool> closed{false};
    std::atomic<int> unfinished{0};
    {
      house o(ranks);
      std::vector<std::thread> threads;
      for (rank_t r = 0; r < ranks; ++r)
        threads.emplace_back([&, r, from = random()] {
          std::mt19937_64 dice{from};
          std::vector<std::unique_ptr<mine>> all;
          for (std::size_t i = 0; i < jobs.size() && !closed; ++i) {
            mine& m = *all.emplace_back(std::make_unique<mine>(jobs[i], static_cast<int>(i), r));
            if (dice() % 2 == 0) {
              if (run(o.table(), r, jobs[i].how, m.in.data(), m.out.data())) break;
              continue;
            }
            m.done = start(o.table(), r, jobs[i].how, m.in.data(), m.out.data());
            const auto soon = std::chrono::steady_clock::now() + std::chrono::microseconds(dice() % 60);
            if (dice() % 2 == 0) o.table().at(r).help(*m.done, soon);
          }
          for (const auto& m : all)
            if (m->done) wait_for(m->done), unfinished += m->done->done() ? 0 : 1;
        });
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      if (round % 3 == 0) o.table().broken(make_failure(errc::communicator_aborted, "enough"));
      else o.table().close();
      closed = true;
      for (auto& t : threads) t.join();
    }
    CHECK(unfinished == 0);
  }
}

}  // namespace rank_table_stress_test
