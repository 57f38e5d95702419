// SPDX-License-Identifier: Apache-2.0
#pragma once
// What divides a machine in two: sets of ranks behind elements that they share, and what passes between such a set and the others.

#include <cstdint>
#include <vector>

#include "topology/machine/hardware.hpp"

namespace troupe {

/// A set of ranks and what it may exchange. Rates in bytes per second, of the elements that all those messages pass at one place of their ways;
/// infinite where they have no limit.
struct machine_cut {
  std::vector<int> ranks;  ///< in order; not none
  double out, in;          ///< between the set and the others
  double both;             ///< those two together, which matters where an element carries both
  double from, to;         ///< of all that ranks of the set send, or get: also to and from each other
};

/// All ranks, each rank, and a set for every element: the ranks whose messages pass it (those under a leaf switch for its uplinks), and, where it
/// carries both directions, those that it parts (those of a server for its half-duplex NIC). What can leave the set is no more than what the k-th
/// elements, counted from either end, of all ways out of it carry together, for every k. None where ranks also share memory that has no owner (L2),
/// which messages need not pass; no more than a million ways are looked at, the largest sets first.
std::vector<machine_cut> cuts_of(const hardware& on);

}  // namespace troupe
