// SPDX-License-Identifier: Apache-2.0
#include "protocols/score/score.hpp"

#include <doctest/doctest.h>

#include <set>

#include "protocols/choreographies/choreography.hpp"
#include "protocols/score/score_builder.hpp"

using namespace troupe;
using namespace troupe::notation;

namespace {

score blank(collective what, int ranks, rank_t root, bool in_place, int parts) {
  return score_builder{flat_setup(what, ranks, root, in_place), "test", parts}.finish();
}

score exchange() {
  score_builder b{flat_setup(collective::all_reduce, 2), "exchange", 2};
  for (rank_t r : {0, 1}) {
    const cells kept = b.scratch_like(r, input.all());
    auto me = b.lane(r).from(1 - r).to(1 - r);
    me.send(input.all());
    me.recv(kept);
    const step_ref copied = me.copy(input.all(), output.all());
    me.reduce(kept, output.all());
    b.lane(r, 1).wait(copied);
  }
  return b.finish();
}

}  // namespace

TEST_CASE("names of kinds are all different and of every kind") {
  std::set<std::string_view> names;
  for (int i = 0; i < step_kind_count; ++i) names.insert(name(static_cast<step_kind>(i)));
  CHECK(names.size() == step_kind_count);
  CHECK(name(step_kind::recv_reduce_copy_send) == "recv_reduce_copy_send");
  CHECK(name(step_kind::wait) == "wait");
  for (int i = 0; i < collective_count; ++i)
    CHECK(parse_collective(name(static_cast<collective>(i))) == static_cast<collective>(i));
  CHECK_FALSE(parse_collective("allreduce"));
}

TEST_CASE("what a kind does agrees with its name") {
  for (int i = 0; i < step_kind_count; ++i) {
    const auto kind = static_cast<step_kind>(i);
    const std::string_view text = name(kind);
    CAPTURE(text);
    CHECK(receives(kind) == (text.substr(0, 4) == "recv"));
    CHECK(sends(kind) == (text.size() >= 4 && text.substr(text.size() - 4) == "send"));
    CHECK(reduces(kind) == (text.find("reduce") != text.npos));
    if (reads_target(kind)) CHECK(writes(kind));
  }
}

TEST_CASE("places as text") {
  CHECK(to_string(place{}) == "token");
  CHECK(to_string(place{buffer_kind::input, self, 3, 1}) == "input[3]");
  CHECK(to_string(place{buffer_kind::scratch, self, 0, 4}) == "scratch[0..4)");
  CHECK(to_string(place{buffer_kind::output, 2, 1, 1}) == "output[1]@2");
}

TEST_CASE("steps as sentences") {
  const score s = exchange();
  CHECK(to_string(s.players[0].lanes[0][0]) == "send: input[0..2) → rank 1");
  CHECK(to_string(s.players[0].lanes[0][1]) == "recv: from 1 → scratch[0..2)");
  CHECK(to_string(s.players[0].lanes[0][3]) == "reduce: scratch[0..2) → output[0..2)");
  CHECK(to_string(s.players[0].lanes[1][0]) == "wait: after lane 0 step 2");
  CHECK(to_string(step{}) == "wait");
}

TEST_CASE("cells hold the parts of the collective's blocks") {
  const score s = blank(collective::all_to_all, 3, 0, false, 2);
  CHECK(cell_count(s, 1, buffer_kind::input) == 6);
  CHECK(extent_of(s, 1, buffer_kind::input, 5) == extent{5, 1});   // block (1, 2)
  CHECK(extent_of(s, 1, buffer_kind::output, 5) == extent{7, 1});  // block (2, 1)
  const score g = blank(collective::gather, 3, 2, false, 4);
  CHECK(cell_count(g, 0, buffer_kind::output) == 0);
  CHECK(cell_count(g, 2, buffer_kind::output) == 12);
}

TEST_CASE("in place, one memory has one name") {
  const auto same = [](collective what, rank_t rank, std::int32_t in, std::int32_t out) {
    const score s = blank(what, 3, 1, true, 2);
    return canonical(s, rank, {buffer_kind::input, self, in, 1}) ==
           canonical(s, rank, {buffer_kind::output, self, out, 1});
  };
  CHECK(same(collective::all_reduce, 0, 1, 1));
  CHECK_FALSE(same(collective::all_reduce, 0, 1, 0));
  CHECK(same(collective::all_gather, 2, 1, 5));
  CHECK_FALSE(same(collective::all_gather, 2, 1, 1));
  CHECK(same(collective::reduce_scatter, 2, 5, 1));
  CHECK(same(collective::reduce, 1, 0, 0));
  CHECK_FALSE(same(collective::reduce, 0, 0, 0));
  CHECK(same(collective::scatter, 1, 2, 0));
  CHECK(same(collective::gather, 1, 0, 2));
  CHECK_FALSE(same(collective::gather, 2, 0, 4));
  CHECK(same(collective::broadcast, 1, 1, 1));
  const score apart = blank(collective::all_reduce, 3, 0, false, 2);
  CHECK(canonical(apart, 0, {buffer_kind::output, self, 1, 1}) == place{buffer_kind::output, 0, 1, 1});
}

TEST_CASE("the text of a score") {
  CHECK(to_text(exchange()) == "exchange: all_reduce, 2 ranks, 2 parts a block, out of place, 10 steps\n"
                               "who sends to whom, if every message takes one round:\n"
                               "  round 1   0→1  1→0\n"
                               "rank 0\n"
                               "  scratch[2] holds block 0 parts 0..1\n"
                               "  lane 0\n"
                               "    0  send    input[0..2) → rank 1\n"
                               "    1  recv    from 1 → scratch[0..2)\n"
                               "    2  copy    input[0..2) → output[0..2)\n"
                               "    3  reduce  scratch[0..2) → output[0..2)\n"
                               "  lane 1\n"
                               "    0  wait    after lane 0 step 2\n"
                               "rank 1\n"
                               "  scratch[2] holds block 0 parts 0..1\n"
                               "  lane 0\n"
                               "    0  send    input[0..2) → rank 0\n"
                               "    1  recv    from 0 → scratch[0..2)\n"
                               "    2  copy    input[0..2) → output[0..2)\n"
                               "    3  reduce  scratch[0..2) → output[0..2)\n"
                               "  lane 1\n"
                               "    0  wait    after lane 0 step 2\n");
}

TEST_CASE("rounds in the text: a binomial broadcast to eight takes three") {
  const std::string text = to_text(write_score(*find_choreography("binomial"), flat_setup(collective::broadcast, 8)));
  CHECK(text.find("binomial: broadcast, 8 ranks, root 0, ") == 0);
  CHECK(text.find("round 3 ") != std::string::npos);
  CHECK(text.find("round 4 ") == std::string::npos);
}

TEST_CASE("the text of nonsense is still text") {
  score s = blank(collective::all_reduce, 2, 0, false, 1);
  step wild;
  wild.kind = step_kind::recv_copy_send;
  wild.from = -5;
  wild.to = 77;
  wild.target = {buffer_kind::scratch, 9, -4, 2'000'000'000};
  wild.after = {4, -1};
  s.players[1].lanes = {{wild}, {}};
  s.ranks = -1;
  const std::string text = to_text(s);
  CHECK(text.find("recv_copy_send  from -5 → scratch[-4..1999999996)@9 → rank 77, after lane 4 step -1") !=
        std::string::npos);
  CHECK(text.find("lane 1: nothing") != std::string::npos);
}
