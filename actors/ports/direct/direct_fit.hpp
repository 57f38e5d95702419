// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the sizes of a call make of its program, and of the copy that its rank may bring. Kept with the call: a repetition finds it made.

#include <array>
#include <cstdint>

#include "actors/ports/direct/snapshots.hpp"
#include "protocols/program/direct_sizes.hpp"

namespace troupe {

struct direct_fit {
  direct_sizes sizes;
  // Of snapshots:
  bool unpacked = false;      ///< the sizes have changed, and what follows is not made yet
  bool small = false;         ///< what the rank has fits
  bool balanced = false;      ///< the balance of these sizes is known
  std::uint64_t balance = 0;  ///< of the rank alone
  std::array<std::uint16_t, snapshots::most_ranks + 1> begins{};  ///< see snapshots::place
};

}  // namespace troupe
