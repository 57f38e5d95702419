// SPDX-License-Identifier: Apache-2.0
// Double binary tree (Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
// scan", 2009; NCCL, spec 5). A binary tree leaves its leaves' links half idle; a second tree in which the
// leaves are inner makes up for it. Each tree carries one half of the block, so every rank sends and receives
// every byte about once a phase: logarithmic latency at full bandwidth.
//
// Lane t reduces up tree t, lane 2 + t broadcasts down it (broadcast and reduce alone use lanes 0 and 1). The
// two phases are joined only by `after` at the tree's root, so with slices the next slice climbs while the
// last one descends.
//
// Order: a subtree covers neighbouring ranks, children are combined left, own, right. So an even number of
// ranks is combined in rank order (in two different trees); an odd one in general is not, as its second tree
// is shifted round by one.

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"
#include "protocols/choreographies/tree_lanes.hpp"
#include "topology/trees.hpp"

namespace troupe::choreographies {

namespace double_binary_tree_scores {
namespace {

using namespace notation;

score all_reduce(const setup& on) {
  score_builder s{on, "double_binary_tree", 2};
  for (rank_t r = 0; r < on.ranks; ++r)
    for (int t = 0; t < 2; ++t) {
      const tree_node node = double_tree(t, r, on.ranks);
      // The output can hold the partial sum: the result arrives only after the parent has got our sum.
      const step_ref sum = climb(s.lane(r, t), r, node, t, output[t]);
      descend(s.lane(r, 2 + t), node, t, output[t], node.is_root() ? sum : step_ref{});
    }
  return s.finish();
}

score broadcast(const setup& on) {
  score_builder s{on, "double_binary_tree", 2};
  for (rank_t r = 0; r < on.ranks; ++r)
    for (int t = 0; t < 2; ++t) {
      descend(s.lane(r, t), rooted_double_tree(t, r, on.ranks, on.root), t, input[t]);
      if (r == on.root) s.lane(r, t).copy_own(input[t], output[t]);
    }
  return s.finish();
}

score reduce(const setup& on) {
  score_builder s{on, "double_binary_tree", 2};
  for (rank_t r = 0; r < on.ranks; ++r)
    for (int t = 0; t < 2; ++t) {
      const tree_node node = rooted_double_tree(t, r, on.ranks, on.root);
      const bool keeps_partial = r != on.root && node.children.size() > 1;
      climb(s.lane(r, t), r, node, t, keeps_partial ? s.scratch_like(r, input[t]) : output[t]);
    }
  return s.finish();
}

constexpr offer offered[] = {
    {collective::all_reduce, all_reduce}, {collective::broadcast, broadcast}, {collective::reduce, reduce}};

}  // namespace
}  // namespace double_binary_tree_scores

constinit const choreography double_binary_tree{
    "double_binary_tree", "two complementary binary trees, each with one half: logarithmic latency at full bandwidth",
    "Sanders, Speck, Träff 2009; NCCL 2.19 (arXiv 2507.04786)", double_binary_tree_scores::offered, refuses_nothing};

}  // namespace troupe::choreographies
