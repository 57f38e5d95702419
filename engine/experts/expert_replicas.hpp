// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which rank has which expert. A *replica* is an expert at a rank: most experts have one, some several. Replicas are numbered by rank, at a rank by expert.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocols/collective.hpp"

namespace troupe {

/// A value; the same at all ranks.
struct expert_replicas {
  std::vector<std::uint32_t> first;          ///< by rank: its first replica; and how many there are
  std::vector<std::int32_t> expert_of;       ///< by replica
  std::vector<rank_t> rank_of;               ///< by replica
  std::vector<std::uint32_t> in_domain;      ///< by replica: its place among those of its domain, which are in order
  std::vector<int> domain_of;                ///< by rank
  std::vector<std::vector<rank_t>> domains;  ///< ranks of each, ascending
  std::vector<std::uint32_t> replicas_of_domain;  ///< how many each has

  std::size_t replicas() const { return expert_of.size(); }
  std::uint32_t replicas_at(rank_t rank) const {
    return first[static_cast<std::size_t>(rank) + 1] - first[static_cast<std::size_t>(rank)];
  }
  /// The rank of that domain that takes what `from` sends there, for all its ranks.
  rank_t proxy(int domain, rank_t from) const;
  std::size_t place_in_domain(rank_t rank) const;
  /// The replicas that `from` sends an expert's tokens to, in turn: its own, else its domain's, else all.
  std::vector<std::uint32_t> choices(int expert, rank_t from) const;
};

/// Throws error(invalid_argument): the placement is none. @param domain_of by rank, numbers from 0 in the order of their first ranks
expert_replicas replicas_of(int experts, const std::vector<std::vector<rank_t>>& placement, std::vector<int> domain_of);

}  // namespace troupe
