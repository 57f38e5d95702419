// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace troupe {

/// Up to 31 children (a binomial tree over 2³¹ ranks), without allocation.
class child_list {
public:
  void push_back(int rank) noexcept { items_[count_++] = rank; }  // @pre size() < 31
  std::size_t size() const noexcept { return count_; }
  bool empty() const noexcept { return count_ == 0; }
  int operator[](std::size_t i) const noexcept { return items_[i]; }  // @pre i < size()
  const int* begin() const noexcept { return items_.data(); }
  const int* end() const noexcept { return items_.data() + count_; }

private:
  std::array<int, 31> items_{};
  std::size_t count_ = 0;
};

/// One rank's place in a tree.
struct tree_node {
  int parent = -1;  // -1: the root
  child_list children{};

  bool is_root() const noexcept { return parent < 0; }
  bool is_leaf() const noexcept { return children.empty(); }
};

// All functions below: O(log ranks), no allocation, pure.
// @throws error(errc::invalid_argument) unless ranks >= 1 and rank, root are in [0, ranks).

/// Binomial tree. With v = (rank − root) mod ranks: the parent clears v's lowest set bit; the children are v + 2^i below
/// that bit, in ascending order of i, so a broadcast that wants the deepest subtree first walks them backwards.
/// The subtree of v is a contiguous range that begins with v: gather and scatter move it as one block.
tree_node binomial_tree(int rank, int ranks, int root = 0);

/// One of the two trees of the double binary tree (spec 5 "Channels"; Sanders, Speck, Träff 2009; NCCL).
/// `which` is 0 or 1; each tree carries one half of the data.
///  - at most two children each; depth at most floor(log2 ranks) + 1;
///  - no rank has children in both trees; at most one rank (none if `ranks` is even) is a leaf in both;
///  - tree 1 is tree 0 mirrored (even `ranks`) or shifted by one rank (odd `ranks`).
/// Children ascend by rank, except across the wrap-around of the shifted tree. In tree 0, and in the mirrored tree 1, a
/// subtree covers a contiguous range of ranks.
/// For odd `ranks` NCCL keeps rank 0 as a one-child root, which makes it inner in both trees; we use the full binary
/// tree instead, for which the stated property holds exactly.
tree_node double_tree(int which, int rank, int ranks);
int double_tree_root(int which, int ranks);

/// The same with a chosen root for broadcast and reduce: `root` sits above both trees with one child in each; the other
/// ranks − 1 ranks form the two trees (relabelled from root + 1 on), so no rank but the root has children in both.
tree_node rooted_double_tree(int which, int rank, int ranks, int root);

}  // namespace troupe
