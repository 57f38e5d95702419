// SPDX-License-Identifier: Apache-2.0
#pragma once
// What divides a machine in two: sets of ranks behind elements that they share, and what passes between such a set and the others.

#include <limits>
#include <vector>

#include "topology/machine/hardware.hpp"

namespace troupe {

/// A set of ranks and what it may exchange. Rates in bytes per second, of elements one of which each of those messages passes; infinite where
/// they have no limit, or are not known.
struct machine_cut {
  static constexpr double unlimited = std::numeric_limits<double>::infinity();
  std::vector<int> ranks;                   ///< in order; not none
  double out = unlimited, in = unlimited;   ///< between the set and the others
  double both = unlimited;                  ///< those two together, which matters where an element carries both
  double from = unlimited, to = unlimited;  ///< of all that ranks of the set send, or get: also to and from each other
  /// Seconds: the least from the begin of a way to an element that the rates are of, through it, and on to the end of a way, bytes aside.
  double latency = unlimited;
};

/// So many channels' ways are all that a message may take, as far as is looked: 64 channels between some pairs of ranks. 1 where channels make no
/// difference, which is looked at for all pairs of up to 64 ranks, of more for those of some senders.
int distinct_channels(const hardware& on);

/// All ranks, each rank, and a set for every element: the ranks whose messages pass it (those under a leaf switch for its uplinks), and, where it
/// carries both directions, those that it parts (those of a server for its half-duplex NIC). Besides, sets of consecutive ranks of all sizes that divide
/// the number of ranks (servers, groups of a dragonfly), and those half of the ranks, or less, that planes part which are across a dimension of a torus.
/// No more can leave a set than what the k-th elements, counted from either end, of all ways out of it carry together, for every k; nor than
/// what a least cut of the graph of all ways carries (way_network.hpp). None where ranks also share memory that has no owner (L2), which messages need
/// not pass; no more than a million ways are looked at, the largest sets first, and least cuts are searched for some 10 ms, likewise.
std::vector<machine_cut> cuts_of(const hardware& on);

}  // namespace troupe
