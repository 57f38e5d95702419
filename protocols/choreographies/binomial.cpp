// Binomial tree (Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
// 2005): ⌈log2 n⌉ rounds, n−1 messages; in each round the ranks that have the data, or have collected it,
// double or halve.
//
// Ranks are not relabelled round the root. Instead, every aligned block of 2^i ranks has a head: the root if
// it is one of them, else the lowest. Two blocks join by a message between their heads. For root 0 this is
// the usual tree; for any root a subtree is a contiguous, aligned range of ranks, so reduce combines in rank
// order, and gather and scatter move a subtree's blocks as one piece that never wraps round.

#include <algorithm>
#include <vector>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace {

using namespace notation;

/// A rank's place in the tree.
struct node {
  struct child {
    rank_t rank;
    rank_t first;  ///< its subtree is the ranks [first, first + size)
    int size;
  };
  rank_t parent = -1;           ///< −1: the root
  int size = 0;                 ///< ranks of the subtree, [rank, rank + size) unless the rank is the root
  std::vector<child> children;  ///< smallest subtree first
};

node node_of(const stage& on, rank_t rank) {
  const auto head = [&](rank_t first, int size) {
    return on.root >= first && on.root < first + size ? on.root : first;
  };
  node me{-1, 1, {}};
  for (int half = 1; half < on.ranks; half *= 2) {
    const rank_t mine = rank / half * half, other = mine ^ half;  // the first ranks of the two blocks that join
    if (const rank_t joint = head(std::min(mine, other), 2 * half); joint != rank) return me.parent = joint, me;
    if (other >= on.ranks) continue;
    const int size = std::min(half, on.ranks - other);
    me.children.push_back({head(other, half), other, size});
    me.size += size;
  }
  return me;
}

/// Deepest subtree first, as it takes longest.
score broadcast(const stage& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    auto [parent, size, children] = node_of(on, r);
    if (r != on.root && children.empty()) me.from(parent).recv(output[0]);
    if (r != on.root && !children.empty()) {
      me.from(parent).to(children.back().rank).recv_copy_send(output[0]);
      children.pop_back();
    }
    for (auto child = children.rbegin(); child != children.rend(); ++child)
      me.to(child->rank).send(r == on.root ? input[0] : output[0]);
    if (r == on.root) me.copy_own(input[0], output[0]);
  }
  return s.finish();
}

/// Smallest subtree first: it is ready first, and the sum stays a contiguous range of ranks.
score reduce(const stage& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    const auto [parent, size, children] = node_of(on, r);
    auto me = s.lane(r).to(parent);
    if (children.empty()) me.send(input[0]);
    const bool keeps_partial = r != on.root && children.size() > 1;
    const cells sum = keeps_partial ? s.scratch_like(r, input[0]) : output[0];
    for (std::size_t i = 0; i < children.size(); ++i) {
      me.from(children[i].rank).swapped(children[i].rank > r);
      if (r != on.root && i + 1 == children.size()) me.recv_reduce_send(i == 0 ? input[0] : sum);
      else if (i == 0) me.recv_reduce_copy(input[0], sum);
      else me.recv_reduce(sum);
    }
  }
  return s.finish();
}

/// Scratch cells for the blocks of the subtree of `rank`, which is not the root.
cells subtree_scratch(score_builder& s, rank_t rank, int size) {
  cells all = s.scratch_block(rank, rank);
  for (int i = 1; i < size; ++i) all.count += s.scratch_block(rank, rank + i).count;
  return all;
}

score gather(const stage& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    const auto [parent, size, children] = node_of(on, r);
    auto me = s.lane(r).to(parent);
    if (r == on.root) {
      me.copy_own(input[0], output.block(r));
      for (const auto& child : children) me.from(child.rank).recv(output.blocks(child.first, child.size));
    } else if (children.empty()) {
      me.send(input[0]);
    } else {
      const cells mine = subtree_scratch(s, r, size);
      me.copy(input[0], scratch[mine.first]);
      for (const auto& child : children)
        me.from(child.rank).recv(scratch.cells(mine.first + child.first - r, child.size));
      me.send(mine);
    }
  }
  return s.finish();
}

score scatter(const stage& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto [parent, size, children] = node_of(on, r);
    auto me = s.lane(r).from(parent);
    std::reverse(children.begin(), children.end());  // deepest subtree first, as it takes longest
    if (r == on.root) {
      for (const auto& child : children) me.to(child.rank).send(input.blocks(child.first, child.size));
      me.copy_own(input.block(r), output[0]);
    } else if (children.empty()) {
      me.recv(output[0]);
    } else {
      const cells mine = subtree_scratch(s, r, size);
      me.recv(mine);
      for (const auto& child : children)
        me.to(child.rank).send(scratch.cells(mine.first + child.first - r, child.size));
      me.copy(scratch[mine.first], output[0]);
    }
  }
  return s.finish();
}

/// Up the tree of rank 0, and down again: 2(n − 1) messages, where dissemination has n ⌈log2 n⌉ in half as many rounds. Better where
/// many ranks share few cores.
score barrier(const stage& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    const auto [parent, size, children] = node_of(on, r);
    for (const auto& child : children) me.await(child.rank);
    if (parent >= 0) {
      me.signal(parent);
      me.await(parent);
    }
    for (auto child = children.rbegin(); child != children.rend(); ++child) me.signal(child->rank);
  }
  return s.finish();
}

constexpr offer offered[] = {{collective::broadcast, broadcast},
                             {collective::reduce, reduce},
                             {collective::gather, gather},
                             {collective::scatter, scatter},
                             {collective::barrier, barrier}};

}  // namespace

constinit const choreography binomial{
    "binomial", "a binomial tree from or to the root: fewest rounds for one small block; combines in rank order",
    "Thakur, Rabenseifner, Gropp 2005", offered, refuses_nothing};

}  // namespace troupe::choreographies
