// SPDX-License-Identifier: Apache-2.0
#include "protocols/lower/partition.hpp"

#include <algorithm>
#include <optional>

#include "protocols/lower/lowering.hpp"
#include "protocols/lower/rewriting.hpp"

namespace troupe {

namespace {

bool names_another(const step& at) {
  return (at.source.count > 0 && at.source.owner != self) || (at.target.count > 0 && at.target.owner != self);
}

bool touches_others(const score& s) {
  for (const part& player : s.players)
    for (const lane& steps : player.lanes)
      if (std::ranges::any_of(steps, names_another)) return true;
  return false;
}

class partitioner {
public:
  partitioner(const score& whole, int pieces)
      : was_(whole), made_(whole), pieces_(pieces), shared_(touches_others(whole)) {
    made_.partitions = pieces;
    made_.parts = whole.parts * pieces;
    for (const part& player : whole.players) lanes_ = std::max(lanes_, player.lanes.size());
  }

  score run() {
    for (rank_t r = 0; r < was_.ranks; ++r) copy(r);
    made_.l2.clear();
    // All pieces of a cell beside each other, so that they lie in the same share of L2 as the cell did (topology/machine/shared_segment.hpp).
    for (const extent& cell : was_.l2)
      for (int p = 0; p < pieces_; ++p) copy_cells({cell}, made_.l2, p);
    for (fabric_switch& f : made_.switches) copy_seats(f);
    return std::move(made_);
  }

private:
  void copy(rank_t r) {
    const part& from = was_.players[static_cast<std::size_t>(r)];
    part& to = made_.players[static_cast<std::size_t>(r)];
    to = {};
    to.lanes.resize(lanes_ * static_cast<std::size_t>(pieces_));
    for (int p = 0; p < pieces_; ++p) {
      copy_cells(from.scratch, to.scratch, p);
      copy_cells(from.l0, to.l0, p);
      bool waits = cell_count(was_, r, buffer_kind::input) == 0;
      for (std::size_t l = 0; l < from.lanes.size(); ++l) waits = copy_lane(r, l, p) || waits;
      if (!waits)
        to.lanes[lane_of(0, p)].push_back(announcement(p));  // nobody's part ends before its input is complete
    }
  }

  void copy_seats(fabric_switch& f) const {
    const std::size_t seats = f.lanes.size();
    for (int p = 1; p < pieces_; ++p)
      for (std::size_t i = 0; i < seats; ++i) {
        const fabric_switch::seat at = f.lanes[i];
        f.lanes.push_back({at.rank, static_cast<std::int32_t>(lane_of(static_cast<std::size_t>(at.lane), p))});
      }
  }

  std::size_t lane_of(std::size_t lane, int piece) const { return static_cast<std::size_t>(piece) * lanes_ + lane; }

  static step announcement(int piece) {
    step s;
    s.ready_part = piece;
    return s;
  }

  void copy_cells(const std::vector<extent>& from, std::vector<extent>& to, int piece) const {
    for (const extent& cell : from) to.push_back({cell.block, piece * was_.parts + cell.part});
  }

  bool touches_input(rank_t rank, const step& at) const {
    return (reads_source(at.kind) && touches_own_input(was_, rank, at.source)) ||
           (writes(at.kind) && touches_own_input(was_, rank, at.target)) ||
           (reads_target(at.kind) && touches_own_input(was_, rank, at.target));
  }

  /// Before the first step that touches input, and not inside a fan. Where ranks touch each other's, what a rank sends first says that its piece is ready.
  std::optional<std::size_t> first_touch(rank_t rank, const lane& steps) const {
    if (shared_)
      return steps.empty() || cell_count(was_, rank, buffer_kind::input) == 0 ? std::nullopt
                                                                              : std::optional<std::size_t>{0};
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (touches_input(rank, steps[i])) {
        while (i > 0 && steps[i].fan != 0 && steps[i - 1].fan == steps[i].fan) --i;
        return i;
      }
    return std::nullopt;
  }

  /// True: it waits for the piece.
  bool copy_lane(rank_t rank, std::size_t l, int piece) {
    const auto& lanes = was_.players[static_cast<std::size_t>(rank)].lanes;
    const auto touch = first_touch(rank, lanes[l]);
    lane& to = made_.players[static_cast<std::size_t>(rank)].lanes[lane_of(l, piece)];
    to.reserve(lanes[l].size() + (touch ? 1 : 0));
    for (std::size_t i = 0; i < lanes[l].size(); ++i) {
      if (touch == i) to.push_back(announcement(piece));
      step one = lanes[l][i];
      one.source = moved(one.source, rank, piece);
      one.target = moved(one.target, rank, piece);
      if (one.after.lane >= 0) {
        const auto awaited = static_cast<std::size_t>(one.after.lane);
        const auto before = first_touch(rank, lanes[awaited]);
        if (before && *before <= static_cast<std::size_t>(one.after.step)) ++one.after.step;
        one.after.lane = static_cast<std::int32_t>(lane_of(awaited, piece));
      }
      to.push_back(one);
    }
    return touch.has_value();
  }

  /// Several cells are neighbours still where there is one piece only, or in memory that cells are declared in.
  place moved(place at, rank_t rank, int piece) const {
    if (at.count == 0) return at;
    const part& player = was_.players[static_cast<std::size_t>(rank)];
    switch (at.buffer) {
      case buffer_kind::scratch: at.cell += piece * static_cast<std::int32_t>(player.scratch.size()); break;
      case buffer_kind::l0: at.cell += piece * static_cast<std::int32_t>(player.l0.size()); break;
      case buffer_kind::l2: at.cell = at.cell * pieces_ + piece; break;
      default: at.cell = (at.cell / was_.parts * pieces_ + piece) * was_.parts + at.cell % was_.parts; break;
    }
    return at;
  }

  const score& was_;
  score made_;
  int pieces_;
  bool shared_;            ///< ranks touch each other's buffers
  std::size_t lanes_ = 1;  ///< of a copy
};

}  // namespace

std::string why_not_partitioned(const score& s) {
  for (std::size_t r = 0; r < s.players.size(); ++r)
    for (std::size_t l = 0; l < s.players[r].lanes.size(); ++l) {
      const lane& steps = s.players[r].lanes[l];
      const auto heard = [](const step& at) { return receives(at.kind) || at.kind == step_kind::sync; };
      const auto named = std::ranges::find_if(steps, names_another);
      if (s.ranks == 1 || named == steps.end() || std::any_of(steps.begin(), named, heard)) continue;
      const place& at = named->source.count > 0 && named->source.owner != self ? named->source : named->target;
      return "its ranks read or write each other's memory, and nobody tells them which parts are ready there (" +
             where(static_cast<rank_t>(r), l, static_cast<std::size_t>(named - steps.begin())) + ": " + to_string(at) +
             ")";
    }
  return {};
}

score partition(const score& s, int pieces) {
  if (pieces == 1) return partitioner{s, 1}.run();
  return partitioner{one_cell_per_step(s), pieces}.run();
}

}  // namespace troupe
