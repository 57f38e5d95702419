// SPDX-License-Identifier: Apache-2.0
// The verifier on little scores written by hand: right ones, and one for every kind of fault, which must be found at the
// right rank, lane and step.

#include "protocols/verify/verifier.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <random>

#include "protocols/score/score_builder.hpp"
#include "tests/seed.hpp"

using namespace troupe;
using namespace troupe::notation;

namespace {

struct drafting : score_builder {
  drafting(collective what, int ranks, int parts = 1, bool in_place = false, rank_t root = 0, bool uniform = true)
      : score_builder{flat_setup(what, ranks, root, in_place, uniform), "by hand", parts} {}
};

/// rank 0 sends its input to rank 1 and the other way round; both combine in rank order.
score exchange(bool in_place = false) {
  drafting s{collective::all_reduce, 2, 1, in_place};
  const cells kept[] = {s.scratch_like(0, input.all()), s.scratch_like(1, input.all())};
  for (rank_t r = 0; r < 2; ++r) {
    auto me = s.lane(r).from(1 - r).to(1 - r);
    me.send(input[0]);
    me.recv(kept[r]);
    if (!in_place) {
      me.copy(input[0], output[0]);
    } else {
      // The input may be overwritten only when the other has read it, which its token tells.
      me.signal(1 - r);
      me.await(1 - r);
    }
    me.swapped(r == 1).reduce(kept[r], output[0]);
  }
  return s.finish();
}

void accepts(const score& s, performing_limits limits = {}) {
  const verdict v = verify(s, limits);
  CHECK_MESSAGE(v.ok(), to_text(s) << (v.ok() ? "" : to_string(*v.first_fault)));
  CHECK((v.forest != nullptr) == v.ok());
}

void refuses(const score& s, rank_t rank, int lane, int step, std::string_view words, performing_limits limits = {}) {
  const verdict v = verify(s, limits);
  REQUIRE_MESSAGE(!v.ok(), to_text(s));
  CHECK(v.forest == nullptr);
  const fault& f = *v.first_fault;
  INFO(to_string(f));
  CHECK(f.rank == rank);
  CHECK(f.lane == lane);
  CHECK(f.step == step);
  CHECK(f.what.find(words) != std::string::npos);
}

step& nth(score& s, rank_t rank, int at, int lane = 0) {
  return s.players[static_cast<std::size_t>(rank)].lanes[static_cast<std::size_t>(lane)][static_cast<std::size_t>(at)];
}

}  // namespace

TEST_CASE("a right score is accepted, with its trees") {
  const verdict v = verify(exchange());
  REQUIRE(v.ok());
  CHECK(v.steps == 8);
  CHECK(v.messages == 2);
  CHECK(tree_of(v, 0, 0) == "(0+1)");
  CHECK(tree_of(v, 1, 0) == "(0+1)");
  CHECK(tree_of(v, 2, 0) == "-");
  CHECK(tree_of(v, 0, 1) == "-");
  CHECK(v.same_tree_everywhere);
  CHECK(v.rank_ordered);
  CHECK(v.left_fold);
  accepts(exchange(), {1, 3});
  accepts(exchange(true));
}

TEST_CASE("which steps complete a sum") {
  const auto marks = [](const score& s) {
    std::string text;
    for (const step_marks& rank : verify(s).completing)
      for (const std::vector<bool>& lane : rank)
        for (const bool mark : lane) text += mark ? '!' : '.';
    return text;
  };
  CHECK(marks(exchange()) == "...!...!");
  // A chain: rank 1 adds to what comes from rank 0, and rank 2 has the sum.
  drafting chain{collective::reduce, 3, 1, false, 2};
  chain.lane(0).to(1).send(input[0]);
  chain.lane(1).from(0).to(2).recv_reduce_send(input[0]);
  chain.lane(2).from(1).recv_reduce_copy(input[0], output[0]);
  CHECK(marks(chain.finish()) == "..!");
  // A step on two cells that completes the first one only: nobody may divide.
  drafting partly{collective::reduce, 3, 2};
  auto first = partly.lane(1).to(0);
  first.send(input[0]);
  first.send(input[1]);
  partly.lane(2).to(0).send(input.all());
  auto root = partly.lane(0);
  root.copy(input.all(), output.all());
  root.from(1).recv_reduce(output[0]);
  root.from(2).recv_reduce(output.all());
  root.from(1).recv_reduce(output[1]);
  const verdict v = verify(partly.finish());
  CHECK(v.ok());
  CHECK(v.completing.empty());
  drafting moves{collective::all_gather, 1};
  moves.lane(0).copy(input[0], output[0]);
  CHECK(verify(moves.finish()).completing.empty());
}

TEST_CASE("trees: swapping keeps the shape but not the rank order; a fold from the right is not the left fold") {
  score s = exchange();
  nth(s, 1, 3).swapped = false;
  verdict v = verify(s);
  REQUIRE(v.ok());
  CHECK(tree_of(v, 1, 0) == "(1+0)");
  CHECK(v.same_tree_everywhere);
  CHECK_FALSE(v.rank_ordered);
  CHECK_FALSE(v.left_fold);

  drafting chain{collective::reduce, 3, 1, false, 0};
  chain.lane(2).to(1).send(input[0]);
  chain.lane(1).from(2).to(0).swapped().recv_reduce_send(input[0]);
  chain.lane(0).from(1).swapped().recv_reduce_copy(input[0], output[0]);
  v = verify(chain.finish());
  REQUIRE(v.ok());
  CHECK(tree_of(v, 0, 0) == "(0+(1+2))");
  CHECK(v.rank_ordered);
  CHECK_FALSE(v.left_fold);
  CHECK(v.same_tree_everywhere);
}

TEST_CASE("trees that differ between chunks or ranks are told apart") {
  drafting s{collective::reduce, 3, 2, false, 0};
  s.lane(2).to(1).send(input[0]);
  s.lane(2).to(0).send(input[1]);
  s.lane(1).from(2).to(0).recv_reduce_send(input[0]);
  s.lane(1).to(0).send(input[1]);
  s.lane(0).from(1).recv_reduce_copy(input[0], output[0]);
  s.lane(0).from(1).recv_reduce_copy(input[1], output[1]);
  s.lane(0).from(2).recv_reduce(output[1]);
  const verdict v = verify(s.finish());
  REQUIRE(v.ok());
  CHECK(tree_of(v, 0, 0) == "((2+1)+0)");
  CHECK(tree_of(v, 0, 1) == "(2+(1+0))");
  CHECK_FALSE(v.same_tree_everywhere);
}

TEST_CASE("a score that moves but does not reduce has no trees") {
  drafting s{collective::broadcast, 2, 1, false, 1};
  s.lane(1).to(0).send(input[0]);
  s.lane(1).copy(input[0], output[0]);
  s.lane(0).from(1).recv(output[0]);
  const verdict v = verify(s.finish());
  REQUIRE(v.ok());
  CHECK(tree_of(v, 0, 0) == "-");
  CHECK(v.same_tree_everywhere);
  CHECK(v.rank_ordered);
}

TEST_CASE("nonsense in the head of a score") {
  const auto edited = [](auto edit) {
    score s = exchange();
    edit(s);
    return s;
  };
  refuses(edited([](score& s) { s.ranks = 3; }), -1, -1, -1, "parts for 2 ranks");
  refuses(edited([](score& s) { s.ranks = 0; }), -1, -1, -1, "0 ranks");
  refuses(edited([](score& s) { s.ranks = std::numeric_limits<int>::max(); }), -1, -1, -1, "ranks, allowed");
  refuses(edited([](score& s) { s.parts = 0; }), -1, -1, -1, "0 parts");
  refuses(edited([](score& s) {
            s.parts = 1 << 20;
            s.what = collective::all_to_all;
          }),
          -1, -1, -1, "too large", {8, 8});
  refuses(edited([](score& s) { s.parts = std::numeric_limits<int>::max(); }), -1, -1, -1, "parts, allowed");
  refuses(edited([](score& s) {
            s.what = collective::reduce;
            s.root = 2;
          }),
          -1, -1, -1, "root 2");
  refuses(edited([](score& s) { s.what = static_cast<collective>(77); }), -1, -1, -1, "unknown");
  refuses(edited([](score& s) { s.players[1].scratch[0].block = 1; }), 1, -1, -1, "declares scratch[0]");
  refuses(edited([](score& s) { s.l2.push_back({0, -1}); }), -1, -1, -1, "declares l2[0]");
  refuses(exchange(), -1, -1, -1, "0 credits", {0, 1});
  refuses(exchange(), -1, -1, -1, "0 slices", {1, 0});
  refuses(exchange(), -1, -1, -1, "too large", {1, 1 << 28});
}

TEST_CASE("nonsense in a step") {
  const auto edited = [](rank_t rank, int at, auto edit) {
    score s = exchange();
    edit(nth(s, rank, at));
    return s;
  };
  constexpr auto huge = std::numeric_limits<std::int32_t>::max();
  refuses(edited(1, 0, [](step& s) { s.kind = static_cast<step_kind>(99); }), 1, 0, 0, "unknown");
  refuses(edited(1, 0, [](step& s) { s.to = 2; }), 1, 0, 0, "sends to rank 2");
  refuses(edited(0, 0, [](step& s) { s.to = 0; }), 0, 0, 0, "itself");
  refuses(edited(0, 1, [](step& s) { s.from = -5; }), 0, 0, 1, "receives from rank -5");
  refuses(edited(0, 2, [](step& s) { s.source.cell = 1; }), 0, 0, 2, "out of range");
  refuses(edited(0, 2, [](step& s) { s.source.cell = -1; }), 0, 0, 2, "out of range");
  refuses(edited(0, 2, [](step& s) { s.target.cell = huge, s.target.count = huge; }), 0, 0, 2, "out of range");
  refuses(edited(0, 2, [](step& s) { s.target.count = -1; }), 0, 0, 2, "out of range");
  refuses(edited(0, 2, [](step& s) { s.source.buffer = static_cast<buffer_kind>(9); }), 0, 0, 2, "unknown buffer");
  refuses(edited(0, 2, [](step& s) { s.source.owner = 7; }), 0, 0, 2, "rank 7, which does not exist");
  refuses(edited(0, 2, [](step& s) { s.source = {buffer_kind::scratch, 1, 0, 1}; }), 0, 0, 2, "private to its rank");
  refuses(edited(0, 2, [](step& s) { s.source.count = 0; }), 0, 0, 2, "source token has 0 cells");
  refuses(edited(0, 2, [](step& s) { s.target = s.source; }), 0, 0, 2, "the input must not change");
  refuses(edited(0, 1, [](step& s) { s.source = s.target; }), 0, 0, 1, "has no source");
  refuses(edited(0, 2, [](step& s) { s.after = {1, 0}; }), 0, 0, 2, "waits for lane 1");
  refuses(edited(0, 2, [](step& s) { s.after = {0, 9}; }), 0, 0, 2, "waits for lane 0 step 9");
  refuses(edited(0, 2, [](step& s) { s.after = {0, 2}; }), 0, 0, 2, "which comes later");
  refuses(edited(0, 2, [](step& s) { s.after = {-2, 0}; }), 0, 0, 2, "waits for lane -2");
  refuses(edited(0, 2, [](step& s) { s.kind = step_kind::dma_get; }), 0, 0, 2, "needs l0");
  refuses(edited(0, 1, [](step& s) { s.fan = 1; }), 0, 0, 1, "only recv_reduce");
  accepts(edited(0, 2, [](step& s) { s.after = {0, 1}; }));

  drafting synced{collective::barrier, 2};
  synced.lane(0).sync();
  refuses(synced.finish(), 0, 0, 0, "sync");
}

TEST_CASE("cells of different size do not meet") {
  drafting s{collective::all_gather, 2, 1, false, 0, false};
  for (rank_t r = 0; r < 2; ++r) {
    auto me = s.lane(r).from(1 - r).to(1 - r);
    me.copy(input[0], output[r]);
    me.send(input[0]);
    me.recv(output[1 - r]);
  }
  score right = s.finish();
  accepts(right);
  score wrong = right;
  nth(wrong, 0, 0).target.cell = 1;
  refuses(wrong, 0, 0, 0, "differ in size");
  wrong = right;
  nth(wrong, 1, 2).target.cell = 1;
  refuses(wrong, 1, 0, 2, "differs in size");
}

TEST_CASE("unwritten cells and wrong results") {
  score s = exchange();
  nth(s, 0, 2).kind = step_kind::wait;
  nth(s, 0, 2).source = nth(s, 0, 2).target = {};
  refuses(s, 0, 0, 3, "reads output[0], which nothing has written");
  s = exchange();
  s.players[1].lanes[0].resize(2);
  refuses(s, 1, -1, -1, "output[0] is never written");
  s = exchange();
  s.players[1].lanes[0].resize(3);
  refuses(s, 1, -1, -1, "output[0] lacks the contribution of rank 0");
  s = exchange();
  s.players[1].lanes[0].push_back(nth(s, 1, 3));
  refuses(s, 1, 0, 4, "counts a contribution twice at output[0]");
}

TEST_CASE("chunks that are not the same are not combined, nor delivered to each other's place") {
  drafting s{collective::reduce_scatter, 2};
  for (rank_t r = 0; r < 2; ++r) {
    auto me = s.lane(r).from(1 - r).to(1 - r);
    me.send(input[1 - r]);
    me.recv_reduce_copy(input[r], output[0]);
  }
  score right = s.finish();
  accepts(right);
  score wrong = right;
  nth(wrong, 1, 0).source.cell = 1;
  refuses(wrong, 0, 0, 1, "combines different chunks");
  wrong = right;
  nth(wrong, 1, 0).source.cell = nth(wrong, 0, 1).source.cell = 1;
  refuses(wrong, 0, -1, -1, "ends with block 1 instead of block 0");
}

TEST_CASE("messages: another size, a token for cells, left over") {
  drafting s{collective::broadcast, 2, 2};
  s.lane(0).copy(input.all(), output.all());
  s.lane(0).to(1).send(input.all());
  s.lane(1).from(0).recv(output.all());
  const score right = s.finish();
  accepts(right);
  score wrong = right;
  nth(wrong, 1, 0).target.count = 1;
  refuses(wrong, 1, 0, 0, "expects 1 cells for output[0], but the message of rank 0 step 1 has 2 cells");
  wrong = right;
  nth(wrong, 0, 1).source = {};
  refuses(wrong, 1, 0, 0, "is a token");
  wrong = right;
  nth(wrong, 0, 1).source.count = 1;
  nth(wrong, 1, 0).target.count = 1;
  refuses(wrong, 1, -1, -1, "output[1] is never written");
  wrong = right;
  wrong.players[0].lanes[0].push_back(nth(wrong, 0, 1));
  refuses(wrong, 0, 0, 2, "never received");
  wrong = right;
  wrong.players[1].lanes.insert(wrong.players[1].lanes.begin(), lane{});
  refuses(wrong, 1, 1, 0, "which has no lane 1");
}

TEST_CASE("lanes that get stuck: the fault tells what they wait for") {
  drafting s{collective::barrier, 3};
  for (rank_t r = 0; r < 3; ++r) {
    s.lane(r).await(s.before(r));
    s.lane(r).signal(s.after(r));
  }
  refuses(s.finish(), 0, 0, 0,
          "rank 0 lane 0 step 0 waits for a message from rank 2; rank 2 lane 0 step 0 waits for a message from rank 1; "
          "rank 1 lane 0 step 0 waits for a message from rank 0, which closes the circle");

  drafting lonely{collective::barrier, 2};
  lonely.lane(0).await(1);
  lonely.lane(1).wait({});
  refuses(lonely.finish(), 0, 0, 0, "waits for a message from rank 1, which has performed all its steps");

  drafting after{collective::barrier, 1};
  after.lane(0, 0).wait({1, 0});
  after.lane(0, 1).wait({0, 0});
  refuses(after.finish(), 0, 0, 0,
          "waits for step 0 of its lane 1; rank 0 lane 1 step 0 waits for step 0 of its lane 0");
}

TEST_CASE("lanes that get stuck for lack of credits") {
  drafting s{collective::barrier, 2};
  for (rank_t r = 0; r < 2; ++r) {
    for (int i = 0; i < 3; ++i) s.lane(r).signal(1 - r);
    for (int i = 0; i < 3; ++i) s.lane(r).await(1 - r);
  }
  const score both = s.finish();
  accepts(both, {3, 1});
  refuses(both, 0, 0, 2,
          "rank 0 lane 0 step 2 waits for a credit from rank 1; rank 1 lane 0 step 2 waits for a credit from rank 0",
          {2, 1});
}

TEST_CASE("a reference must stay as it is until it was read") {
  drafting s{collective::all_reduce, 2, 1, true};
  const cells kept[] = {s.scratch_like(0, input.all()), s.scratch_like(1, input.all())};
  for (rank_t r = 0; r < 2; ++r) {
    auto me = s.lane(r).from(1 - r).to(1 - r);
    me.send(input[0]);
    me.recv(kept[r]);
    me.reduce(kept[r], output[0]);
  }
  const verdict v = verify(s.finish());
  REQUIRE_FALSE(v.ok());
  CHECK(v.first_fault->step == 2);
  CHECK(v.first_fault->what.find("output[0]") != std::string::npos);

  // In this order of events the read has not even happened.
  drafting late{collective::broadcast, 2, 1, true};
  late.lane(0).to(1).send(output[0]);
  late.lane(0).copy(output[0], late.scratch_like(0, output[0]));
  late.lane(0).copy(scratch[0], output[0]);
  late.lane(0).signal(1);
  late.lane(1).from(0).recv(output[0]);
  late.lane(1).await(0);
  refuses(late.finish(), 0, 0, 2, "overwrites output[0] while rank 1 has still to read");
}

TEST_CASE("lanes of a rank are ordered by after only") {
  drafting s{collective::broadcast, 1};
  const cells kept = s.scratch_like(0, input[0]);
  const step_ref first = s.lane(0, 0).copy(input[0], kept);
  s.lane(0, 1).after(first).copy(kept, output[0]);
  const score right = s.finish();
  accepts(right, {1, 3});
  score wrong = right;
  nth(wrong, 0, 0, 1).after = {};
  const verdict v = verify(wrong);
  REQUIRE_FALSE(v.ok());
  CHECK(v.first_fault->rank == 0);
  CHECK(v.first_fault->step == 0);
}

TEST_CASE("two lanes must not write a cell without order, even if nobody reads it") {
  drafting s{collective::all_to_all, 1};
  const step_ref first = s.lane(0, 0).copy(input[0], output[0]);
  s.lane(0, 1).after(first).copy(input[0], output[0]);
  score right = s.finish();
  accepts(right);
  nth(right, 0, 0, 1).after = {};
  refuses(right, 0, 1, 0, "writes output[0], which rank 0 lane 0 step 0 writes, and nothing orders the two");
}

TEST_CASE("nor write what another lane still reads") {
  drafting s{collective::all_to_all, 1};
  const cells kept = s.scratch_like(0, input[0]);
  const step_ref first = s.lane(0, 0).copy(input[0], kept);
  const step_ref last = s.lane(0, 0).copy(kept, output[0]);
  s.lane(0, 1).after(last).copy(input[0], kept);
  score right = s.finish();
  accepts(right);
  nth(right, 0, 0, 1).after = first;
  refuses(right, 0, 1, 0, "writes scratch[0], which rank 0 lane 0 step 1 reads, and nothing orders the two");
}

TEST_CASE("l0 is the same memory in every slice") {
  drafting s{collective::broadcast, 1};
  const cells tile = s.l0_like(0, input[0]);
  const step_ref got = s.lane(0, 0).dma_get(input[0], tile);
  const step_ref put = s.lane(0, 1).after(got).dma_put(tile, output[0]);
  accepts(s.draft(), {1, 1});
  refuses(s.draft(), 0, 1, 0, "reads l0[0], which rank 0 lane 0 step 0 (slice 1) writes", {1, 2});
  // Two slices apart instead of one: wait for the put before the next slice begins.
  s.lane(0, 0).wait(put);
  accepts(s.finish(), {1, 3});
}

TEST_CASE("what l0 holds in a later slice does not help the first") {
  drafting s{collective::broadcast, 1, 2};
  const cells tile = s.l0_like(0, input[0]);
  auto me = s.lane(0);
  me.dma_get(input[0], tile);
  me.dma_put(tile, output[0]);
  me.copy(input[1], output[1]);
  score right = s.finish();
  accepts(right, {1, 2});
  std::swap(nth(right, 0, 0), nth(right, 0, 1));
  refuses(right, 0, 0, 0, "reads l0[0], which nothing has written", {1, 2});
}

TEST_CASE("l2 is shared and ordered by messages") {
  drafting s{collective::broadcast, 2};
  const cells shared = s.l2_block(0);
  s.lane(0).copy(input[0], shared);
  s.lane(0).copy(input[0], output[0]);
  s.lane(0).signal(1);
  s.lane(1).await(0);
  s.lane(1).copy(shared, output[0]);
  score right = s.finish();
  accepts(right, {1, 2});
  score wrong = right;
  nth(wrong, 1, 1).source.owner = 0;
  refuses(wrong, 1, 0, 1, "l2 belongs to all ranks");
  wrong = right;
  std::swap(nth(wrong, 1, 0), nth(wrong, 1, 1));
  const verdict v = verify(wrong);
  REQUIRE_FALSE(v.ok());
  CHECK(v.first_fault->what.find("l2[0]") != std::string::npos);
}

TEST_CASE("another rank's buffers may be touched only while that rank is inside") {
  const auto draft = [](bool ask, bool tell) {
    drafting s{collective::broadcast, 2};
    s.lane(0).copy(input[0], output[0]);
    if (ask) s.lane(0).signal(1), s.lane(1).await(0);
    s.lane(1).copy(input.of(0)[0], output[0]);
    if (tell) s.lane(1).signal(0), s.lane(0).await(1);
    return s.finish();
  };
  accepts(draft(true, true), {1, 2});
  refuses(draft(false, true), 1, 0, 0, "without a message that says that rank 0 has begun");
  refuses(draft(true, false), 1, 0, 1, "rank 0 may have ended the operation by then");
}

TEST_CASE("a credit orders the next send after the receive") {
  // The second message may go out only when the first was received: with one credit that makes scratch[0] free again.
  drafting s{collective::broadcast, 2, 2};
  const cells slot = s.scratch_like(0, input[0]);
  s.draft().players[0].scratch[0].part = 0;
  auto sender = s.lane(0).to(1);
  sender.copy(input.all(), output.all());
  sender.copy(input[0], slot);
  sender.send(slot);
  sender.send(input[1]);
  sender.signal(1);
  sender.copy(input[0], slot);
  auto receiver = s.lane(1).from(0);
  receiver.recv(output[0]);
  receiver.recv(output[1]);
  receiver.await(0);
  const score twice = s.finish();
  accepts(twice, {1, 1});
  accepts(twice, {2, 1});
  refuses(twice, 0, 0, 5, "scratch[0]", {3, 1});
}

TEST_CASE("a message may be taken before the credit for passing it on is there") {
  // With one credit the relay waits until the first message was read, but it may receive the second before that.
  drafting s{collective::broadcast, 3};
  auto root = s.lane(0).to(1);
  root.copy(input[0], output[0]);
  root.send(input[0]);
  root.send(input[0]);
  const cells kept = s.scratch_like(1, output[0]);
  auto relay = s.lane(1).from(0).to(2);
  relay.recv_copy_send(output[0]);
  relay.recv_copy_send(kept);
  s.lane(2).from(1).recv(output[0]);
  s.lane(2).from(1).recv(output[0]);
  score right = s.finish();
  accepts(right, {1, 1});
  nth(right, 1, 1).target = nth(right, 1, 0).target;
  refuses(right, 1, 0, 1, "writes output[0], which rank 2 lane 0 step 0 reads, and nothing orders the two", {1, 1});
}

TEST_CASE("a message may not be received into cells that overlap it halfway") {
  drafting s{collective::all_gather, 2};
  for (int block : {0, 1, 1}) s.l2_block(block);
  s.lane(0).copy(input[0], l2[0]);
  s.lane(0).copy(input[0], l2[1]);
  s.lane(0).to(1).send(l2.cells(0, 2));
  s.lane(1).from(0).recv(l2.cells(1, 2));
  refuses(s.finish(), 1, 0, 0, "from cells that overlap it");
}

TEST_CASE("fans: any order must do") {
  const auto draft = [] {
    drafting s{collective::reduce, 3};
    s.lane(1).to(0).send(input[0]);
    s.lane(2).to(0).send(input[0]);
    auto me = s.lane(0);
    me.copy(input[0], output[0]);
    me.fan(1).from(1).recv_reduce(output[0]);
    me.from(2).recv_reduce(output[0]);
    me.fan(0);
    return s.finish();
  };
  const verdict v = verify(draft());
  REQUIRE(v.ok());
  CHECK(tree_of(v, 0, 0) == "(2+(1+0))");
  score wrong = draft();
  nth(wrong, 0, 2).from = 1;
  refuses(wrong, 0, 0, 2, "receives twice from rank 1");
  wrong = draft();
  nth(wrong, 0, 2).after = {0, 1};
  refuses(wrong, 0, 0, 2, "");
  wrong = draft();
  wrong.players[0].lanes[0].insert(wrong.players[0].lanes[0].begin() + 2, step{});
  refuses(wrong, 0, 0, 3, "must be neighbours");
  wrong = draft();
  wrong.players[0].lanes.push_back({});
  wrong.players[0].lanes[1].push_back({});
  nth(wrong, 0, 0, 1).after = {0, 2};
  accepts(wrong);
  nth(wrong, 0, 0, 1).after = {0, 1};
  refuses(wrong, 0, 1, 0, "inside a fan");
}

TEST_CASE("fans: what one member orders must not be taken for what another orders") {
  // Rank 2 may write what rank 1 reads only after rank 1 has ... which rank 0 learns from the second member, not the first.
  const auto draft = [](std::uint16_t fan) {
    drafting s{collective::reduce, 3};
    const cells shared = s.l2_block(0);
    s.lane(1).copy(input[0], shared);
    s.lane(1).to(0).send(input[0]);
    s.lane(2).to(0).send(input[0]);
    auto me = s.lane(0);
    me.copy(input[0], output[0]);
    me.fan(fan).from(1).recv_reduce(output[0]);
    me.from(2).recv_reduce(output[0]);
    me.fan(0);
    // Credits of the second member do not tell rank 2 that the first was performed.
    s.lane(2).to(0).signal(0);
    s.lane(2).copy(shared, s.scratch_like(2, input[0]));
    me.await(2);
    return s.finish();
  };
  accepts(draft(0), {1, 1});
  const verdict v = verify(draft(1), {1, 1});
  REQUIRE_FALSE(v.ok());
  CHECK(v.first_fault->what.find("l2[0]") != std::string::npos);
}

TEST_CASE("places may not overlap halfway") {
  drafting s{collective::broadcast, 1, 3};
  const cells kept = s.scratch_like(0, input.all());
  s.lane(0).copy(input.all(), kept);
  s.lane(0).copy(kept, output.all());
  score right = s.finish();
  accepts(right);
  right.players[0].scratch.push_back({0, 0});
  right.players[0].scratch[1] = right.players[0].scratch[2] = {0, 0};
  right.players[0].lanes[0] = {step{}, step{}};
  nth(right, 0,
      0) = {step_kind::copy, false, 0, -1, -1, {buffer_kind::scratch, self, 0, 3}, {buffer_kind::scratch, 0, 1, 3}, {}};
  refuses(right, 0, 0, 0, "overlap");
}

TEST_CASE("in place: an input that is not shared with the output stays untouched") {
  drafting s{collective::reduce, 2, 1, true, 1};
  auto root = s.lane(1).from(0);
  root.recv_reduce(input[0]);
  s.lane(0).to(1).send(input[0]);
  score right = s.finish();
  accepts(right);
  right.players[0].lanes[0].push_back(
      {step_kind::copy, false, 0, -1, -1, {buffer_kind::input, self, 0, 1}, {buffer_kind::input, self, 0, 1}, {}});
  refuses(right, 0, 0, 1, "only the root's buffers are in place");
}

TEST_CASE("barrier: nobody leaves before everybody has come") {
  drafting s{collective::barrier, 3};
  for (rank_t r = 0; r < 3; ++r)
    for (int d = 1; d < 3; d *= 2) {
      s.lane(r).signal(s.after(r, d));
      s.lane(r).await(s.before(r, d));
    }
  accepts(s.finish(), {1, 2});

  drafting star{collective::barrier, 3};
  star.lane(1).signal(0);
  star.lane(2).signal(0);
  star.lane(0).await(1);
  star.lane(0).await(2);
  refuses(star.finish(), 1, -1, -1, "can leave the barrier before rank 2 has come");

  refuses(drafting{collective::barrier, 2}.finish(), 0, -1, -1, "before rank 1 has come");
  accepts(drafting{collective::barrier, 1}.finish());
}

TEST_CASE("scores full of nonsense are judged, not crashed on") {
  std::mt19937_64 random{seed()};
  const auto number = [&]() -> std::int32_t {
    constexpr std::int32_t odd[] = {
        -1, 0, 1, 2, 3, 7, -2, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()};
    return odd[random() % std::size(odd)];
  };
  const auto scramble = [&](step& s) {
    switch (random() % 12) {
      case 0: s.kind = static_cast<step_kind>(random() % 16); break;
      case 1: s.fan = static_cast<std::uint16_t>(number()); break;
      case 2: s.from = number(); break;
      case 3: s.to = number(); break;
      case 4: s.after.lane = number(); break;
      case 5: s.after.step = number(); break;
      case 6: s.source.buffer = static_cast<buffer_kind>(random() % 8); break;
      case 7: s.target.buffer = static_cast<buffer_kind>(random() % 8); break;
      case 8: s.source.owner = number(); break;
      case 9: s.target.cell = number(); break;
      case 10: s.source.count = number(); break;
      default: s.target.count = number(); break;
    }
  };
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    score s = exchange(random() % 2 == 0);
    if (random() % 4 == 0) s.what = static_cast<collective>(random() % 11);
    if (random() % 8 == 0) s.root = number();
    if (random() % 8 == 0) s.ranks = number();
    if (random() % 8 == 0) s.parts = number();
    if (random() % 8 == 0) s.players[1].scratch[0] = {number(), number()};
    for (auto n = random() % 4; n > 0; --n)
      scramble(nth(s, static_cast<rank_t>(random() % 2), static_cast<int>(random() % 4)));
    const verdict v = verify(s, {1 + static_cast<int>(random() % 2), 1 + static_cast<int>(random() % 2)});
    accepted += v.ok();
    if (!v.ok()) CHECK_FALSE(to_string(*v.first_fault).empty());
  }
  CHECK(accepted > 0);
  CHECK(accepted < 20'000);
}
