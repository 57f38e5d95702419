// SPDX-License-Identifier: Apache-2.0
// The states of a flow's nodes and of its end, with messages in any order and no thread.

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "actors/flow/flow_node_state.hpp"
#include "actors/flow/flow_run_state.hpp"
#include "actors/flow/rehearsal.hpp"
#include "tests/seed.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

/// Performs a flow with messages in an order of a seed: each channel (sender, receiver) keeps its own.
class disorder {
public:
  disorder(const flow_plan& plan, unsigned seed) : plan_(plan), random_(seed) {
    for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
      states_.emplace_back(plan, static_cast<std::int32_t>(n));
      voices_.push_back(std::make_unique<voice>(*this, static_cast<std::int32_t>(n)));
      states_.back().begin();
    }
  }
  bool play() {
    for (std::size_t n = 0; n < states_.size(); ++n)
      say(
          static_cast<std::int32_t>(n), [](flow_node_state& s, flow_outbox& out) { s.go_on(out); }, -1);
    while (!agenda_.empty()) {
      std::vector<std::size_t> firsts;  // of each channel
      for (std::size_t i = 0; i < agenda_.size(); ++i)
        if (std::none_of(firsts.begin(), firsts.end(), [&](std::size_t f) {
              return agenda_[f].from == agenda_[i].from && agenda_[f].to == agenda_[i].to;
            }))
          firsts.push_back(i);
      const std::size_t at = firsts[random_() % firsts.size()];
      const event next = std::move(agenda_[at]);
      agenda_.erase(agenda_.begin() + static_cast<std::ptrdiff_t>(at));
      const auto n = static_cast<std::size_t>(next.to);
      next.what(states_[n], *voices_[n]);
    }
    return finished_ == states_.size();
  }

  std::vector<std::vector<std::int32_t>> worked;  ///< by node: tiles, in the order of the work

private:
  using transition = std::function<void(flow_node_state&, flow_outbox&)>;
  struct event {
    std::int32_t from, to;
    transition what;
  };
  class voice final : public flow_outbox {
  public:
    voice(disorder& of, std::int32_t node) : of_(of), node_(node) { of.worked.resize(of.plan_.nodes.size()); }
    void give(flow_port to, flow_tile what) override {
      of_.say(
          to.node, [to, what](flow_node_state& s, flow_outbox& out) { s.tile(to.port, what, out); }, node_);
    }
    void give_back(std::int32_t stream, std::int32_t slot) override {
      of_.say(
          of_.plan_.streams[static_cast<std::size_t>(stream)].from,
          [slot](flow_node_state& s, flow_outbox& out) { s.given_back(slot, out); }, node_);
    }
    void again() override {
      of_.say(
          node_, [](flow_node_state& s, flow_outbox& out) { s.go_on(out); }, node_);
    }
    flow_progress perform(const std::vector<flow_tile>& in, const flow_tile* out, std::int32_t) override {
      for (const flow_tile& tile : in) CHECK(tile.index == in.front().index);
      of_.worked[static_cast<std::size_t>(node_)].push_back(in.empty() ? out->index : in.front().index);
      if (of_.random_() % 2 == 0) return flow_progress::done;
      of_.say(
          node_, [](flow_node_state& s, flow_outbox& o) { s.performed(o); }, -2);
      return flow_progress::later;
    }
    void ready(std::int32_t part) override {
      const flow_node& me = of_.plan_.nodes[static_cast<std::size_t>(node_)];
      std::vector<std::int32_t> blocks;
      for (std::int32_t b = 0; b < me.blocks_out; ++b) blocks.push_back(b);
      std::shuffle(blocks.begin(), blocks.end(), of_.random_);
      for (const std::int32_t b : blocks)  // each part comes by a way of its own
        of_.say(
            node_, [at = b * me.parts + part](flow_node_state& s, flow_outbox& out) { s.arrived(at, out); },
            -3 - b * me.parts - part);
    }
    void finished() override { ++of_.finished_; }

  private:
    disorder& of_;
    std::int32_t node_;
  };
  void say(std::int32_t to, transition what, std::int32_t from) { agenda_.push_back({from, to, std::move(what)}); }

  const flow_plan& plan_;
  std::mt19937 random_;
  std::deque<flow_node_state> states_;
  std::vector<std::unique_ptr<voice>> voices_;
  std::deque<event> agenda_;
  std::size_t finished_ = 0;
};

/// source → twice → gather (of n ranks) → join with a second source → end, and a cycle with a buffer.
flow_plan some_plan(std::int32_t n, std::int32_t k, std::int32_t credit, bool in_order) {
  flow_plan plan{.name = "plan"};
  const auto node = [&](flow_node what) {
    plan.nodes.push_back(std::move(what));
    return static_cast<std::int32_t>(plan.nodes.size()) - 1;
  };
  const auto stream = [&](std::int32_t from, std::int32_t tiles, bool kept, bool order = true) {
    plan.streams.push_back({.from = from, .tiles = tiles, .credit = credit, .kept = kept, .in_order = order});
    return plan.nodes[static_cast<std::size_t>(from)].output = static_cast<std::int32_t>(plan.streams.size()) - 1;
  };
  const auto read = [&](std::int32_t by, std::int32_t what) {
    flow_node& reader = plan.nodes[static_cast<std::size_t>(by)];
    plan.streams[static_cast<std::size_t>(what)].to.push_back({by, static_cast<std::int32_t>(reader.inputs.size())});
    reader.inputs.push_back(what);
  };
  const auto source = node({.name = "source", .taken = k});
  const auto rows = stream(source, k, false);
  const auto twice = node({.name = "twice", .taken = k});
  read(twice, rows);
  const auto parts = stream(twice, k, true);
  const auto gather = node({.name = "gather",
                            .kind = flow_node::kind_of::collective,
                            .taken = k,
                            .parts = k,
                            .blocks_out = n,
                            .given = n * k});
  read(gather, parts);
  const auto whole = stream(gather, n * k, true, in_order);
  if (!in_order) {
    const auto end = node({.name = "end", .taken = n * k});
    read(end, whole);
    return plan;
  }
  const auto join = node({.name = "join", .taken = n * k});
  read(join, whole);
  const auto sums = stream(join, n * k, false);
  const auto carry = node({.name = "carry", .taken = n * k, .lead = 1});
  read(carry, sums);
  const auto before = stream(carry, n * k, false);
  read(join, before);
  const auto fold = node({.name = "fold", .taken = n * k, .every = n});
  read(fold, sums);
  const auto folded = stream(fold, k, false);
  const auto end = node({.name = "end", .taken = k});
  read(end, folded);
  return plan;
}

}  // namespace

TEST_CASE("a flow comes to its end in every order of messages, and each node takes its tiles in order") {
  const auto first = static_cast<unsigned>(seed());
  for (unsigned round = 0; round < 300; ++round) {
    CAPTURE(round);
    const auto n = static_cast<std::int32_t>(1 + round % 4), k = static_cast<std::int32_t>(1 + round % 7);
    const bool in_order = round % 3 != 0;
    const flow_plan plan = some_plan(n, k, static_cast<std::int32_t>(1 + round % 3), in_order);
    REQUIRE(rehearse(plan).ends);
    disorder run{plan, first + round};
    REQUIRE(run.play());
    for (std::size_t node = 0; node < plan.nodes.size(); ++node) {
      if (plan.nodes[node].kind == flow_node::kind_of::collective || plan.nodes[node].lead > 0) continue;
      std::vector<std::int32_t> tiles = run.worked[node];
      CHECK(tiles.size() == static_cast<std::size_t>(plan.nodes[node].taken));
      if (!in_order && plan.nodes[node].name == "end") std::sort(tiles.begin(), tiles.end());
      for (std::size_t i = 0; i < tiles.size(); ++i) CHECK(tiles[i] == static_cast<std::int32_t>(i));
    }
  }
}

TEST_CASE("a rehearsal finds a flow that would stop, and says what waits for what") {
  flow_plan plan = some_plan(2, 4, 2, true);
  plan.nodes[4].lead = 0;  // the cycle has no buffer any more
  const flow_rehearsal played = rehearse(plan);
  CHECK_FALSE(played.ends);
  CHECK(played.waits[3] == flow_wait{flow_wait::what_for::tile, plan.nodes[4].output, 0});
  CHECK(played.waits[2] == flow_wait{flow_wait::what_for::credit, plan.nodes[2].output, 2});
  CHECK(played.waits[0].what == flow_wait::what_for::nothing);  // it has done its work
}

namespace {

struct noted_end final : flow_run_outbox {
  void stop_nodes() override { ++stops; }
  void agree() override { ++agreements; }
  void end_operations(const failure_ptr& why) override { ended_with = why; }
  void over(const failure_ptr& why) override { ++ends, verdict = why; }
  int stops = 0, agreements = 0, ends = 0;
  failure_ptr ended_with, verdict;
};

}  // namespace

TEST_CASE("a run ends well when all nodes have finished and all ranks agree, and not before the nodes have stopped") {
  noted_end out;
  flow_run_state run{2, 2, 1};
  run.finished(out);
  run.ended(1, nullptr, out);
  CHECK(out.agreements == 0);
  run.finished(out);
  CHECK(out.agreements == 1);
  CHECK(out.stops == 0);
  run.ended(0, nullptr, out);
  CHECK(out.stops == 1);
  run.stopped(out);
  CHECK(out.ends == 0);
  run.stopped(out);
  CHECK(out.ends == 1);
  CHECK(out.verdict == nullptr);
  CHECK(out.ended_with == nullptr);
}

TEST_CASE("a run that fails ends its operations, and fails with what the ranks agreed on") {
  const failure_ptr mine = make_failure(errc::aborted, "mine"), theirs = make_failure(errc::aborted, "theirs");
  noted_end out;
  flow_run_state run{2, 2, 1};
  run.finished(out);
  run.fail(mine, out);
  CHECK(out.ended_with == mine);
  CHECK(out.stops == 1);
  run.fail(theirs, out);
  run.ended(1, mine, out);
  run.stopped(out);
  run.stopped(out);
  CHECK(out.ends == 0);  // the agreement is still under way
  run.ended(0, theirs, out);
  CHECK(out.ends == 1);
  CHECK(out.verdict == theirs);
  run.fail(mine, out);
  CHECK(out.ends == 1);
  CHECK(out.agreements == 0);
}

TEST_CASE("a run without collectives ends with its nodes") {
  noted_end out;
  flow_run_state run{1, 0, 0};
  run.finished(out);
  CHECK(out.stops == 1);
  run.stopped(out);
  CHECK(out.ends == 1);
}
