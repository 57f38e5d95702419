// SPDX-License-Identifier: Apache-2.0
// What simulation has found in the states, transition by transition.

#include <doctest/doctest.h>

#include "actors/rank/rank_state.hpp"
#include "memory/arena.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

struct recording final : rank_outbox {
  void called(epoch_t e, const call&) override { say("called", e); }
  void differs(epoch_t e) override { say("differs", e); }
  void withdraw(epoch_t e, const call*) override { say("withdraw", e); }
  void fail(epoch_t e, const std::string&, failure_ptr) override { say("fail", e); }
  void stopped(epoch_t e, std::vector<std::string>, presence) override { say("stopped", e); }
  void left(epoch_t n, call, sends_ptr) override { say("left", n); }
  void quiet() override {}
  void abort(const failure_ptr&) override {}
  void perished() override {}
  bool deliver(rank_t, int, chunk&& what) override { return say("chunk", what.epoch), false; }
  void give_back(rank_t, int, const credit&) override {}
  void revoke(rank_t, epoch_t e, const failure_ptr&) override { say("revoke", e & ~point_to_point); }
  void revoked(rank_t, epoch_t e, bool received) override {
    say(received ? "received" : "revoked", e & ~point_to_point);
  }
  void refuse(rank_t, epoch_t e, bool, const failure_ptr&) override { say("refuse", e & ~point_to_point); }
  void inquire(rank_t, epoch_t, bool, look_t, bool) override {}
  void look_again(rank_t, bool) override {}
  bool transfer(const operation_key&, int, int, std::byte*, const std::byte*, std::size_t) override { return true; }
  bool flush(const operation_key&) override { return false; }
  steady_time now() const override { return steady_time{} + std::chrono::hours{1}; }
  void say(const char* what, epoch_t e) { words += (words.empty() ? "" : " ") + std::string{what} + std::to_string(e); }
  std::string take() { return std::exchange(words, {}); }
  std::string words;
};

struct two_ranks {
  explicit two_ranks(bool boards = true) : boards(boards) {}
  operation_ptr barrier(bool slots) {
    auto how = std::make_shared<plan>();
    how->notes = std::make_shared<const score>(
        lower_syncs(write_score(*find_choreography("recursive_doubling"), flat_setup(collective::barrier, 2))));
    if (slots) how->port = slots_plan{slot_format::ll128};
    else how->port = mailbox_plan{.agrees = true};
    auto op = std::make_shared<operation>();
    op->what.what = collective::barrier;
    op->plan = how;
    return op;
  }
  operation_ptr message(bool sending) {
    auto op = std::make_shared<operation>();
    op->peer = 1;
    op->sending = sending;
    op->what.count = 1;
    op->input = op->output = &cell;
    return op;
  }
  const failure_ptr why = make_failure(errc::cancelled, "because");
  std::byte cell{};
  arena memory;
  shared_spaces spaces{2};
  slot_board board{2};
  recording out, other_out;
  const bool boards;
  rank_state rank{{0, 2, 1, "world", 0}, memory, spaces, boards ? &board : nullptr};
  rank_state other{{1, 2, 1, "world", 0}, memory, spaces, boards ? &board : nullptr};
};
/// Their sends and receives, too, go by mailbox.
struct two_ranks_apart : two_ranks {
  two_ranks_apart() : two_ranks(false) {}
};

}  // namespace

TEST_CASE_FIXTURE(two_ranks, "a rank that is asked for an operation of a group begins the group") {
  rank.enqueue(barrier(false), out);
  CHECK(out.take() == "");
  rank.asked(0, out);
  CHECK(out.take() == "chunk0 called0");
}

TEST_CASE_FIXTURE(two_ranks, "a rank that was asked before it called says so when it does") {
  rank.asked(0, out);
  CHECK(out.take() == "");
  CHECK_FALSE(rank.may_begin_at_once());
  rank.submit(barrier(true), out);
  CHECK(out.take() == "called0");
}

TEST_CASE_FIXTURE(two_ranks, "what is queued behind others is agreed on before its turn, and launched once") {
  rank.submit(barrier(true), out);  // on the board, so the next but one waits
  rank.submit(barrier(true), out);
  auto counted = barrier(false);
  const plan_ptr how = counted->plan;
  counted->plan = nullptr;
  counted->make_plan = [how](const counts_ptr&) { return how; };
  rank.submit(counted, out);
  rank.asked(2, out);
  CHECK(out.take() == "called2");
  rank.agreed(2, nullptr, out);
  CHECK(out.take() == "");
  for (int i = 0; i < 2; ++i) other.submit(barrier(true), other_out);
  while (rank.advance(out) || other.advance(other_out)) {}
  CHECK(out.take() == "chunk2");
}

TEST_CASE_FIXTURE(two_ranks, "after `stopped` nothing of the operation goes on, on the board neither") {
  SUBCASE("begun before") {
    rank.submit(barrier(true), out);
    rank.stop(0, out);
  }
  SUBCASE("begun later") {
    rank.stop(0, out);
    rank.submit(barrier(true), out);
  }
  CHECK(out.take() == "stopped0");
  other.submit(barrier(true), other_out);
  CHECK_FALSE(rank.advance(out));
  CHECK_FALSE(rank.has_ended());
  rank.failed(0, why, out);
  ended_operations ended = rank.take_ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended.take()->why_ended == why);
}

TEST_CASE_FIXTURE(two_ranks_apart, "a receiver says of a revoked send whether it had received it") {
  SUBCASE("it had") {
    rank.submit(message(false), out);
    rank.on_chunk(0, {&cell, 1, fingerprint(message(false)->what, point_to_point), point_to_point, 1, 0, 0, {}}, out);
    REQUIRE(rank.take_ended().size() == 1);
    rank.revoke(1, point_to_point, why, out);
    CHECK(out.take() == "received0");
  }
  SUBCASE("it had not") {
    rank.revoke(1, point_to_point, why, out);
    CHECK(out.take() == "revoked0");
  }
}

TEST_CASE_FIXTURE(two_ranks_apart,
                  "a send whose receiver had received it is performed, unless the receiver refused it") {
  rank.submit(message(true), out);
  rank.peer_left(1, nullptr, out);
  CHECK(out.take() == "chunk" + std::to_string(point_to_point) + " revoke0");
  bool refused = false;
  SUBCASE("received") {}
  SUBCASE("refused") {
    refused = true;
    rank.refused(1, point_to_point, true, why, out);
  }
  rank.revoked(1, point_to_point, true, out);
  ended_operations ended = rank.take_ended();
  REQUIRE(ended.size() == 1);
  CHECK((ended.take()->why_ended != nullptr) == refused);
}

namespace {
struct told final : agreement::audience {
  void agreed(epoch_t, const counts_ptr&) override {}
  void ask(epoch_t) override { ++asked; }
  void stop(epoch_t) override { ++stops; }
  void failed(epoch_t, const failure_ptr& why) override { text = why->text; }
  void broken(const failure_ptr&) override {}
  void peer_left(rank_t, const sends_ptr&) override {}
  void peer_lost(rank_t) override {}
  int asked = 0, stops = 0;
  std::string text;
};
}  // namespace

TEST_CASE("of a dead rank it is not said that it had not called") {
  agreement state{3, "world"};
  told out;
  state.called(0, 0, call{}, out);
  state.left(2, 0, out);
  state.lost(1, "killed", out);
  state.stopped(0, 0, {}, out, {call{}, false});
  state.stopped(0, 2, {}, out);
  CHECK(out.text.find("rank 2 left") != std::string::npos);
  CHECK(out.text.find("not called") == std::string::npos);
}

TEST_CASE("an operation that a rank has performed is not suspected of a rank that never came") {
  agreement state{3, "world"};
  told out;
  state.called(0, 0, call{}, out);
  state.stuck(1, 1, true, out);
  state.withdraw(0, 1, out);
  state.stuck(2, 2, true, out);
  CHECK(out.stops == 0);
  state.stuck(3, 3, true, out);
  state.stuck(4, 4, true, out);
  CHECK(out.stops == 1);
}

TEST_CASE("a chunk of an operation that has never begun goes with the communicator") {
  two_ranks r;
  r.rank.enqueue(r.barrier(false), r.out);  // as a group does: nothing begins yet
  chunk early{};
  early.source = 1;
  r.rank.on_chunk(0, std::move(early), r.out);
  CHECK(r.rank.early_chunks() == 1);
  r.rank.broken(r.why, r.out);
  CHECK(r.rank.early_chunks() == 0);
}

TEST_CASE("whether a call runs ahead is the same on a rank whose call before was refused, and on those that were "
          "performing it") {
  two_ranks r;
  const auto rooted = [&] {
    operation_ptr op = r.barrier(true);
    op->what.what = collective::broadcast;
    const auto how = std::shared_ptr<plan>(new plan(op->plan->with_score(op->plan->notes, op->plan->verified)));
    how->ahead = op->plan;
    op->plan = how;
    return op;
  };
  rank_state_options options{0, 2, 1, "world", 0};
  options.most_ahead = 1;
  for (const bool ahead_before : {false, true}) {
    rank_state refusing{options, r.memory, r.spaces, &r.board}, waiting{options, r.memory, r.spaces, &r.board},
        late{options, r.memory, r.spaces, &r.board};
    std::vector<bool> ahead;
    for (rank_state* rank : {&refusing, &waiting, &late}) {
      if (ahead_before) rank->enqueue(rooted(), r.out);
      operation_ptr strict = r.barrier(true);
      const failure_ptr refused = make_failure(errc::peer_refused, "no buffer");
      if (rank == &refusing) strict->refusal = r.why;
      if (rank == &late) rank->failed(ahead_before ? 1 : 0, refused, r.out);
      rank->enqueue(strict, r.out);
      const operation_ptr next = rooted();
      rank->enqueue(next, r.out);
      ahead.push_back(next->ahead);
      rank->broken(r.why, r.out);
    }
    CHECK(ahead == std::vector<bool>(3, true));
  }
}
