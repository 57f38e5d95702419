// SPDX-License-Identifier: Apache-2.0
// lower_syncs and one_cell_per_step. fold_in_rank_order.cpp has the third pass.
#include "protocols/lower/lowering.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "memory/error.hpp"
#include "protocols/lower/rewriting.hpp"

namespace troupe {

namespace {

// -- lower_syncs ------------------------------------------------------------------------------------------------------

std::vector<std::size_t> syncs_per_lane(const part& player, std::size_t lanes) {
  std::vector<std::size_t> counts(lanes, 0);
  for (std::size_t l = 0; l < player.lanes.size(); ++l)
    counts[l] = static_cast<std::size_t>(std::count_if(player.lanes[l].begin(), player.lanes[l].end(),
                                                       [](const step& at) { return at.kind == step_kind::sync; }));
  return counts;
}

/// Returns whether there is any sync at all.
bool check_syncs(const score& s) {
  std::size_t lanes = 0;
  for (const part& player : s.players) lanes = std::max(lanes, player.lanes.size());
  const auto first = syncs_per_lane(s.players.front(), lanes);
  for (std::size_t r = 1; r < s.players.size(); ++r) {
    const auto here = syncs_per_lane(s.players[r], lanes);
    for (std::size_t l = 0; l < lanes; ++l)
      if (here[l] != first[l])
        throw error(errc::bad_score,
                    "lane " + std::to_string(l) + " of rank 0 has " + std::to_string(first[l]) +
                        " syncs, that of rank " + std::to_string(r) + " has " + std::to_string(here[l]) +
                        "; a sync is for all ranks, so every rank needs the same number in the same lane");
  }
  return std::any_of(first.begin(), first.end(), [](std::size_t count) { return count > 0; });
}

void append_rounds(lane& steps, rank_t rank, int ranks, const step_ref& after) {
  step token;
  token.after = after;
  if (ranks == 1) return steps.push_back(token);
  for (std::int64_t distance = 1; distance < ranks; distance *= 2) {
    token.kind = step_kind::send;
    token.from = -1;
    token.to = static_cast<rank_t>((rank + distance) % ranks);
    steps.push_back(token);
    token.after = {};
    token.kind = step_kind::recv;
    token.to = -1;
    token.from = static_cast<rank_t>((rank - distance + ranks) % ranks);
    steps.push_back(token);
  }
}

// -- one_cell_per_step ------------------------------------------------------------------------------------------------

bool in_range(const score& s, rank_t rank, const place& at) {
  if (at.count == 0) return true;
  const rank_t owner = at.owner == self ? rank : at.owner;
  return owner >= 0 && owner < s.ranks && at.cell >= 0 && at.count > 0 &&
         std::int64_t{at.cell} + at.count <= cell_count(s, owner, at.buffer);
}

/// Into how many steps `at` is cut. One that makes no sense stays whole, for the verifier to say so.
std::int32_t cells_of(const score& s, rank_t rank, const step& at) {
  const bool source = reads_source(at.kind);
  const bool target = writes(at.kind);
  if ((source && !in_range(s, rank, at.source)) || (target && !in_range(s, rank, at.target))) return 1;
  if (source && target && at.source.count != at.target.count) return 1;
  return std::max(1, source ? at.source.count : target ? at.target.count : 0);
}

step nth_cell(const step& whole, std::int32_t index) {
  step one = whole;
  for (place* at : {&one.source, &one.target})
    if (at->count > 1) at->cell += index, at->count = 1;
  if (index > 0) one.after = {};
  return one;
}

/// End of the run of steps from `first` on that form one fan.
std::size_t fan_end(const lane& steps, std::size_t first) {
  const step& head = steps[first];
  std::size_t end = first + 1;
  if (head.fan == 0 || head.kind != step_kind::recv_reduce) return end;
  std::vector<rank_t> senders{head.from};
  for (; end < steps.size(); ++end) {
    const step& at = steps[end];
    if (at.kind != head.kind || at.fan != head.fan || at.target != head.target) break;
    if (std::find(senders.begin(), senders.end(), at.from) != senders.end()) break;
    senders.push_back(at.from);
  }
  return end;
}

class splitter {
public:
  explicit splitter(const score& s) : was_(s), made_(s), moved_(s) {}

  score run() {
    for (rank_t r = 0; r < was_.ranks; ++r)
      for (std::size_t l = 0; l < was_.players[static_cast<std::size_t>(r)].lanes.size(); ++l) split(r, l);
    moved_.apply(made_);
    return std::move(made_);
  }

private:
  void split(rank_t rank, std::size_t l) {
    const lane& steps = was_.players[static_cast<std::size_t>(rank)].lanes[l];
    lane& made = made_.players[static_cast<std::size_t>(rank)].lanes[l];
    made.clear();
    std::uint32_t fans = 0;
    for (std::size_t first = 0; first < steps.size();) {
      const std::size_t end = fan_end(steps, first);
      // Cell by cell through the whole fan. Every sender sends its cells in this order too, and no sender is in it twice.
      const std::int32_t cells = cells_of(was_, rank, steps[first]);
      for (std::int32_t c = 0; c < cells; ++c) {
        if (steps[first].fan != 0) ++fans;
        for (std::size_t i = first; i < end; ++i) {
          step one = cells == 1 ? steps[i] : nth_cell(steps[i], c);
          // A number names one fan a lane. When they run out, the order is simply fixed.
          if (one.fan != 0) one.fan = fans <= 0xffff ? static_cast<std::uint16_t>(fans) : std::uint16_t{0};
          moved_.put(rank, l, i, made.size());
          made.push_back(one);
        }
      }
      first = end;
    }
  }

  const score& was_;
  score made_;
  step_map moved_;
};

}  // namespace

score lower_syncs(score s) {
  check_references(s);
  if (!check_syncs(s)) return s;
  step_map moved{s};
  // Lane by lane: a second score of many ranks would be megabytes, and new memory costs more than what is done with it.
  const auto steps_of_sync =
      s.ranks == 1 ? 1 : static_cast<std::ptrdiff_t>(2 * std::bit_width(static_cast<unsigned>(s.ranks - 1)));
  for (rank_t r = 0; r < s.ranks; ++r) {
    auto& lanes = s.players[static_cast<std::size_t>(r)].lanes;
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      lane& to = lanes[l];
      const lane steps = std::exchange(to, {});
      const auto syncs = std::ranges::count(steps, step_kind::sync, &step::kind);
      to.reserve(steps.size() + static_cast<std::size_t>(syncs * steps_of_sync));
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].kind == step_kind::sync) append_rounds(to, r, s.ranks, steps[i].after);
        else to.push_back(steps[i]);
        moved.put(r, l, i, to.size() - 1);
      }
    }
  }
  moved.apply(s);
  return s;
}

namespace {
bool has_single_cells(const score& s) {
  check_references(s);
  for (std::size_t r = 0; r < s.players.size(); ++r)
    for (const lane& steps : s.players[r].lanes)
      for (const step& at : steps)
        if (cells_of(s, static_cast<rank_t>(r), at) != 1) return false;
  return true;
}
}  // namespace

score one_cell_per_step(const score& s) { return has_single_cells(s) ? s : pace_sends(splitter{s}.run()); }

score one_cell_per_step(score&& s) {
  if (has_single_cells(s)) return std::move(s);
  return pace_sends(splitter{s}.run());
}

score root_in_place(score s) {
  s.in_place = true;
  for (lane& steps : s.players[static_cast<std::size_t>(s.root)].lanes)
    for (step& at : steps) {
      if (at.kind != step_kind::copy || at.source.count != at.target.count) continue;
      if (canonical(s, s.root, at.source) != canonical(s, s.root, at.target)) continue;
      at.kind = step_kind::wait;
      at.source = at.target = {};
    }
  return s;
}

}  // namespace troupe
