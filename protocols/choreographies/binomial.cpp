// SPDX-License-Identifier: Apache-2.0
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

namespace binomial_scores {
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

node node_of(int ranks, rank_t root, rank_t rank) {
  const auto head = [&](rank_t first, int size) { return root >= first && root < first + size ? root : first; };
  node me{-1, 1, {}};
  for (int half = 1; half < ranks; half *= 2) {
    const rank_t mine = rank / half * half, other = mine ^ half;  // the first ranks of the two blocks that join
    if (const rank_t joint = head(std::min(mine, other), 2 * half); joint != rank) return me.parent = joint, me;
    if (other >= ranks) continue;
    const int size = std::min(half, ranks - other);
    me.children.push_back({head(other, half), other, size});
    me.size += size;
  }
  return me;
}

/// Deepest subtree first, as it takes longest.
score broadcast(const setup& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    auto [parent, size, children] = node_of(on.ranks, on.root, r);
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
score reduce(const setup& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    const auto [parent, size, children] = node_of(on.ranks, on.root, r);
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

score gather(const setup& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    const auto [parent, size, children] = node_of(on.ranks, on.root, r);
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

score scatter(const setup& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto [parent, size, children] = node_of(on.ranks, on.root, r);
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
score barrier(const setup& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    const auto [parent, size, children] = node_of(on.ranks, 0, r);
    for (const auto& child : children) me.await(child.rank);
    if (parent >= 0) {
      me.signal(parent);
      me.await(parent);
    }
    for (auto child = children.rbegin(); child != children.rend(); ++child) me.signal(child->rank);
  }
  return s.finish();
}

/// Up the tree of rank 0 with the sum of each subtree, and down with the sum of everything before it (Blelloch, "Scans as
/// primitive parallel operations", IEEE ToC 38(11), 1989; Sanders, Träff, "Parallel prefix (scan) algorithms for MPI", 2006).
/// partial[i]: the rank and its first i subtrees. Sums that reach the last rank are nobody's prefix, and stay.
class prefix_tree {
public:
  prefix_tree(score_builder& s, rank_t rank)
      : s_(s), rank_(rank), node_(node_of(s.on().ranks, 0, rank)), me_(s.lane(rank)) {}

  void perform(bool inclusive) {
    if (!inclusive && rank_ > 0 && !node_.children.empty()) s_.stage_input(rank_);
    partial_ = {s_.staged(rank_, input[0])};
    if (rank_ == 0) from_rank_0(inclusive);
    else {
      up();
      inclusive ? down_inclusive() : down_exclusive();
    }
  }

private:
  bool sends_up(rank_t first, int size) const { return first + size < s_.on().ranks; }

  /// partial[i + 1] from partial[i] and child i.
  void add(std::size_t i) {
    partial_.push_back(s_.scratch_like(rank_, input[0]));
    me_.from(node_.children[i].rank).swapped().recv_reduce_copy(partial_[i], partial_[i + 1]);
  }

  /// Nothing comes before rank 0: its partial sums are its children's prefixes. They go before the child's sum comes, which saves
  /// the child a round trip, except to rank 1: in place it receives over the input that it sends.
  void from_rank_0(bool inclusive) {
    const auto& children = node_.children;
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (i > 0) me_.to(children[i].rank).send(partial_[i]);
      if (sends_up(children[i].first, children[i].size)) add(i);
      if (i == 0) me_.to(children[i].rank).send(partial_[i]);
    }
    if (inclusive) me_.copy_own(input[0], output[0]);
  }

  void up() {
    if (!sends_up(rank_, node_.size)) {
      for (std::size_t i = 0; i + 1 < node_.children.size(); ++i) add(i);
      return;
    }
    me_.to(node_.parent);
    if (node_.children.empty()) me_.send(partial_[0]);
    for (std::size_t i = 0; i < node_.children.size(); ++i)
      if (i + 1 < node_.children.size()) add(i);
      else me_.from(node_.children[i].rank).swapped().recv_reduce_send(partial_[i]);
  }

  /// Deepest subtree first, as it takes longest; the first one is left to the caller.
  void give_prefixes(cells before) {
    for (std::size_t i = node_.children.size(); i-- > 1;) {
      me_.swapped().reduce(before, partial_[i]);
      me_.to(node_.children[i].rank).send(partial_[i]);
    }
  }

  /// The own result is what comes before child 0.
  void down_inclusive() {
    me_.from(node_.parent);
    if (node_.children.empty()) {
      me_.recv_reduce_copy(input[0], output[0]);
      return;
    }
    const cells before = s_.scratch_like(rank_, input[0]);
    me_.recv(before);
    give_prefixes(before);
    if (s_.on().in_place) {
      me_.swapped().reduce(before, output[0]);
    } else {
      me_.copy(before, output[0]);
      me_.reduce(input[0], output[0]);
    }
    me_.to(node_.children[0].rank).send(output[0]);
  }

  void down_exclusive() {
    me_.from(node_.parent).recv(output[0]);
    if (node_.children.empty()) return;
    give_prefixes(output[0]);
    const cells before_child = s_.scratch_like(rank_, input[0]);
    me_.copy(output[0], before_child);
    me_.reduce(partial_[0], before_child);
    me_.to(node_.children[0].rank).send(before_child);
  }

  score_builder& s_;
  rank_t rank_;
  node node_;
  lane_writer me_;
  std::vector<cells> partial_;
};

score scan(const setup& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) prefix_tree{s, r}.perform(true);
  return s.finish();
}

score exscan(const setup& on) {
  score_builder s{on, "binomial", 1};
  for (rank_t r = 0; r < on.ranks; ++r) prefix_tree{s, r}.perform(false);
  return s.finish();
}

constexpr offer offered[] = {{collective::broadcast, broadcast}, {collective::reduce, reduce},
                             {collective::gather, gather},       {collective::scatter, scatter},
                             {collective::barrier, barrier},     {collective::scan, scan},
                             {collective::exscan, exscan}};

}  // namespace
}  // namespace binomial_scores

constinit const choreography binomial{
    "binomial", "a binomial tree from or to the root: fewest rounds for one small block; combines in rank order",
    "Thakur, Rabenseifner, Gropp 2005", binomial_scores::offered, refuses_nothing};

}  // namespace troupe::choreographies
