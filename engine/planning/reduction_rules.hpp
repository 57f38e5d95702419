// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a call's arithmetic demands of the way it is performed: in which type, after which preparation, in which order.

#include <string>

#include "protocols/call.hpp"
#include "protocols/verify/verifier.hpp"

namespace troupe {

/// What the reduction trees must be like.
struct tree_demands {
  bool rank_ordered = false;
  bool same_everywhere = false;
  bool left_fold = false;

  bool any() const { return rank_ordered || same_everywhere || left_fold; }
  bool met_by(const verdict& v) const {
    return (!rank_ordered || v.rank_ordered) && (!same_everywhere || v.same_tree_everywhere) &&
           (!left_fold || v.left_fold);
  }
};

struct reduction_rules {
  tree_demands trees;
  bool scaled = false;  ///< inputs are multiplied before (pre_mul_sum): staged, or as one pass of the kernel reads them
  bool sums_in_f32 = false;  ///< partial results must not be rounded to the type
  bool any_order = false;    ///< contributions may be combined as they arrive
};

/// Order does not show in the result's bits: integers (they wrap), minima and maxima, logic.
bool exact(datatype type, const op& reduction);

reduction_rules rules_of(const call& what, int ranks);

}  // namespace troupe
