// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/membership_state.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::actors;

namespace {

/// What was told, in order.
struct heard final : membership_outbox {
  std::vector<std::string> told;
  void say(const std::string& what) { told.push_back(what); }
  std::vector<std::string> take() { return std::exchange(told, {}); }

  void agreed(epoch_t epoch, const counts_ptr&) override { say("agreed " + std::to_string(epoch)); }
  void ask(epoch_t epoch) override { say("ask " + std::to_string(epoch)); }
  void stop(epoch_t epoch) override { say("stop " + std::to_string(epoch)); }
  void failed(epoch_t epoch, const failure_ptr&) override { say("failed " + std::to_string(epoch)); }
  void broken(const failure_ptr& why) override { say(why->code == errc::actor_lost ? "broken" : "aborted"); }
  void peer_left(rank_t rank, const sends_ptr&) override { say("left " + std::to_string(rank)); }
  void peer_lost(rank_t rank) override { say("lost " + std::to_string(rank)); }
  void stuck(look_t look, bool) override { say("stuck " + std::to_string(look)); }
  void flush(rank_t rank) override { say("flush " + std::to_string(rank)); }
  void bury(rank_t rank, const failure_ptr& why) override {
    CHECK(why != nullptr);
    say("bury " + std::to_string(rank));
  }
  void untold(const std::string&) override { say("untold"); }
  void dissolve() override { say("dissolve"); }
};

using words = std::vector<std::string>;

bool contains(const words& all, const std::string& one) { return std::find(all.begin(), all.end(), one) != all.end(); }

}  // namespace

TEST_CASE("membership: a rank is lost when its actor has ended, it has perished, and its DMA engine is at rest") {
  for (const bool down_first : {false, true}) {
    heard out;
    membership_state state{3, "world"};
    if (down_first) state.down(1, "killed", out);
    else state.perished(1, out);
    CHECK(out.take().empty());
    if (down_first) state.perished(1, out);
    else state.down(1, "killed", out);
    CHECK(out.take() == words{"flush 1"});
    CHECK_FALSE(state.is_lost(1));
    CHECK(state.broken() == nullptr);
    state.flushed(1, out);
    CHECK(state.is_lost(1));
    const words said = out.take();
    CHECK(contains(said, "lost 1"));
    CHECK(contains(said, "broken"));
    CHECK_FALSE(contains(said, "bury 1"));  // the living may still refer to its buffers
    state.flushed(1, out);
    CHECK(out.take().empty());
  }
}

TEST_CASE("membership: the dead are buried when all the living are quiet, and then count as gone") {
  heard out;
  membership_state state{3, "world"};
  state.down(1, "killed", out);
  state.perished(1, out);
  state.flushed(1, out);
  out.take();
  state.quiet(0, out);
  CHECK(out.take().empty());
  state.quiet(2, out);
  CHECK(contains(out.take(), "bury 1"));
  CHECK(state.has_left(1));
  state.left(0, 4, {}, nullptr, out);
  CHECK_FALSE(contains(out.take(), "dissolve"));
  state.left(2, 4, {}, nullptr, out);
  CHECK(contains(out.take(), "dissolve"));
  CHECK(state.dissolved());
}

TEST_CASE("membership: quiet ranks of a communicator that nobody was lost from bury nobody") {
  heard out;
  membership_state state{2, "world"};
  state.abort(make_failure(errc::communicator_aborted, "world was aborted"), out);
  CHECK(contains(out.take(), "aborted"));
  state.quiet(0, out);
  state.quiet(1, out);
  CHECK(out.take().empty());
}

TEST_CASE("membership: it dissolves once, and afterwards nobody is lost") {
  heard out;
  membership_state state{2, "world"};
  state.perished(1, out);
  state.dissolve(out);
  state.dissolve(out);
  CHECK(out.take() == words{"dissolve"});
  state.down(1, "killed", out);
  state.flushed(1, out);
  CHECK(out.take().empty());
  CHECK_FALSE(state.is_lost(1));
}

TEST_CASE("membership: what the look found goes to the agreement and to every rank") {
  heard out;
  membership_state state{2, "world"};
  call barrier;
  state.called(0, 0, barrier, out);
  CHECK(state.open_operations() == 1);
  state.stuck(1, 1, true, out);
  CHECK(contains(out.take(), "stuck 1"));
  state.stuck(2, 2, true, out);  // the second look confirms the first, and the third that no lost message speaks
  CHECK(contains(out.take(), "stuck 2"));
  state.stuck(3, 3, true, out);
  const words said = out.take();
  CHECK(contains(said, "stuck 3"));
  CHECK(contains(said, "stop 0"));
  state.stopped(0, 0, {}, {}, out);
  state.stopped(0, 1, {}, {}, out);
  CHECK(contains(out.take(), "failed 0"));
  CHECK(state.open_operations() == 0);
}

TEST_CASE("membership: what ran ahead and differs is told when all have left, and before it dissolves") {
  for (const bool same : {true, false}) {
    heard out;
    membership_state state{2, "world"};
    call last;
    last.history = 7;
    state.left(0, 5, last, nullptr, out);
    if (!same) last.history = 8;
    state.left(1, 5, last, nullptr, out);
    CHECK(out.take() ==
          (same ? words{"left 0", "left 1", "dissolve"} : words{"left 0", "left 1", "untold", "dissolve"}));
  }
}
