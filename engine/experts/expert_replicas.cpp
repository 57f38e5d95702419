// SPDX-License-Identifier: Apache-2.0
#include "engine/experts/expert_replicas.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "memory/error.hpp"

namespace troupe {

namespace {

[[noreturn]] void refuse(const std::string& why) { throw error(errc::invalid_argument, "expert_exchange: " + why); }

void check(int experts, const std::vector<std::vector<rank_t>>& placement, int ranks) {
  if (placement.size() != static_cast<std::size_t>(experts))
    refuse("the placement names " + std::to_string(placement.size()) + " experts, and there are " +
           std::to_string(experts));
  for (std::size_t e = 0; e < placement.size(); ++e) {
    const std::string who = "the placement of expert " + std::to_string(e);
    if (placement[e].empty()) refuse(who + " names no rank; it needs at least one");
    for (std::size_t i = 0; i < placement[e].size(); ++i) {
      const rank_t r = placement[e][i];
      if (r < 0 || r >= ranks)
        refuse(who + " names rank " + std::to_string(r) + "; ranks are 0 to " + std::to_string(ranks - 1));
      if (std::count(placement[e].begin(), placement[e].end(), r) > 1)
        refuse(who + " names rank " + std::to_string(r) + " twice");
    }
  }
}

}  // namespace

std::size_t expert_replicas::place_in_domain(rank_t rank) const {
  const auto& all = domains[static_cast<std::size_t>(domain_of[static_cast<std::size_t>(rank)])];
  return static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), rank) - all.begin());
}

rank_t expert_replicas::proxy(int domain, rank_t from) const {
  const auto& all = domains[static_cast<std::size_t>(domain)];
  return all[place_in_domain(from) % all.size()];
}

std::vector<std::uint32_t> expert_replicas::choices(int expert, rank_t from) const {
  std::vector<std::uint32_t> all, near;
  const auto domain = [&](rank_t r) { return domain_of[static_cast<std::size_t>(r)]; };
  for (std::uint32_t s = 0; s < replicas(); ++s) {
    if (expert_of[s] != expert) continue;
    if (rank_of[s] == from) return {s};
    all.push_back(s);
    if (domain(rank_of[s]) == domain(from)) near.push_back(s);
  }
  auto& chosen = near.empty() ? all : near;
  // Not all ranks begin with the same one.
  std::rotate(chosen.begin(),
              chosen.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(from) % chosen.size()),
              chosen.end());
  return chosen;
}

expert_replicas replicas_of(int experts, const std::vector<std::vector<rank_t>>& placement,
                            std::vector<int> domain_of) {
  const int ranks = static_cast<int>(domain_of.size());
  if (experts < 1) refuse("there are " + std::to_string(experts) + " experts; there must be at least one");
  if (!placement.empty()) check(experts, placement, ranks);
  std::vector<std::vector<std::int32_t>> at(static_cast<std::size_t>(ranks));
  for (int e = 0; e < experts; ++e) {
    if (placement.empty()) at[static_cast<std::size_t>(static_cast<std::int64_t>(e) * ranks / experts)].push_back(e);
    else
      for (const rank_t r : placement[static_cast<std::size_t>(e)]) at[static_cast<std::size_t>(r)].push_back(e);
  }
  expert_replicas made;
  made.domain_of = std::move(domain_of);
  for (rank_t r = 0; r < ranks; ++r) {
    const auto d = static_cast<std::size_t>(made.domain_of[static_cast<std::size_t>(r)]);
    if (d >= made.domains.size()) made.domains.resize(d + 1), made.replicas_of_domain.resize(d + 1);
    made.domains[d].push_back(r);
    made.first.push_back(static_cast<std::uint32_t>(made.replicas()));
    for (const std::int32_t e : at[static_cast<std::size_t>(r)]) {
      made.expert_of.push_back(e);
      made.rank_of.push_back(r);
      made.in_domain.push_back(made.replicas_of_domain[d]++);
    }
  }
  made.first.push_back(static_cast<std::uint32_t>(made.replicas()));
  return made;
}

}  // namespace troupe
