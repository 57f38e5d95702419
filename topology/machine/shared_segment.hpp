// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the cells of the segment that all ranks of an operation address (L2, spec 1) lie. Real runs ask here, and
// whoever else wants to know.
//
// L2 is made of shares, one of each core group's memory, and the card addresses them one behind the other (spec 1: each
// core group's memory splits into L1 and a part of L2). So of a segment of C cells rank r of n has the cells from
// ⌈r·C/n⌉ on, in the memory of its core group. The sources do not say whose share a cell lies in; these shares make a
// choreography's own cells those that it writes: csc lays out one row of cells for each rank, which that rank
// publishes. Publishing is local then, a fetch crosses the ring once, and in step i rank r fetches from rank (i + r)
// mod n: no two from one core group, which is what the rotation of CSC is for. The other way round, at the reader's,
// every rank would write to all others at once, and the gather, where a cell has many readers, would cross the ring as
// often anyway.

#include <cstdint>

#include "topology/layout/layout.hpp"

namespace troupe {

/// The rank in whose core group's share of the segment cell `cell` of `cells` lies. @pre 0 ≤ cell < cells, ranks ≥ 1
constexpr int home_of_shared_cell(std::int64_t cell, std::int64_t cells, int ranks) noexcept {
  return static_cast<int>(cell * ranks / cells);
}

/// A host has no share of a card's memory: what would be its own is with the first rank that sits on a card, or its own where none does.
inline int holder_of_share(const layout& on, int home) {
  if (on.is_grid() || !on.of(home).host) return home;
  for (int rank = 0; rank < on.size(); ++rank)
    if (!on.of(rank).host) return rank;
  return home;
}

}  // namespace troupe
