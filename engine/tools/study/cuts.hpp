// SPDX-License-Identifier: Apache-2.0
#pragma once
// What divides a machine in two: sets of ranks behind elements that they share, and what passes between such a set and the others.

#include <cstdint>
#include <vector>

#include "topology/machine/hardware.hpp"

namespace troupe {

/// A set of ranks and what it may exchange with all others.
struct machine_cut {
  std::vector<int> ranks;  ///< in order; neither none nor all
  double out_bytes_per_second =
      0;  ///< of the elements that all ways out of the set pass; infinite where they have no limit
  double in_bytes_per_second = 0;
};

/// A set for every element: the ranks whose messages pass it (those of a server for its NIC, those under a leaf switch for its uplinks). What
/// can leave the set is no more than what the k-th elements, counted from either end, of all ways out of it carry together, for
/// every k. None where ranks also share memory that has no owner (L2), which messages need not pass, nor where more than a million
/// ways would have to be looked at.
std::vector<machine_cut> cuts_of(const hardware& on);

}  // namespace troupe
