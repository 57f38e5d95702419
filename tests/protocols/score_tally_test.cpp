// SPDX-License-Identifier: Apache-2.0
#include "protocols/score/score_tally.hpp"

#include <algorithm>
#include <doctest/doctest.h>
#include <vector>

#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"

using namespace troupe;

namespace {

/// The same, from the written score's steps.
score_tally::of_rank counted(const score& s, rank_t r, bool& touches_others) {
  score_tally::of_rank n;
  for (const lane& l : s.players[static_cast<std::size_t>(r)].lanes)
    for (const step& at : l) {
      const std::int64_t cells = std::max(at.source.count, at.target.count);
      for (const place* p : {&at.source, &at.target})
        touches_others = touches_others || (p->count > 0 && p->owner != self);
      if (at.kind == step_kind::copy || at.kind == step_kind::reduce) {
        ++n.locals;
        if (at.kind == step_kind::reduce) n.local_reduced += cells;
        else if (at.source.buffer != at.target.buffer || at.source.owner != at.target.owner) n.local_copied += cells;
        continue;
      }
      ++n.steps;
      if (sends(at.kind)) ++n.messages, n.sent += cells;
      if (receives(at.kind)) n.received += cells;
      if (reduces(at.kind)) n.reduced += cells;
      else if (writes(at.kind)) n.copied += cells;
    }
  return n;
}

std::int64_t cells_of(const score& s) {
  auto total = static_cast<std::int64_t>(s.l2.size());
  for (rank_t r = 0; r < s.ranks; ++r)
    for (const buffer_kind b : {buffer_kind::input, buffer_kind::output, buffer_kind::scratch, buffer_kind::l0})
      total += cell_count(s, r, b);
  return total;
}

void check_tally(const choreography& which, const setup& on) {
  CAPTURE(which.name);
  CAPTURE(name(on.what));
  CAPTURE(on.ranks);
  CAPTURE(on.in_place);
  const score s = lower_syncs(which.write(on));
  const score_tally t = tally_of(which, on);
  CHECK(t.steps() == static_cast<std::int64_t>(step_total(s)));
  CHECK(t.parts == s.parts);
  CHECK(t.cells == cells_of(s));
  std::int64_t lanes = 0;
  bool touches_others = false;
  std::vector<score_tally::kind> kinds;
  for (rank_t r = 0; r < s.ranks; ++r) {
    lanes += static_cast<std::int64_t>(s.players[static_cast<std::size_t>(r)].lanes.size());
    const score_tally::of_rank mine = counted(s, r, touches_others);
    const auto same = std::ranges::find_if(kinds, [&](const auto& k) { return k.each == mine; });
    if (same == kinds.end()) kinds.push_back({mine, 1});
    else ++same->ranks;
  }
  CHECK(t.lanes == lanes);
  CHECK(t.touches_other_ranks == touches_others);
  REQUIRE(t.kinds.size() == kinds.size());
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    CHECK(t.kinds[k].ranks == kinds[k].ranks);
    CHECK(t.kinds[k].each == kinds[k].each);
  }
}

}  // namespace

TEST_CASE("a tally counts what would be written") {
  for (const choreography* which : all_choreographies())
    for (const collective what : which->collectives)
      for (const int ranks : {2, 3, 4, 5, 7, 8, 12, 16, 17})
        for (const bool in_place : {false, true})
          for (const bool layered : {false, true}) {
            if (layered && ranks % 4 != 0) continue;
            setup on = flat_setup(what, ranks, has_root(what) ? ranks / 2 : 0, in_place && agrees_on_place(what, true));
            if (layered) on.placement = layout::grid(2, ranks / 2);
            if (refusal(*which, on).empty()) check_tally(*which, on);
            on.uniform = false;
            on.through_scratch = true;
            if (refusal(*which, on).empty()) check_tally(*which, on);
          }
}
