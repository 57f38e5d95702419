// SPDX-License-Identifier: Apache-2.0
#include "protocols/score/seats.hpp"

namespace troupe {

seat_map::seat_map(const score& s) {
  if (s.switches.empty()) return;
  lanes_.resize(s.players.size());
  cells_.resize(s.players.size());
  for (std::size_t i = 0; i < s.switches.size(); ++i)
    for (const fabric_switch::seat& at : s.switches[i].lanes) {
      const auto r = static_cast<std::size_t>(at.rank), l = static_cast<std::size_t>(at.lane);
      if (at.rank < 0 || r >= s.players.size() || at.lane < 0 || l >= s.players[r].lanes.size()) continue;
      if (lanes_[r].size() <= l) lanes_[r].resize(l + 1, -1);
      lanes_[r][l] = static_cast<std::int32_t>(i);
      take_cells(s, at, static_cast<std::int32_t>(i));
    }
}

void seat_map::take_cells(const score& s, const fabric_switch::seat& from, std::int32_t which) {
  const auto r = static_cast<std::size_t>(from.rank);
  const std::size_t declared = s.players[r].scratch.size();
  for (const step& at : s.players[r].lanes[static_cast<std::size_t>(from.lane)]) {
    if (!writes(at.kind) || at.target.buffer != buffer_kind::scratch || at.target.cell < 0) continue;
    for (std::int32_t i = 0; i < at.target.count; ++i) {
      const auto cell = static_cast<std::size_t>(at.target.cell) + static_cast<std::size_t>(i);
      if (cell >= declared) break;
      if (cells_[r].size() <= cell) cells_[r].resize(declared, -1);
      cells_[r][cell] = which;
    }
  }
}

}  // namespace troupe
