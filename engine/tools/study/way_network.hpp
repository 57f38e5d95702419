// SPDX-License-Identifier: Apache-2.0
#pragma once
// The graph that a machine's ways make, and the elements by which everything between two sets of ranks has to pass.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "topology/machine/hardware.hpp"

namespace troupe {

/// Ranks and elements are its nodes; an arc joins two that follow each other on a way. Every way is a path here, so elements that cut all paths
/// from some ranks to others cut all ways between them, and what passes in a second is no more than these carry together. The graph has more
/// paths than there are ways (one may begin as one way and end as another), so that the least such set may be larger than need be: the limit is
/// too high then, never too low.
/// Not to be used by several threads at once.
class way_network {
public:
  /// @param rates what each element carries, in bytes per second; infinite if it has no limit
  way_network(int ranks, std::vector<double> rates);

  void add(std::span<const element_index> way, int from, int to);
  /// After the last way. @returns whether the graph is one to search: it is not if it has over 65 536 arcs, as where each of 1 024 ranks
  /// reaches 128 others by a pair of elements, one of either
  bool finish();

  /// The elements of the least sum of rates that all paths from the ranks of one set to those of another pass: a minimum vertex cut, by maximum flow
  /// (Ford and Fulkerson 1956; Dinitz 1970). None: a path has no element with a limit, or so much work is not left.
  /// @param from by rank, which may be in both @param work arcs that may be looked at, a few nanoseconds each; those that were are taken off
  std::optional<std::vector<element_index>> least_cut(const std::vector<bool>& from, const std::vector<bool>& to,
                                                      std::int64_t& work);

private:
  struct arc {
    int to;
    std::uint32_t back;  ///< the same arc, the other way
    double capacity;
  };

  int begin_of(int rank) const { return rank; }
  int end_of(int rank) const { return ranks_ + rank; }
  int into(element_index e) const { return 2 * ranks_ + 2 * e; }
  int out_of(element_index e) const { return into(e) + 1; }
  std::size_t nodes() const { return 2 * (static_cast<std::size_t>(ranks_) + rates_.size()); }
  bool is_end_of(const std::vector<bool>& some, int node) const {
    return node >= ranks_ && node < 2 * ranks_ && some[static_cast<std::size_t>(node - ranks_)];
  }
  void follow(int from, int to);
  bool find_levels(const std::vector<bool>& from, const std::vector<bool>& to, std::int64_t& work);
  std::optional<double> push(int from, const std::vector<bool>& to, std::int64_t& work);

  int ranks_;
  std::vector<double> rates_;
  std::vector<std::uint64_t> followed_;  ///< until finish(): pairs of nodes, some of them more than once
  std::vector<std::uint64_t> lately_;    ///< some of those, by hash: most ways go where the last one went
  std::vector<arc> arcs_;                ///< by the node that they leave
  std::vector<std::uint32_t> first_;     ///< of a node's arcs
  // Of one search.
  std::vector<double> left_;  ///< by arc
  std::vector<int> level_;
  std::vector<std::uint32_t> next_, path_;
  std::vector<int> reached_;
};

}  // namespace troupe
