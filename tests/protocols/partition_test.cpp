// SPDX-License-Identifier: Apache-2.0
// Partitioned scores: right, piece by piece, and no piece waits for another one.

#include "protocols/lower/partition.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/agreement_round.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/score/score_builder.hpp"
#include "protocols/verify/verifier.hpp"
#include "topology/machine/shared_segment.hpp"

using namespace troupe;

namespace {

constexpr collective partitioned[] = {collective::all_reduce, collective::all_gather, collective::reduce_scatter,
                                      collective::all_to_all, collective::broadcast,  collective::reduce,
                                      collective::gather,     collective::scatter,    collective::scan};

/// Every choreography's score for the collectives that it offers, lowered, where it can be partitioned.
template <class Check>
int for_each_score(Check&& check) {
  int seen = 0;
  for (const choreography* which : all_choreographies())
    for (const collective what : partitioned)
      for (const int ranks : {1, 2, 3, 4, 5, 8})
        for (const bool in_place : {false, true}) {
          if (in_place && !agrees_on_place(what, true)) continue;
          const setup on = flat_setup(what, ranks, has_root(what) ? ranks - 1 : 0, in_place);
          if (std::ranges::find(which->collectives, what, &offer::operator collective) == which->collectives.end())
            continue;
          if (!refusal(*which, on).empty()) continue;
          const score s = lower_syncs(write_score(*which, on));
          if (!why_not_partitioned(s).empty()) continue;
          CAPTURE(std::string{which->name});
          CAPTURE(name(what));
          CAPTURE(ranks);
          CAPTURE(in_place);
          check(s);
          ++seen;
        }
  return seen;
}

}  // namespace

TEST_CASE("every choreography can be partitioned, and is proved right then") {
  const int seen = for_each_score([](const score& s) {
    for (const int pieces : {1, 3}) {
      const score made = partition(s, pieces);
      const verdict v = verify(made, {2, 1});
      CHECK_MESSAGE(v.ok(), to_string(v.first_fault.value_or(fault{})));
      CHECK(made.parts == s.parts * pieces);
      if (s.ranks > 1 && !is_reduction(s.what)) continue;
      const verdict whole = verify(one_cell_per_step(s), {2, 1});
      CHECK(v.left_fold == whole.left_fold);
      CHECK(v.rank_ordered == whole.rank_ordered);
      CHECK(v.same_tree_everywhere == whole.same_tree_everywhere);
    }
  });
  CHECK(seen > 200);
}

TEST_CASE("through L2, too, as long as every piece has a sync of its own") {
  const choreography& csc = *find_choreography("csc");
  for (const collective what : {collective::all_gather, collective::reduce_scatter, collective::all_reduce})
    for (const int ranks : {2, 3, 4})
      for (const bool in_place : {false, true})
        for (const int pieces : {1, 2, 3}) {
          const score whole = write_score(csc, flat_setup(what, ranks, 0, in_place));
          CHECK(why_not_partitioned(whole).empty());
          score made = partition(whole, pieces);
          CHECK(made.l2.size() == whole.l2.size() * static_cast<std::size_t>(pieces));
          // The step that publishes does so in its own share still, whichever piece it is.
          for (rank_t r = 0; r < ranks; ++r)
            for (const lane& steps : made.players[static_cast<std::size_t>(r)].lanes)
              for (const step& at : steps)
                if (at.target.buffer == buffer_kind::l2)
                  CHECK(home_of_shared_cell(at.target.cell, static_cast<std::int64_t>(made.l2.size()), ranks) == r);
          const verdict v = verify(lower_syncs(made), {2, 1});
          CHECK_MESSAGE(v.ok(), to_string(v.first_fault.value_or(fault{})));
          // As real runs perform it: of the lowered score.
          const verdict as_run = verify(partition(lower_syncs(whole), pieces), {2, 1});
          CHECK_MESSAGE(as_run.ok(), to_string(as_run.first_fault.value_or(fault{})));
          // Without its sync the last piece is read before it is known to be there.
          for (part& player : made.players)
            std::erase_if(player.lanes.back(), [](const step& s) { return s.kind == step_kind::sync; });
          CHECK_FALSE(verify(lower_syncs(made), {2, 1}).ok());
        }
}

TEST_CASE("ranks that touch each other's buffers, too: what they hear first says that the piece is ready there") {
  const choreography& fused = *find_choreography("fused");
  for (const collective what : partitioned)
    for (const int ranks : {2, 3, 5})
      for (const bool in_place : {false, true}) {
        const setup on = flat_setup(what, ranks, has_root(what) ? ranks - 1 : 0, in_place);
        const auto offers = std::ranges::find(fused.collectives, what, &offer::operator collective);
        if (offers == fused.collectives.end() || !refusal(fused, on).empty()) continue;
        CAPTURE(name(what));
        CAPTURE(ranks);
        CAPTURE(in_place);
        const score whole = lower_syncs(write_score(fused, on));
        REQUIRE(why_not_partitioned(whole).empty());
        score made = partition(whole, 3);
        REQUIRE(verify(made, {2, 1}).ok());
        // Said by a rank's own lane after it was heard of, it comes too late.
        int late = 0;
        for (part& player : made.players)
          for (lane& steps : player.lanes)
            if (steps.size() > 1 && steps.front().ready_part >= 0) {
              std::rotate(steps.begin(), steps.begin() + 1, steps.end());
              late += !verify(made, {2, 1}).ok();
              std::rotate(steps.begin(), steps.end() - 1, steps.end());
            }
        CHECK(late > 0);
      }
  // A rank that hears nothing before it reads is told nothing.
  const setup two = flat_setup(collective::all_gather, 2);
  score_builder s{two, "reads", 1};
  for (rank_t r = 0; r < 2; ++r)
    for (rank_t q = 0; q < 2; ++q) s.lane(r).copy(notation::input.of(q)[0], notation::output[q]);
  CHECK(why_not_partitioned(s.finish()).find("nobody tells them which parts are ready there") != std::string::npos);
}

TEST_CASE("a partitioned score in which input is read before it is ready is refused") {
  int refused = 0;
  for_each_score([&](const score& s) {
    if (s.ranks != 4) return;
    score made = partition(s, 2);
    // Every wait in turn is left out.
    for (part& player : made.players)
      for (lane& steps : player.lanes)
        for (step& at : steps) {
          if (at.ready_part < 0) continue;
          const std::int32_t piece = std::exchange(at.ready_part, -1);
          const verdict v = verify(made, {2, 1});
          // It kept the rank from ending, and touches nothing; or in place, where what is written over was waited for by another lane.
          const bool spare = steps.size() == 1 || (s.in_place && v.ok());
          if (!spare) {
            REQUIRE_FALSE(v.ok());
            CHECK(v.first_fault->what.find("is known to be ready") != std::string::npos);
            ++refused;
          }
          at.ready_part = piece;
        }
  });
  CHECK(refused > 100);
}

TEST_CASE("a piece that waits for another one is refused") {
  const choreography& ring = *find_choreography("ring");
  score made = partition(lower_syncs(write_score(ring, flat_setup(collective::all_gather, 3))), 2);
  lane& second = made.players[1].lanes[1];
  const auto writes_output = std::ranges::find_if(second, [](const step& at) { return writes(at.kind); });
  REQUIRE(writes_output != second.end());
  writes_output->after = {0, static_cast<std::int32_t>(made.players[1].lanes[0].size()) - 1};
  const verdict v = verify(made, {8, 1});
  REQUIRE_FALSE(v.ok());
  CHECK(to_string(*v.first_fault).find("of piece 1 only after piece 0 of rank") != std::string::npos);
}

TEST_CASE("announcements that make no sense are refused with a sentence") {
  const choreography& ring = *find_choreography("ring");
  const score right = partition(lower_syncs(write_score(ring, flat_setup(collective::all_gather, 2))), 2);
  const auto fault_of = [](const score& s) {
    const verdict v = verify(s, {8, 1});
    return v.ok() ? std::string{} : to_string(*v.first_fault);
  };
  score wrong = right;
  wrong.players[0].lanes[0][0].ready_part = 2;
  CHECK(fault_of(wrong).find("waits for piece 2 to be ready, but there are 2 pieces") != std::string::npos);
  wrong = right;
  wrong.players[0].lanes[0].back().ready_part = 0;
  CHECK(fault_of(wrong).find("put a wait before it") != std::string::npos);
  wrong = right;
  wrong.partitions = 3;
  CHECK(fault_of(wrong).find("3 pieces of a block, which do not divide") != std::string::npos);
}

TEST_CASE("partitioned scores agree once an operation, whatever the number of pieces") {
  for (const collective what : {collective::broadcast, collective::reduce, collective::scatter, collective::gather})
    for (const agreement_form form : agreement_forms) {
      const score s = lower_syncs(write_score(*find_choreography("binomial"), flat_setup(what, 5, 2)));
      const auto whole = with_agreement(s, form), pieces = with_agreement(partition(s, 4), form);
      CAPTURE(name(what));
      CAPTURE(name(form));
      REQUIRE(whole.has_value() == pieces.has_value());
      if (!pieces) continue;
      const verdict v = verify(*pieces, {2, 1});
      CHECK_MESSAGE(v.ok(), to_string(v.first_fault.value_or(fault{})));
      const auto tokens = [](const score& of) {
        std::size_t total = 0;
        for (const part& player : of.players)
          for (const lane& steps : player.lanes)
            total += static_cast<std::size_t>(std::ranges::count_if(
                steps, [](const step& at) { return at.kind == step_kind::send && at.source.count == 0; }));
        return total;
      };
      CHECK(tokens(*pieces) == tokens(*whole));
    }
}

TEST_CASE("a partitioned score survives its text") {
  const score s =
      partition(lower_syncs(write_score(*find_choreography("ring"), flat_setup(collective::all_reduce, 3))), 2);
  CHECK(from_json(to_json(s)) == s);
  CHECK(to_text(s).find("wait                   until piece 1 is ready") != std::string::npos);
  CHECK(to_text(s).find("2 pieces that get ready one by one") != std::string::npos);
}
