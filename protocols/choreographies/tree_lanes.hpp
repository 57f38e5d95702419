// SPDX-License-Identifier: Apache-2.0
#pragma once
// One lane up a tree and one down it, as all choreographies of trees need them.

#include <utility>

#include "protocols/score/score_builder.hpp"
#include "topology/trees.hpp"

namespace troupe::choreographies {

/// Reduces part `t` up the tree: leaf: send; inner: recv_reduce_send; root: recv_reduce_copy into `sum`. With
/// two children the sum with the first one waits in `sum`, which the parent never reads: what it gets is the
/// result of recv_reduce_send. Returns the last step.
inline step_ref climb(lane_writer me, rank_t rank, const tree_node& node, int t, cells sum) {
  using namespace notation;
  if (node.is_leaf()) return me.to(node.parent).send(input[t]);
  step_ref last;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const rank_t child = node.children[i];
    const bool first = i == 0, up = !node.is_root() && i + 1 == node.children.size();
    me.from(child).to(node.parent).swapped(child > rank);
    if (up) last = me.recv_reduce_send(first ? input[t] : sum);
    else last = first ? me.recv_reduce_copy(input[t], sum) : me.recv_reduce(sum);
  }
  return last;
}

/// Broadcasts part `t` down the tree: root: send `ready` (once `joined` is done); inner: recv_copy_send;
/// leaf: recv.
inline void descend(lane_writer me, const tree_node& node, int t, cells ready, step_ref joined = {}) {
  using namespace notation;
  std::size_t served = 0;
  if (!node.is_root()) {
    me.from(node.parent);
    if (node.is_leaf()) me.recv(output[t]);
    else me.to(node.children[served++]).recv_copy_send(output[t]);
  }
  for (; served < node.children.size(); ++served) {
    if (joined.lane >= 0) me.after(std::exchange(joined, {}));
    me.to(node.children[served]).send(node.is_root() ? ready : output[t]);
  }
}

}  // namespace troupe::choreographies
