// SPDX-License-Identifier: Apache-2.0
// The turn of a flow's run, on threads of this test's own: letters from everywhere, callers that wait, threads that stand in for them.

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "actors/flow/flow_cell.hpp"
#include "memory/error.hpp"
#include "tests/seed.hpp"

namespace flow_cell_test {

using namespace troupe;
using namespace troupe::actors;

namespace {

/// Threads that do what they are asked to, in any order.
class pool final : public flow_threads {
public:
  explicit pool(unsigned seed) : random_(seed) {
    for (int i = 0; i < 2; ++i) all_.emplace_back([this] { work(); });
  }
  ~pool() override { stop(); }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    something_.notify_all();
    for (std::thread& one : all_) one.join();
    all_.clear();
  }
  void add(std::function<void()> what) {
    {
      const std::lock_guard lock(mutex_);
      agenda_.push_back(std::move(what));
    }
    something_.notify_one();
  }
  void schedule(const std::shared_ptr<flow_cell>& which) noexcept override {
    ++scheduled;
    add([which] { which->turn_briefly(); });
  }
  std::atomic<int> scheduled{0};

private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      something_.wait(lock, [&] { return closed_ || !agenda_.empty(); });
      if (agenda_.empty()) return;
      const auto at = agenda_.begin() + static_cast<std::ptrdiff_t>(random_() % agenda_.size());
      const std::function<void()> what = std::move(*at);
      agenda_.erase(at);
      lock.unlock();
      what();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable something_;
  std::deque<std::function<void()>> agenda_;
  std::mt19937 random_;
  std::vector<std::thread> all_;
  bool closed_ = false;
};

/// source → gather → end: a part that is ready arrives at all ranks, told by any thread.
flow_plan plan_of(std::int32_t ranks, std::int32_t tiles, std::int32_t credit) {
  flow_plan plan{.name = "plan"};
  plan.nodes.push_back({.name = "source", .output = 0, .taken = tiles});
  plan.nodes.push_back({.name = "gather",
                        .kind = flow_node::kind_of::collective,
                        .inputs = {0},
                        .output = 1,
                        .taken = tiles,
                        .parts = tiles,
                        .blocks_out = ranks,
                        .given = ranks * tiles});
  plan.nodes.push_back({.name = "end", .inputs = {1}, .taken = ranks * tiles});
  plan.streams.push_back({.from = 0, .to = {{1, 0}}, .tiles = tiles, .credit = credit, .kept = true});
  plan.streams.push_back({.from = 1, .to = {{2, 0}}, .tiles = ranks * tiles, .credit = credit, .kept = true});
  return plan;
}

/// What all ranks share. Operation 0 is the agreement, 1 the gather.
struct shared_state {
  shared_state(std::int32_t ranks, std::int32_t tiles, std::int32_t credit, unsigned seed)
      : plan(std::make_shared<flow_plan>(plan_of(ranks, tiles, credit))),
        threads(std::make_shared<pool>(seed)),
        cells(static_cast<std::size_t>(ranks)),
        ready_left(ranks * tiles) {}
  void each(const std::function<void(flow_cell&)>& what) {
    for (const auto& cell : cells) threads->add([what, cell] { what(*cell); });
  }

  std::shared_ptr<const flow_plan> plan;
  std::shared_ptr<pool> threads;
  std::vector<std::shared_ptr<flow_cell>> cells;
  std::atomic<int> ready_left, agreed{0};
};

class member final : public flow_host {
public:
  member(shared_state& on, std::int32_t rank) : on_(on), rank_(rank) {
    for (std::size_t n = 0; n < on.plan->nodes.size(); ++n) nodes.emplace_back(*on.plan, static_cast<std::int32_t>(n));
  }
  failure_ptr perform(std::int32_t node, const std::vector<flow_tile>& in, const flow_tile*, std::int32_t) override {
    CHECK_FALSE(inside_.exchange(true));  // nobody else has the turn
    if (node == 2) seen.push_back(in.front().index);
    const bool throws = node == 0 && ++written_ == fails_at;
    inside_.store(false);
    return throws ? make_failure(errc::aborted, "the oven is cold") : nullptr;
  }
  failure_ptr ready(std::int32_t, std::int32_t part) override {
    on_.each([at = rank_ * on_.plan->nodes[1].parts + part](flow_cell& cell) { cell.arrived(1, at); });
    if (--on_.ready_left == 0) on_.each([](flow_cell& cell) { cell.ended(1, nullptr); });
    return nullptr;
  }
  void waits(std::int32_t, const flow_wait&) override {}
  void hears_of(std::int32_t, std::int32_t) override {}
  failure_ptr late(const std::vector<flow_wait>& nodes) override {
    std::string text;
    for (const flow_wait& one : nodes) text += std::to_string(static_cast<int>(one.what));
    return make_failure(errc::timed_out, text);
  }
  void agree() override {
    if (++on_.agreed == static_cast<int>(on_.cells.size())) on_.each([](flow_cell& cell) { cell.ended(0, nullptr); });
  }
  void end_operations(const failure_ptr& why) override {
    ++ends;
    on_.each([why](flow_cell& cell) {
      cell.ended(0, why);
      cell.ended(1, why);
    });
  }
  void over(const failure_ptr& why) override {
    verdict = why;
    ended.store(true);
    const std::lock_guard lock(mutex_);
    if (sleeper != nullptr) sleeper->wake();
  }
  void sleeps_at(parker* place) {
    const std::lock_guard lock(mutex_);
    sleeper = place;
  }

  std::vector<flow_node_state> nodes;
  std::vector<std::int32_t> seen;
  failure_ptr verdict;
  std::atomic<bool> ended{false};
  int fails_at = 0, ends = 0;
  parker* sleeper = nullptr;

private:
  shared_state& on_;
  std::int32_t rank_;
  int written_ = 0;
  std::atomic<bool> inside_{false};
  std::mutex mutex_;
};

/// As a caller waits.
void wait(flow_cell& cell, member& of) {
  parker place;
  of.sleeps_at(&place);
  cell.enter(place);
  while (!of.ended.load()) {
    if (cell.try_turn()) {
      while (cell.advance() != flow_cell::step::nothing) {}
      cell.end_turn();
    }
    if (!of.ended.load() && !cell.wants_turn()) place.park();
  }
  cell.leave();
  of.sleeps_at(nullptr);
}

struct flow_ranks {
  flow_ranks(shared_state& on, std::int32_t ranks) {
    for (std::int32_t r = 0; r < ranks; ++r) {
      members.push_back(std::make_shared<member>(on, r));
      on.cells[static_cast<std::size_t>(r)] =
          std::make_shared<flow_cell>(on.plan, members.back()->nodes, members.back(), on.threads, 2, 1, r % 2 == 1);
    }
  }
  std::vector<std::shared_ptr<member>> members;
};

}  // namespace

TEST_CASE("runs come to their end, whoever turns them, and no letter is left unread") {
  std::mt19937 random{static_cast<unsigned>(seed())};
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const auto ranks = static_cast<std::int32_t>(1 + random() % 3), tiles = static_cast<std::int32_t>(1 + random() % 9);
    shared_state on{ranks, tiles, static_cast<std::int32_t>(1 + random() % 3), static_cast<unsigned>(random())};
    flow_ranks all{on, ranks};
    std::vector<std::thread> callers;
    for (std::int32_t r = 0; r < ranks; ++r) {
      flow_cell& cell = *on.cells[static_cast<std::size_t>(r)];
      member& of = *all.members[static_cast<std::size_t>(r)];
      const auto how = random() % 3;
      callers.emplace_back([&cell, &of, how] {
        if (how > 0) cell.adopt();           // threads turn it …
        if (how < 2) return wait(cell, of);  // … until its caller comes, or to the end
        while (!of.ended.load()) std::this_thread::yield();
      });
    }
    for (std::thread& one : callers) one.join();
    for (const auto& of : all.members) {
      CHECK(of->verdict == nullptr);
      REQUIRE(of->seen.size() == static_cast<std::size_t>(ranks * tiles));
      for (std::size_t i = 0; i < of->seen.size(); ++i) CHECK(of->seen[i] == static_cast<std::int32_t>(i));
    }
    on.threads->stop();
  }
}

TEST_CASE("where callers wait nobody else is asked") {
  shared_state on{1, 5, 2, 1};
  flow_ranks all{on, 1};
  wait(*on.cells[0], *all.members[0]);
  CHECK(all.members[0]->seen.size() == 5);
  CHECK(on.threads->scheduled == 0);
  on.threads->stop();
}

TEST_CASE("what a node throws ends the run, its operations once; and so does a run that is late") {
  for (const bool throws : {true, false}) {
    shared_state on{1, 5, 2, 1};
    flow_ranks all{on, 1};
    member& of = *all.members[0];
    if (throws) of.fails_at = 3;
    else on.cells[0]->late();  // before anybody has the turn
    wait(*on.cells[0], of);
    REQUIRE(of.verdict != nullptr);
    CHECK(of.verdict->code == (throws ? errc::aborted : errc::timed_out));
    CHECK(of.ends == 1);
    CHECK_FALSE(on.cells[0]->wants_turn());
    on.threads->stop();
  }
}

TEST_CASE("a run that no thread will turn any more is over at once") {
  shared_state on{2, 5, 2, 1};
  flow_ranks all{on, 2};
  on.cells[0]->abandon(make_failure(errc::engine_closed, "closed"));
  CHECK(all.members[0]->ended.load());
  CHECK(all.members[0]->verdict->code == errc::engine_closed);
  CHECK(on.cells[0]->is_over());
  on.threads->stop();
}

}  // namespace flow_cell_test
