// SPDX-License-Identifier: Apache-2.0
#pragma once
// Proves a lowered score right before it runs, under every interleaving, or names its first fault.
//
// A score is a network of sequential lanes that exchange messages through bounded first-in-first-out channels and never choose:
// whatever the interleaving, the same events happen and only their order in time differs. So one run of the score on symbols,
// with vector clocks, decides for all of them: what every cell holds at the end, whether two conflicting accesses are
// unordered, and whether the lanes can get stuck with the given credits.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory/export.hpp"
#include "protocols/score/score.hpp"
#include "protocols/score/slice_order.hpp"

namespace troupe {

/// Under which conditions the score is to be performed.
struct performing_limits {
  int credits = 8;          ///< messages under way per (source, destination, lane), ≥ 1
  int slices = 1;           ///< how many times every lane runs its steps, each time on the next slice of every cell …
  int slices_per_step = 1;  ///< … and so many of them together (slice_order)
  slice_order order() const { return {slices, slices_per_step}; }
};

struct fault {
  rank_t rank = -1;  ///< −1: the score as a whole
  int lane = -1;
  int step = -1;  ///< position in the lane; −1: at the end
  int slice = 0;
  std::string what;        ///< one sentence
  bool too_large = false;  ///< for the verifier; nothing else is known to be wrong
};
TROUPE_API std::string to_string(const fault& f);

/// How one output cell came to be: leaves are ranks' contributions, inner nodes combine left ⊕ right.
class reduction_forest;

/// Of one rank: by lane and step.
using step_marks = std::vector<std::vector<bool>>;

struct verdict {
  std::optional<fault> first_fault;
  std::size_t steps = 0;
  std::size_t messages = 0;
  /// The trees of all output cells that have the same contributors are equal, up to swapping the operands of ⊕, at every rank and
  /// for every chunk: the bits of an element do not depend on the position in the message (`size_stable`). True for
  /// collectives that do not reduce.
  bool same_tree_everywhere = true;
  /// Every tree combines its contributors, such as 0, 1, …, n−1, in this order from left to right, so ⊕ need not be commutative.
  bool rank_ordered = true;
  /// Every tree is the left fold ((0 ⊕ 1) ⊕ 2) ⊕ …: the bits do not depend on choreography or layout (`topology_stable`).
  bool left_fold = true;
  std::shared_ptr<const reduction_forest> forest;  ///< of reductions, else empty; null on a fault
  /// Of a reduction, by rank: the steps whose ⊕ brings all ranks' contributions together. Nothing is combined with their results any
  /// more, and every output cell with all contributions comes from one of them. Empty if a step does so for some of its cells only.
  std::vector<step_marks> completing;

  bool ok() const { return !first_fault; }
};

/// Tree of `rank`'s output cell `cell` as "((0+1)+2)"; "-" if the cell holds nothing that is reduced.
TROUPE_API std::string tree_of(const verdict& v, rank_t rank, std::int32_t cell);

/// @pre `s` may be anything, also nonsense from a file: every index is checked. Sync steps must have been lowered (a sync
/// is reported as a fault). Never throws for a wrong score. Thread-safe.
TROUPE_API verdict verify(const score& s, const performing_limits& limits = {});

/// Whether verify() would only say that it is too large. As cheap as a look at each rank. @pre a score that a generator has written
TROUPE_API bool is_too_large(const score& s, const performing_limits& limits = {});

}  // namespace troupe
