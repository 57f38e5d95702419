// SPDX-License-Identifier: Apache-2.0
#include "topology/trees.hpp"

#include "memory/error.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <vector>

using namespace troupe;

namespace {

// Checks that `nodes` is one tree: consistent links, one root, everybody reached. Returns its depth in edges.
int check_tree(const std::vector<tree_node>& nodes, int root, std::size_t most_children) {
  REQUIRE(nodes[static_cast<std::size_t>(root)].is_root());
  std::vector<int> depth(nodes.size(), -1), queue{root};
  depth[static_cast<std::size_t>(root)] = 0;
  int deepest = 0;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const auto at = static_cast<std::size_t>(queue[i]);
    REQUIRE(nodes[at].children.size() <= most_children);
    deepest = std::max(deepest, depth[at]);
    for (int child : nodes[at].children) {
      REQUIRE(child >= 0);
      REQUIRE(static_cast<std::size_t>(child) < nodes.size());
      REQUIRE(nodes[static_cast<std::size_t>(child)].parent == queue[i]);
      REQUIRE(depth[static_cast<std::size_t>(child)] == -1);  // no cycle, no second parent
      depth[static_cast<std::size_t>(child)] = depth[at] + 1;
      queue.push_back(child);
    }
  }
  REQUIRE(queue.size() == nodes.size());
  return deepest;
}

int floor_log2(int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n))) - 1; }

std::vector<int> subtree(const std::vector<tree_node>& nodes, int of) {
  std::vector<int> members{of};
  for (std::size_t i = 0; i < members.size(); ++i)
    for (int child : nodes[static_cast<std::size_t>(members[i])].children) members.push_back(child);
  std::sort(members.begin(), members.end());
  return members;
}

/// Every rank's node, by rank.
std::vector<tree_node> all_nodes(int ranks, const std::function<tree_node(int rank)>& node_of) {
  std::vector<tree_node> nodes;
  for (int r = 0; r < ranks; ++r) nodes.push_back(node_of(r));
  return nodes;
}
std::vector<tree_node> all_nodes_binomial(int ranks, int root) {
  return all_nodes(ranks, [&](int r) { return binomial_tree(r, ranks, root); });
}
std::vector<tree_node> all_nodes_double(int which, int ranks) {
  return all_nodes(ranks, [&](int r) { return double_tree(which, r, ranks); });
}

bool contiguous(const std::vector<int>& sorted) {
  return sorted.back() - sorted.front() + 1 == static_cast<int>(sorted.size());
}

}  // namespace

TEST_CASE("double binary tree, 1 to 200 ranks: two trees that share the work") {
  for (int p = 1; p <= 200; ++p) {
    CAPTURE(p);
    const auto first = all_nodes_double(0, p), second = all_nodes_double(1, p);
    const int deepest =
        std::max(check_tree(first, double_tree_root(0, p), 2), check_tree(second, double_tree_root(1, p), 2));
    CHECK(deepest <= floor_log2(p) + 1);
    int leaf_in_both = 0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(p); ++r) {
      CHECK((first[r].is_leaf() || second[r].is_leaf()));  // has children in at most one tree
      leaf_in_both += first[r].is_leaf() && second[r].is_leaf() ? 1 : 0;
      // The second tree is the first one mirrored or shifted by one.
      const auto other = [&](int rank) { return rank < 0 ? -1 : p % 2 == 0 ? p - 1 - rank : (rank + p - 1) % p; };
      CHECK(other(second[r].parent) == first[static_cast<std::size_t>(other(static_cast<int>(r)))].parent);
    }
    CHECK(leaf_in_both == p % 2);
  }
}

TEST_CASE("double binary tree: subtrees are contiguous and children ascend where promised") {
  for (int p = 1; p <= 200; ++p)
    for (int which = 0; which < 2; ++which) {
      if (which == 1 && p % 2 == 1) continue;  // the shifted tree wraps around
      CAPTURE(p);
      CAPTURE(which);
      const auto nodes = all_nodes_double(which, p);
      for (int r = 0; r < p; ++r) {
        CHECK(contiguous(subtree(nodes, r)));
        const auto& children = nodes[static_cast<std::size_t>(r)].children;
        CHECK(std::is_sorted(children.begin(), children.end()));
      }
    }
}

TEST_CASE("double binary tree of 8 ranks is the known one") {
  CHECK(double_tree(0, 0, 8).children[0] == 4);
  CHECK(double_tree(0, 4, 8).children[0] == 2);
  CHECK(double_tree(0, 4, 8).children[1] == 6);
  CHECK(double_tree(0, 7, 8).parent == 6);
  CHECK(double_tree(1, 7, 8).children[0] == 3);
  CHECK(double_tree(1, 3, 8).children[0] == 1);
  CHECK(double_tree(1, 3, 8).children[1] == 5);
  CHECK(double_tree(1, 0, 8).parent == 1);
}

TEST_CASE("rooted double tree: any root above both trees, nobody else has children in both") {
  for (int p = 1; p <= 65; ++p)
    for (int root = 0; root < p; ++root) {
      CAPTURE(p);
      CAPTURE(root);
      std::vector<tree_node> trees[2];
      for (int which = 0; which < 2; ++which) {
        for (int r = 0; r < p; ++r) trees[which].push_back(rooted_double_tree(which, r, p, root));
        CHECK(check_tree(trees[which], root, 2) <= floor_log2(p) + 2);
        CHECK(trees[which][static_cast<std::size_t>(root)].children.size() == (p > 1 ? 1u : 0u));
      }
      for (int r = 0; r < p; ++r)
        if (r != root)
          CHECK((trees[0][static_cast<std::size_t>(r)].is_leaf() || trees[1][static_cast<std::size_t>(r)].is_leaf()));
    }
}

TEST_CASE("binomial tree, every root: depth, block subtrees, ascending children") {
  for (int p = 1; p <= 200; ++p)
    for (int root = 0; root < p; root += p <= 33 ? 1 : 7) {
      CAPTURE(p);
      CAPTURE(root);
      const auto nodes = all_nodes_binomial(p, root);
      CHECK(check_tree(nodes, root, 31) == floor_log2(p));  // the most set bits below p is floor(log2 p) or less
      for (int r = 0; r < p; ++r) {
        auto members = subtree(nodes, r);
        const int v = (r - root + p) % p;  // everything down to its lowest set bit
        CHECK(static_cast<int>(members.size()) == (v == 0 ? p : std::min(v & -v, p - v)));
        for (int& m : members) m = (m - root + p) % p;  // relative to the root the subtree is a block that starts at r
        std::sort(members.begin(), members.end());
        CHECK(contiguous(members));
        CHECK(members.front() == (r - root + p) % p);
        int last = members.front();
        for (int child : nodes[static_cast<std::size_t>(r)].children) {
          CHECK((child - root + p) % p > last);
          last = (child - root + p) % p;
        }
      }
    }
}

TEST_CASE("trees: the largest rank counts do not overflow, bad arguments are named") {
  const int most = std::numeric_limits<int>::max();
  CHECK(binomial_tree(0, most).children.size() == 31);
  CHECK(binomial_tree(most - 1, most, 1).parent >= 0);
  for (int p : {most, most - 1})
    for (int which = 0; which < 2; ++which)
      for (int r : {0, 1, p / 2, p - 2, p - 1, double_tree_root(which, p)}) {
        const tree_node node = double_tree(which, r, p);
        CHECK(node.is_root() == (r == double_tree_root(which, p)));
        for (int child : node.children) CHECK(double_tree(which, child, p).parent == r);
      }
  const auto refused = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const error& e) {
      return e.code_value() == errc::invalid_argument;
    }
    return false;
  };
  CHECK(refused([] { (void)binomial_tree(3, 3); }));
  CHECK(refused([] { (void)binomial_tree(0, 0); }));
  CHECK(refused([] { (void)binomial_tree(0, 3, -1); }));
  CHECK(refused([] { (void)binomial_tree(5, 3); }));
  CHECK(refused([] { (void)double_tree(2, 0, 3); }));
  CHECK(refused([] { (void)double_tree(0, -1, 3); }));
  CHECK(refused([] { (void)double_tree_root(0, 0); }));
  CHECK(refused([] { (void)rooted_double_tree(2, 1, 3, 1); }));
  CHECK(refused([] { (void)rooted_double_tree(0, 1, 3, 3); }));
  CHECK(refused([] { (void)double_tree(0, 0, -1); }));
}
