// SPDX-License-Identifier: Apache-2.0
#pragma once
// How values came to be: hash-consed reduction trees over all cells of a score. Nodes are never removed; equal trees are one
// node, so comparing two values is comparing two numbers.

#include <cstdint>
#include <string>
#include <vector>

#include "memory/flat_index.hpp"
#include "memory/large_pages.hpp"
#include "protocols/collective.hpp"

namespace troupe {

/// A leaf is what one rank contributes to one chunk; an inner node combines left ⊕ right, which are of the same chunk and
/// have no rank in common. Not thread-safe while it grows; const members may be called by several threads.
class reduction_forest {
public:
  using node_id = std::int32_t;
  static constexpr node_id none = -1;

  explicit reduction_forest(int ranks);

  // -- growing --

  /// Room for so many leaves and inner nodes, at most: growing to it takes longer than filling it.
  void reserve(std::size_t leaves, std::size_t inner);
  node_id leaf(rank_t rank, std::int64_t chunk);
  /// The same without a look whether there is one already. @pre there is none, and nobody calls leaf()
  node_id new_leaf(rank_t rank, std::int64_t chunk);
  /// @pre same chunk, disjoint.
  node_id combine(node_id left, node_id right);
  /// Names the tree of an output cell. Cells are named in any order.
  void set_output(rank_t rank, std::int32_t cell, node_id tree);

  /// Equal for trees that differ only in the chunk and in the order of the operands of ⊕. Found when it is first asked for, as few ask.
  std::int32_t shape(node_id n);

  /// Nothing is added any more: forgets what only that needs.
  void finish();

  // -- asking --

  int ranks() const { return ranks_; }
  std::int64_t chunk(node_id n) const { return at(n).chunk; }
  bool is_leaf(node_id n) const { return at(n).left == none; }
  /// @pre is_leaf(n)
  rank_t contributor(node_id n) const { return at(n).first; }
  node_id left(node_id n) const { return at(n).left; }
  node_id right(node_id n) const { return at(n).right; }
  bool holds(node_id n, rank_t rank) const;
  bool disjoint(node_id a, node_id b) const;
  /// How many contribute.
  int contributors(node_id n) const { return at(n).leaves; }
  /// Exactly these ranks contribute.
  bool made_of(node_id n, const rank_range& wanted) const;
  /// The leaves are neighbouring ranks in ascending order from left to right.
  bool rank_ordered(node_id n) const { return at(n).ordered; }
  /// ((a ⊕ a+1) ⊕ a+2) ⊕ …
  bool left_fold(node_id n) const { return at(n).fold; }
  /// `none` if the cell was not named.
  node_id output(rank_t rank, std::int32_t cell) const;
  /// "((0+1)+2)"
  std::string text(node_id n) const;
  /// The ranks of a set as "0–3, 5".
  std::string members(node_id n) const;
  /// Those of `wanted` that are not in it.
  std::string missing(node_id n, const rank_range& wanted) const;
  /// Those in it that are not wanted.
  std::string beyond(node_id n, const rank_range& wanted) const;

private:
  struct node {
    node_id left;
    node_id right;
    std::int32_t shape;  ///< -1: nobody has asked
    rank_t first;        ///< leftmost leaf
    rank_t last;         ///< rightmost leaf
    std::int32_t leaves;
    bool ordered;
    bool fold;
    std::int64_t chunk;
    std::int32_t set;     ///< in sets_, of an inner node
    node_id newest_pair;  ///< of those that combine it with an older one, the one that came last …
    node_id older_pair;   ///< … and the one before this node in the list of its own
  };
  const node& at(node_id n) const { return nodes_[static_cast<std::size_t>(n)]; }
  const std::uint64_t* set(const node& n) const { return sets_.data() + static_cast<std::size_t>(n.set) * words_; }
  static bool is_in(const std::uint64_t* set, rank_t rank) {
    return (set[static_cast<std::size_t>(rank) / 64] >> (rank % 64) & 1) != 0;
  }
  void add_to(std::size_t at, const node& n);
  node_id append_pair(node_id left, node_id right);
  node_id append(const node& n);
  template <class Chosen>
  std::string list(Chosen chosen) const;

  int ranks_;
  std::size_t words_;
  large_vector<node> nodes_;
  large_vector<std::uint64_t> sets_;  ///< words_ words an inner node; a leaf is its first rank's
  flat_index leaves_, shapes_;        ///< while it grows
  flat_index pairs_;                  ///< of those that no node's list has
  std::vector<std::vector<node_id>> outputs_;
};

}  // namespace troupe
