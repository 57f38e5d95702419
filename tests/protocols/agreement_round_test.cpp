// SPDX-License-Identifier: Apache-2.0
// Scores with an agreement: right as before, and nobody's part ends while anybody is missing.

#include "protocols/lower/agreement_round.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/score/score_builder.hpp"
#include "protocols/verify/verifier.hpp"
#include "tests/protocols/most_ranks.hpp"

using namespace troupe;

namespace {

/// Those in which the data do not tell everybody of everybody.
constexpr collective untold[] = {collective::broadcast, collective::reduce, collective::gather,
                                 collective::scatter,   collective::scan,   collective::exscan};
constexpr collective rooted[] = {collective::broadcast, collective::reduce, collective::gather, collective::scatter};

/// Performs a score without data and without `missing`, who sends nothing. True: some part came to its end all the same.
bool somebody_ends_without(const score& s, rank_t missing) {
  std::map<std::tuple<rank_t, rank_t, std::size_t>, int> under_way;
  std::vector<std::vector<std::size_t>> done;
  for (const part& player : s.players) done.emplace_back(player.lanes.size(), 0);
  const auto performs = [&](rank_t r, std::size_t l) {
    auto& mine = done[static_cast<std::size_t>(r)];
    const lane& steps = s.players[static_cast<std::size_t>(r)].lanes[l];
    if (mine[l] == steps.size()) return false;
    const step& now = steps[mine[l]];
    const step_ref& after = now.after;
    if (after.lane >= 0 && mine[static_cast<std::size_t>(after.lane)] <= static_cast<std::size_t>(after.step))
      return false;
    if (receives(now.kind) && under_way[{now.from, r, l}]-- == 0) return ++under_way[{now.from, r, l}], false;
    if (sends(now.kind)) ++under_way[{r, now.to, l}];
    ++mine[l];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (rank_t r = 0; r < s.ranks; ++r)
      for (std::size_t l = 0; r != missing && l < done[static_cast<std::size_t>(r)].size(); ++l)
        while (performs(r, l)) moved = true;
  }
  for (rank_t r = 0; r < s.ranks; ++r) {
    bool all = r != missing;
    for (std::size_t l = 0; l < done[static_cast<std::size_t>(r)].size(); ++l)
      all = all && done[static_cast<std::size_t>(r)][l] == s.players[static_cast<std::size_t>(r)].lanes[l].size();
    if (all) return true;
  }
  return false;
}

bool somebody_ends_too_early(const score& s) {
  for (rank_t missing = 0; missing < s.ranks; ++missing)
    if (somebody_ends_without(s, missing)) return true;
  return false;
}

std::string describe(const choreography& which, const setup& on, agreement_form form) {
  return std::string{which.name} + ", " + std::string{name(on.what)} + ", " + std::to_string(on.ranks) +
         " ranks, root " + std::to_string(on.root) + ", " + std::string{name(form)};
}

bool is_token(const step& at) {
  return (at.kind == step_kind::send || at.kind == step_kind::recv) && at.source.count + at.target.count == 0;
}

score flat(collective what, int ranks, rank_t root = 0) {
  return lower_syncs(write_score(*find_choreography("one_shot"), flat_setup(what, ranks, root)));
}

}  // namespace

TEST_CASE("agreement: rooted collectives and prefixes stay right, and end nowhere while somebody is missing") {
  int made = 0;
  for (const choreography* which : all_choreographies())
    for (const collective what : untold)
      for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 13, 33, 64})
        for (rank_t root = 0; root < ranks; ++root) {
          if (ranks > most_ranks || ((ranks > 8 || !has_root(what)) && root != ranks / 2)) continue;
          const setup on = flat_setup(what, ranks, root);
          if (std::find(which->collectives.begin(), which->collectives.end(), what) == which->collectives.end())
            continue;
          if (!refusal(*which, on).empty()) continue;
          const score plain = lower_syncs(write_score(*which, on));
          const verdict before = verify(plain);
          for (const agreement_form form : agreement_forms) {
            INFO(describe(*which, on, form));
            const auto s = with_agreement(plain, form);
            const bool tree = which->name == "one_shot" || (which->name == "binomial" && has_root(what));
            if (!s) CHECK((form == agreement_form::mirrored && !tree));
            if (!s) continue;
            ++made;
            for (const int credits : {1, 2, 8}) {
              const verdict v = verify(credits == 1 ? pace_sends(*s, 1) : *s, {credits, 1});
              if (!v.ok()) FAIL_CHECK(to_string(*v.first_fault));
              if (v.ok() && is_reduction(what)) CHECK(tree_of(v, root, 0) == tree_of(before, root, 0));
            }
            CHECK(everybody_hears_of_everybody(pace_sends(*s, 1)));
            CHECK_FALSE(somebody_ends_too_early(*s));
          }
        }
  MESSAGE(made, " scores");
  CHECK(made > 500);
}

TEST_CASE("agreement: who hears of whom, against performing without each rank in turn") {
  for (const choreography* which : all_choreographies())
    for (const collective what : which->collectives)
      for (const int ranks : {2, 3, 4, 6}) {
        const setup on = flat_setup(what, ranks, has_root(what) ? ranks - 1 : 0);
        if (!refusal(*which, on).empty()) continue;
        INFO(describe(*which, on, agreement_form::none));
        const score s = lower_syncs(write_score(*which, on));
        CHECK(everybody_hears_of_everybody(s) == !somebody_ends_too_early(s));
        if (traits_of(what).data_tell_all) CHECK(everybody_hears_of_everybody(s));
      }
}

TEST_CASE("agreement: no token is one too many") {
  for (const agreement_form form : {agreement_form::direct, agreement_form::mirrored})
    for (const collective what : rooted)
      for (const int ranks : {2, 3, 5})
        for (const char* which : {"one_shot", "binomial"}) {
          const auto whole = with_agreement(write_score(*find_choreography(which), flat_setup(what, ranks, 1)), form);
          REQUIRE(whole);
          for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
            for (std::size_t i = 0; i < whole->players[r].lanes[0].size(); ++i) {
              const step token = whole->players[r].lanes[0][i];
              if (token.kind != step_kind::send || !is_token(token)) continue;
              score less = *whole;
              auto& out = less.players[r].lanes[0];
              auto& in = less.players[static_cast<std::size_t>(token.to)].lanes[0];
              out.erase(out.begin() + static_cast<std::ptrdiff_t>(i));
              in.erase(std::find_if(in.begin(), in.end(),
                                    [&](const step& at) { return is_token(at) && at.from == static_cast<rank_t>(r); }));
              CHECK_FALSE(everybody_hears_of_everybody(less));
              CHECK(somebody_ends_too_early(less));
            }
        }
}

TEST_CASE("agreement: how many messages, and that two ranks wait for one") {
  for (const collective what : rooted)
    for (const int n : {2, 3, 8}) {
      const auto count = static_cast<std::size_t>(n);
      CHECK(verify(*with_agreement(flat(what, n, n - 1), agreement_form::direct)).messages == count * (count - 1));
      CHECK(verify(*with_agreement(flat(what, n, n - 1), agreement_form::mirrored)).messages == 2 * (count - 1));
    }
  CHECK(verify(*with_agreement(flat(collective::reduce, 8), agreement_form::rounds)).messages == 7 + 8 * 3);
  for (const collective what : rooted) {
    const auto s = with_agreement(flat(what, 2), agreement_form::direct);
    for (const part& player : s->players) {
      bool waited = false;
      for (const step& at : player.lanes[0]) {
        CHECK_FALSE((waited && sends(at.kind)));
        waited = waited || receives(at.kind);
      }
    }
  }
}

TEST_CASE("agreement: references between lanes still name their steps") {
  const setup on = flat_setup(collective::broadcast, 3);
  score_builder b{on, "own", 2};
  using namespace notation;
  for (const rank_t r : {1, 2}) {
    auto first = b.lane(0, 0).to(r), second = b.lane(0, 1).to(r);
    second.after(first.send(input[0])).send(input[1]);
    b.lane(r, 0).from(0).recv(output[0]);
    b.lane(r, 1).from(0).recv(output[1]);
    b.lane(r, 0).wait(step_ref{1, 0});
  }
  b.lane(0, 0).copy_own(input.all(), output.all());
  const score s = b.finish();
  REQUIRE(verify(s).ok());
  for (const agreement_form form : {agreement_form::direct, agreement_form::rounds}) {
    const auto made = with_agreement(s, form);
    REQUIRE(made);
    const verdict v = verify(*made);
    if (!v.ok()) FAIL_CHECK(to_string(*v.first_fault));
    for (const part& player : made->players)
      for (const lane& steps : player.lanes)
        for (const step& at : steps)
          if (at.after.lane >= 0)
            CHECK_FALSE(is_token(
                player.lanes[static_cast<std::size_t>(at.after.lane)][static_cast<std::size_t>(at.after.step)]));
  }
}
