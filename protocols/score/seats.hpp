// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whose is a lane, whose is a scratch cell, in a score with switches that reduce (score.hpp, "Switches").

#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocols/score/score.hpp"

namespace troupe {

/// Made of a score that may be wrong: seats and cells that there are not are left out. Cost: a look at the steps of all seated lanes.
class seat_map {
public:
  explicit seat_map(const score& s);

  bool empty() const { return lanes_.empty(); }
  /// Which switch's lane it is; −1: the rank's own.
  std::int32_t of(rank_t rank, std::size_t lane) const { return at(lanes_, rank, lane); }
  /// In which switch the rank's scratch cell lies, as its lanes write it; −1: in the rank's own memory.
  std::int32_t owner(rank_t rank, std::int32_t cell) const { return at(cells_, rank, static_cast<std::size_t>(cell)); }

private:
  using numbers = std::vector<std::vector<std::int32_t>>;  ///< by rank, and lane or cell; short: −1
  static std::int32_t at(const numbers& of, rank_t rank, std::size_t index) {
    if (static_cast<std::size_t>(rank) >= of.size()) return -1;
    const auto& row = of[static_cast<std::size_t>(rank)];
    return index < row.size() ? row[index] : -1;
  }
  void take_cells(const score& s, const fabric_switch::seat& from, std::int32_t which);
  numbers lanes_, cells_;
};

}  // namespace troupe
