// SPDX-License-Identifier: Apache-2.0
// Equal trees are one node, also of a node that is combined with more others than its list has (reduction_forest.cpp).

#include "protocols/verify/reduction_forest.hpp"

#include <doctest/doctest.h>

#include <set>
#include <vector>

using namespace troupe;

namespace {
using node_id = reduction_forest::node_id;

/// `a` with each of `others`, both ways round.
std::vector<node_id> pairs_of(reduction_forest& forest, node_id a, const std::vector<node_id>& others) {
  std::vector<node_id> made;
  for (const node_id b : others) {
    made.push_back(forest.combine(a, b));
    made.push_back(forest.combine(b, a));
  }
  return made;
}
}  // namespace

TEST_CASE("equal trees are one node, however many a node is combined with") {
  constexpr int ranks = 40;
  reduction_forest forest{ranks};
  std::vector<node_id> leaves;
  for (rank_t r = 0; r < ranks; ++r) leaves.push_back(forest.leaf(r, 7));
  const node_id oldest = leaves.front(), newest = leaves.back();
  const std::vector<node_id> middle(leaves.begin() + 1, leaves.end() - 1);
  const node_id two = forest.combine(oldest, newest);
  for (const node_id a : {oldest, newest, two}) {
    CAPTURE(a);
    const std::vector<node_id> made = pairs_of(forest, a, middle);
    CHECK(std::set<node_id>(made.begin(), made.end()).size() == 2 * middle.size());
    for (std::size_t i = 0; i < middle.size(); ++i) {
      CHECK(forest.left(made[2 * i]) == a);
      CHECK(forest.right(made[2 * i]) == middle[i]);
      CHECK(forest.left(made[2 * i + 1]) == middle[i]);
      CHECK(forest.right(made[2 * i + 1]) == a);
      CHECK(forest.shape(made[2 * i]) == forest.shape(made[2 * i + 1]));
    }
    CHECK(pairs_of(forest, a, middle) == made);
  }
  CHECK(forest.combine(oldest, newest) == two);
}
