// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/reduction_rules.hpp"

namespace troupe {

namespace {

bool adds_or_multiplies(op_kind kind) { return is_sum(kind) || kind == op_kind::prod; }

tree_demands demands_of(const call& what) {
  const op& o = what.reduction;
  tree_demands trees;
  if (o.kind == op_kind::user) {
    trees.rank_ordered = !o.commutative;
    trees.left_fold = !o.associative;
  }
  // Nothing is known of a user's function, so its results are taken for inexact.
  if (!exact(what.type, o)) {
    trees.same_everywhere = what.level >= determinism::size_stable;
    trees.left_fold = trees.left_fold || what.level >= determinism::topology_stable;
  }
  return trees;
}

}  // namespace

bool exact(datatype type, const op& reduction) {
  if (reduction.kind == op_kind::user) return false;
  return is_integer(type) || !adds_or_multiplies(reduction.kind);
}

reduction_rules rules_of(const call& what, int ranks) {
  reduction_rules rules;
  if (!is_reduction(what.what)) return rules;
  rules.scaled = what.reduction.kind == op_kind::pre_mul_sum;
  if (ranks == 1) return rules;  // nothing is combined
  rules.trees = demands_of(what);
  rules.sums_in_f32 = is_low_precision(what.type) && adds_or_multiplies(what.reduction.kind);
  rules.any_order = what.level == determinism::fast && !rules.trees.any();
  return rules;
}

}  // namespace troupe
