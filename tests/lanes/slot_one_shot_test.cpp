// SPDX-License-Identifier: Apache-2.0
// The choreography one_shot: right on every setup and under all limits, one message a pair, left fold.

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/rewriting.hpp"
#include "protocols/verify/verifier.hpp"

using namespace troupe;

namespace {

const choreography& one_shot = choreographies::one_shot;

std::string describe(const setup& on, const performing_limits& limits) {
  return std::string{name(on.what)} + ", " + std::to_string(on.ranks) + " ranks, root " + std::to_string(on.root) +
         (on.in_place ? ", in place" : "") + (on.uniform ? "" : ", blocks of different sizes") + ", " +
         std::to_string(limits.credits) + " credits, " + std::to_string(limits.slices) + " slices";
}

int proved = 0;

void prove(const setup& on) {
  const score whole = write_score(one_shot, on);
  const score cut = one_cell_per_step(whole);
  for (const performing_limits limits : {performing_limits{8, 1}, {1, 1}, {2, 3}, {8, 3}}) {
    const bool as_written = limits.slices == 1 && on.uniform;
    const verdict v = verify(as_written ? whole : cut, limits);
    ++proved;
    if (!v.ok()) FAIL_CHECK(describe(on, limits), ": ", to_string(*v.first_fault));
    if (is_reduction(on.what) && v.ok()) CHECK(v.left_fold);
  }
}

bool upwards_only(collective what) { return what == collective::scan || what == collective::exscan; }

std::size_t messages_of(collective what, int n) {
  const auto ranks = static_cast<std::size_t>(n);
  if (upwards_only(what)) return ranks * (ranks - 1) / 2;
  return has_root(what) ? ranks - 1 : ranks * (ranks - 1);
}

}  // namespace

TEST_CASE("one_shot is right on every setup, and folds from the left") {
  for (const collective what : one_shot.collectives)
    for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 13, 16, 33})
      for (rank_t root = 0; root < (has_root(what) ? ranks : 1); ++root) {
        if (ranks > 8 && root != 0 && root != ranks / 2 && root != ranks - 1) continue;
        for (const bool in_place : {false, true})
          for (const bool uniform : {true, false}) {
            if (!uniform && (block_count(what, ranks) <= 1)) continue;
            const setup on = flat_setup(what, ranks, root, in_place, uniform);
            if (refusal(one_shot, on).empty()) prove(on);
            else CHECK((what == collective::all_to_all && in_place && !uniform));
          }
      }
  MESSAGE(proved, " scores verified");
  CHECK(proved > 1000);
}

TEST_CASE("one_shot: one message a pair that has something to say, the first to the next rank") {
  for (const collective what : one_shot.collectives)
    for (const int n : {2, 3, 8}) {
      const score s = write_score(one_shot, flat_setup(what, n, has_root(what) ? n - 1 : 0));
      CHECK(verify(s).messages == messages_of(what, n));
      if (has_root(what)) continue;
      for (rank_t r = 0; r < (upwards_only(what) ? n - 1 : n); ++r) {
        const lane& steps = s.players[static_cast<std::size_t>(r)].lanes[0];
        const auto first = std::find_if(steps.begin(), steps.end(), [](const step& at) { return sends(at.kind); });
        REQUIRE(first != steps.end());
        CHECK(first->to == (r + 1) % n);
      }
    }
}

TEST_CASE("one_shot is found by its name") { CHECK(find_choreography("one_shot") == &one_shot); }
