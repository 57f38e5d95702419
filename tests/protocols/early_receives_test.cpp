// SPDX-License-Identifier: Apache-2.0
// Which receives may be received before their turn, in which scores, and that the proof finds those that may not.

#include "protocols/program/early_receives.hpp"

#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/perform/program_proof.hpp"
#include "protocols/program/program.hpp"
#include "protocols/score/score_builder.hpp"
#include "protocols/verify/verifier.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

using namespace troupe;

namespace {

int early_in(const score& s, rank_t rank) {
  int total = 0;
  for (const auto& lane : early_receives(s, rank))
    for (const bool early : lane) total += early ? 1 : 0;
  return total;
}

int early_in(const char* by, collective what, int ranks, rank_t rank, rank_t root = 0, bool in_place = false) {
  const setup on = flat_setup(what, ranks, root, in_place);
  return early_in(one_cell_per_step(lower_syncs(write_score(*find_choreography(by), on))), rank);
}

/// Rank 0 sends what is for rank 2 from the place of what rank 1 has for it, which it receives when rank 2 has said that it has that.
score lends_its_output() {
  using namespace notation;
  score_builder s{flat_setup(collective::all_to_all, 3), "lends", 1};
  auto zero = s.lane(0), one = s.lane(1), two = s.lane(2);
  zero.copy_own(input[0], output[0]);
  zero.copy(input[2], output[1]);
  zero.to(2).send(output[1]);
  zero.to(1).send(input[1]);
  zero.from(2).recv(output[2]);
  zero.from(1).recv(output[1]);
  one.copy_own(input[1], output[1]);
  one.to(0).send(input[0]);
  one.to(2).send(input[2]);
  one.from(0).recv(output[0]);
  one.from(2).recv(output[2]);
  two.copy_own(input[2], output[2]);
  two.from(0).recv(output[0]);
  two.to(0).send(input[0]);
  two.to(1).send(input[1]);
  two.from(1).recv(output[1]);
  return s.finish();
}

std::vector<std::shared_ptr<program>> programs_of(const score& s, const call_shape& shape) {
  std::vector<std::shared_ptr<program>> all;
  for (rank_t r = 0; r < s.ranks; ++r) all.push_back(std::make_shared<program>(compile(s, r, shape, {})));
  return all;
}

std::string proved(const score& s, const std::vector<std::shared_ptr<program>>& programs, const call_shape& shape) {
  const verdict verified = verify(s);
  REQUIRE(verified.ok());
  const std::vector<std::shared_ptr<const program>> all(programs.begin(), programs.end());
  return why_not_the_score({s, verified, shape}, all, 8);
}

}  // namespace

TEST_CASE("where a rank receives from one after the other, all but the first are early") {
  for (const int ranks : {2, 3, 5, 9})
    for (const rank_t r : {0, ranks - 1})
      for (const bool in_place : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(in_place);
        CHECK(early_in("one_shot", collective::all_to_all, ranks, r, 0, in_place) == ranks - 2);
        CHECK(early_in("one_shot", collective::all_gather, ranks, r, 0, in_place) == ranks - 2);
        CHECK(early_in("one_shot", collective::gather, ranks, r, r) == ranks - 2);
      }
  CHECK(early_in("one_shot", collective::gather, 5, 1) == 0);      // no root
  CHECK(early_in("one_shot", collective::barrier, 5, 1) == 0);     // tokens have no place
  CHECK(early_in("one_shot", collective::all_reduce, 5, 3) == 0);  // they are combined
  CHECK(early_in("pairwise", collective::all_to_all, 5, 1) == 0);  // a send between any two
  CHECK(early_in("ring", collective::all_gather, 5, 1) == 0);
}

TEST_CASE("a place that was sent from, or that another lane touches, is not free early") {
  const score lends = lends_its_output();
  CHECK(early_in(lends, 0) == 0);
  CHECK(early_in(lends, 1) == 1);
  CHECK(early_in(lends, 2) == 0);
  const call_shape shape{3, {}, {}, {}, 8};
  auto programs = programs_of(lends, shape);
  CHECK(programs[1]->lanes[0].back().early);
  CHECK(proved(lends, programs, shape) == "");
  REQUIRE(programs[0]->lanes[0].back().kind == step_kind::recv);
  programs[0]->lanes[0].back().early = true;
  const std::string why = proved(lends, programs, shape);
  CHECK_MESSAGE(why.find("is received early, while another step touches it") != std::string::npos, why);
  programs[0]->lanes[0].back().early = false;
  programs[0]->lanes[0].front().early = true;  // a copy
  CHECK(proved(lends, programs, shape) == "");
  programs[2]->lanes[0][1].early = true;  // behind a copy
  CHECK(proved(lends, programs, shape).find("no receive behind another one") != std::string::npos);

  score other_lane = lends;
  step touches;
  touches.kind = step_kind::copy;
  touches.source = {buffer_kind::input, self, 1, 1};
  touches.target = {buffer_kind::output, self, 2, 1};
  other_lane.players[1].lanes.push_back({touches});
  CHECK(early_in(other_lane, 1) == 0);
}

TEST_CASE("a root's input may lie in its output, which its score does not say") {
  using namespace notation;
  score_builder s{flat_setup(collective::gather, 3), "late", 1};
  auto zero = s.lane(0);
  zero.from(1).recv(output[1]);
  zero.from(2).recv(output[2]);
  zero.copy(input[0], output[0]);
  s.lane(1).to(0).send(input[0]);
  s.lane(2).to(0).send(input[0]);
  const score late = s.finish();
  CHECK(early_in(late, 0) == 1);
  score lent = late;
  step sends;
  sends.kind = step_kind::send;
  sends.to = 1;
  sends.source = {buffer_kind::input, self, 0, 1};
  lent.players[0].lanes[0].insert(lent.players[0].lanes[0].begin(), sends);
  CHECK(early_in(lent, 0) == 0);
}

TEST_CASE("slices and channels are early as the whole is, but not where a step takes several slices") {
  const score s = one_cell_per_step(
      lower_syncs(write_score(*find_choreography("one_shot"), flat_setup(collective::all_to_all, 4))));
  const auto count = [&](const cutting& cut) {
    std::size_t early = 0, receives = 0;
    for (const auto& lane : compile(s, 1, {400, {}, {}, {}, 8}, cut).lanes)
      for (const instruction& i : lane) early += i.early ? 1 : 0, receives += i.kind == step_kind::recv ? 1 : 0;
    return std::pair{early, receives};
  };
  CHECK(count({1, 1}) == std::pair<std::size_t, std::size_t>{2, 3});
  CHECK(count({2, 3}) == std::pair<std::size_t, std::size_t>{12, 18});
  CHECK(count({1, 4, 2}).first == 0);
}
