// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/arrivals.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

/// The cells of the rank's output that a place names, as [first, end); none: empty.
std::pair<std::int32_t, std::int32_t> output_cells(const score& s, rank_t rank, const place& at) {
  const std::int32_t outputs = cell_count(s, rank, buffer_kind::output);
  if (at.count == 0 || outputs == 0 || (at.owner != self && at.owner != rank)) return {};
  if (at.buffer != buffer_kind::input && at.buffer != buffer_kind::output) return {};
  const place first = canonical(s, rank, {buffer_kind::output, self, 0, 1}), named = canonical(s, rank, at);
  if (named.buffer != first.buffer) return {};
  const std::int32_t begin = named.cell - first.cell;
  return {std::clamp(begin, 0, outputs), std::clamp(begin + at.count, 0, outputs)};
}

/// Which cells of the rank's output another rank writes: what this one hears last of their piece says that they have.
std::vector<bool> written_by_others(const score& s, rank_t rank) {
  std::vector<bool> cells(static_cast<std::size_t>(cell_count(s, rank, buffer_kind::output)));
  for (rank_t r = 0; r < s.ranks; ++r)
    for (const lane& steps : s.players[static_cast<std::size_t>(r)].lanes)
      for (const step& at : steps) {
        if (r == rank || at.target.owner != rank || !writes(at.kind)) continue;
        const auto [begin, end] = output_cells(s, rank, at.target);
        std::fill(cells.begin() + begin, cells.begin() + end, true);
      }
  return cells;
}

/// The instruction that stands for a step. @pre one slice
std::int32_t index_of(const std::vector<instruction>& code, std::size_t step) {
  const auto after = std::ranges::upper_bound(code, static_cast<std::int32_t>(step), {}, &instruction::score_step);
  return static_cast<std::int32_t>(after - code.begin()) - 1;
}

}  // namespace

std::vector<arrival> arrivals_of(const score& s, rank_t rank) {
  const std::int32_t cells = cell_count(s, rank, buffer_kind::output), parts = s.parts / s.partitions;
  std::vector<bool> written(static_cast<std::size_t>(cells));
  const part& player = s.players[static_cast<std::size_t>(rank)];
  std::vector<arrival> found;
  const std::vector<bool> by_others = written_by_others(s, rank);
  const std::size_t lanes = player.lanes.size() / static_cast<std::size_t>(s.partitions);
  for (std::int32_t c = 0; c < cells; ++c) {
    if (!by_others[static_cast<std::size_t>(c)]) continue;
    written[static_cast<std::size_t>(c)] = true;
    const auto piece = static_cast<std::size_t>(c % s.parts / parts);
    for (std::size_t l = piece * lanes; l < (piece + 1) * lanes; ++l)
      if (!player.lanes[l].empty())
        found.push_back(
            {static_cast<std::int32_t>(l), static_cast<std::int32_t>(player.lanes[l].size()) - 1, c / parts});
  }
  for (std::size_t l = 0; l < player.lanes.size(); ++l)
    for (std::size_t i = 0; i < player.lanes[l].size(); ++i) {
      if (!writes(player.lanes[l][i].kind)) continue;
      const auto [begin, end] = output_cells(s, rank, player.lanes[l][i].target);
      for (std::int32_t c = begin; c < end; ++c) {
        written[static_cast<std::size_t>(c)] = true;
        found.push_back({static_cast<std::int32_t>(l), static_cast<std::int32_t>(i), c / parts});
      }
    }
  for (std::size_t l = 0; l < player.lanes.size(); ++l)
    for (std::size_t i = 0; i < player.lanes[l].size(); ++i)
      for (std::int32_t c = 0; player.lanes[l][i].ready_part >= 0 && c < cells; ++c)
        if (!written[static_cast<std::size_t>(c)] && c % s.parts / parts == player.lanes[l][i].ready_part)
          found.push_back({static_cast<std::int32_t>(l), static_cast<std::int32_t>(i), c / parts});
  // Of a lane and a piece, the last one.
  std::ranges::sort(found, [](const arrival& a, const arrival& b) {
    return std::tie(a.lane, a.piece, b.index) < std::tie(b.lane, b.piece, a.index);
  });
  const auto same_piece = [](const arrival& a, const arrival& b) { return a.lane == b.lane && a.piece == b.piece; };
  found.erase(std::unique(found.begin(), found.end(), same_piece), found.end());
  std::ranges::sort(found);
  return found;
}

void mark_arrivals(program& code, const score& s, rank_t rank) {
  const std::int32_t cells = cell_count(s, rank, buffer_kind::output), parts = s.parts / s.partitions;
  code.arrivals = arrivals_of(s, rank);
  for (arrival& a : code.arrivals)
    a.index = index_of(code.lanes[static_cast<std::size_t>(a.lane)], static_cast<std::size_t>(a.index));
  std::ranges::sort(code.arrivals);
  code.pieces = s.partitions;
  code.arrivals_needed.assign(static_cast<std::size_t>(cells / parts), 0);
  for (const arrival& a : code.arrivals) {
    ++code.arrivals_needed[static_cast<std::size_t>(a.piece)];
    code.lanes[static_cast<std::size_t>(a.lane)][static_cast<std::size_t>(a.index)].arrives = true;
  }
}

}  // namespace troupe
