// SPDX-License-Identifier: Apache-2.0
#pragma once
// A call's program fitted to its sizes, and the copy that its rank may bring. Kept with the call: a repetition finds it made.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

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
  /// Of the program's `copies` of the rank, as they are there: a block that it gets, from the copy that its owner has brought.
  struct taken {
    rank_t owner = 0;
    std::size_t index = 0;              ///< of the block in its owner's input
    std::size_t bytes = 0, offset = 0;  ///< as the rank counts it, in its output
  };
  std::vector<taken> takes;
  /// Of these, what the rank has for itself.
  struct kept {
    bool agrees = true;            ///< it counts the same as what it gives and as what it gets
    std::size_t bytes = 0;         ///< 0: there is nothing to do
    std::size_t from = 0, to = 0;  ///< in its input, in its output
  };
  kept own;
  std::size_t scratch_bytes = 0;
  bool may_leave_early = false;  ///< the same at all ranks
};

}  // namespace troupe
