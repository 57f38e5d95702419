// SPDX-License-Identifier: Apache-2.0
#include "topology/trees.hpp"

#include "memory/error.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

namespace troupe {

namespace {

[[noreturn]] void bad_tree(const std::string& what) { throw error(errc::invalid_argument, "tree: " + what); }

void check_rank(const char* name, int rank, int ranks) {
  if (ranks < 1) bad_tree(std::to_string(ranks) + " ranks, must be at least 1");
  if (rank < 0 || rank >= ranks)
    bad_tree(std::string(name) + " " + std::to_string(rank) + " is not in 0 to " + std::to_string(ranks - 1));
}

// (a + b) mod n without overflow for 0 <= a, b < n.
int add_mod(int a, int b, int n) { return a >= n - b ? a - (n - b) : a + b; }
int sub_mod(int a, int b, int n) { return a >= b ? a - b : a + (n - b); }

// Links of one node of the in-order binary tree over labels 1 … last. Odd labels are leaves; a label's lowest set bit
// is its height. The root is the largest power of two. As NCCL's ncclGetBtree, in 64 bits so that no label overflows.
struct in_order_node {
  std::int64_t parent = 0, low = 0, high = 0;  // 0: none
};

in_order_node in_order(std::int64_t label, std::int64_t last) {
  const std::int64_t bit = label & -label;
  in_order_node node;
  // The upper parent may lie beyond the end; then the lower one adopts us (it is 0 exactly for the root).
  node.parent = (label ^ bit) | (bit << 1);
  if (node.parent > last) node.parent = label ^ bit;
  if (bit > 1) {
    node.low = label - bit / 2;
    for (std::int64_t step = bit / 2; step > 0; step /= 2)
      if (label + step <= last) {
        node.high = label + step;
        break;
      }
  }
  return node;
}

// Tree 0 for odd `ranks`: label = rank + 1, a full binary tree. For even `ranks`: label = rank, with rank 0 as a root
// above the in-order tree of the others. Either way ranks of one parity are leaves, so tree 1 can use the other parity.
tree_node first_tree(int rank, int ranks) {
  const int shift = ranks % 2;
  const std::int64_t last = std::int64_t{ranks} - 1 + shift;
  const auto to_rank = [shift](std::int64_t label) { return static_cast<int>(label) - shift; };
  tree_node result;
  if (rank + std::int64_t{shift} == 0) {  // rank 0 of an even number: parent of the in-order root
    std::int64_t root = 1;
    while (root * 2 <= last) root *= 2;
    result.children.push_back(to_rank(root));
    return result;
  }
  const in_order_node node = in_order(std::int64_t{rank} + shift, last);
  // The in-order root's parent label 0 is rank 0 when `ranks` is even and nobody (−1) when it is odd.
  result.parent = to_rank(node.parent);
  if (node.low != 0) result.children.push_back(to_rank(node.low));
  if (node.high != 0) result.children.push_back(to_rank(node.high));
  return result;
}

template <class Rename>
tree_node renamed(const tree_node& node, Rename rename) {
  tree_node result;
  result.parent = node.parent < 0 ? -1 : rename(node.parent);
  for (int child : node.children) result.children.push_back(rename(child));
  return result;
}

}  // namespace

tree_node binomial_tree(int rank, int ranks, int root) {
  check_rank("rank", rank, ranks);
  check_rank("root", root, ranks);
  const int v = sub_mod(rank, root, ranks);
  tree_node node;
  if (v != 0) node.parent = add_mod(v & (v - 1), root, ranks);
  for (std::int64_t bit = 1; bit < ranks && (v & bit) == 0; bit *= 2)
    if (v + bit < ranks) node.children.push_back(add_mod(static_cast<int>(v + bit), root, ranks));
  return node;
}

tree_node double_tree(int which, int rank, int ranks) {
  check_rank("rank", rank, ranks);
  if (which != 0 && which != 1) bad_tree("there are trees 0 and 1, not " + std::to_string(which));
  if (which == 0) return first_tree(rank, ranks);
  if (ranks % 2 == 1)
    return renamed(first_tree(sub_mod(rank, 1 % ranks, ranks), ranks),
                   [&](int r) { return add_mod(r, 1 % ranks, ranks); });
  tree_node mirrored = renamed(first_tree(ranks - 1 - rank, ranks), [&](int r) { return ranks - 1 - r; });
  if (mirrored.children.size() == 2) {  // mirroring turned the order round
    const int high = mirrored.children[0], low = mirrored.children[1];
    mirrored.children = {};
    mirrored.children.push_back(low);
    mirrored.children.push_back(high);
  }
  return mirrored;
}

int double_tree_root(int which, int ranks) {
  check_rank("rank", 0, ranks);
  if (which != 0 && which != 1) bad_tree("there are trees 0 and 1, not " + std::to_string(which));
  if (ranks % 2 == 0) return which == 0 ? 0 : ranks - 1;
  std::int64_t label = 1;
  while (label * 2 <= ranks) label *= 2;
  return add_mod(static_cast<int>(label - 1), which % ranks, ranks);
}

tree_node rooted_double_tree(int which, int rank, int ranks, int root) {
  check_rank("rank", rank, ranks);
  check_rank("root", root, ranks);
  const int others = ranks - 1;
  const auto to_rank = [&](int inner) { return add_mod(add_mod(inner, 1, ranks), root, ranks); };
  tree_node node;
  if (rank == root) {
    if (which != 0 && which != 1) bad_tree("there are trees 0 and 1, not " + std::to_string(which));
    if (others > 0) node.children.push_back(to_rank(double_tree_root(which, others)));
    return node;
  }
  node = renamed(double_tree(which, sub_mod(rank, root, ranks) - 1, others), to_rank);
  if (node.is_root()) node.parent = root;
  return node;
}

}  // namespace troupe
