// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/extent.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/score/score_tally.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe {

namespace {

/// Steps on fewer ranks; not a number where such a stage is refused.
double counted(const choreography& which, stage less, layout placement) {
  less.ranks = placement.size();
  less.root = std::min(less.root, less.ranks - 1);
  less.placement = std::move(placement);
  if (!refusal(which, less).empty()) return std::nan("");
  return static_cast<double>(is_built_in(which) ? tally_of(which, less).steps()
                                                : static_cast<std::int64_t>(step_total(write_score(which, less))));
}

/// f(to), from f at `first` and at its double and fourfold; f itself where `to` is no more than that. What f(n) / n gains by a doubling
/// grows by the same factor each time: right for sums of n, n log n, n² and n³ that have but one term beside n.
template <class Count>
double grown(Count&& f, int first, int to) {
  if (to <= 4 * first) return f(to);
  const auto share = [&](int n) { return f(n) / n; };
  const double low = share(first), middle = share(2 * first), high = share(4 * first);
  const double gain = high - middle, factor = middle == low ? 1 : gain / (middle - low);
  const double doublings = std::log2(to / (4.0 * first));
  const double gains =
      std::abs(factor - 1) < 1e-3 ? doublings : factor * (std::pow(factor, doublings) - 1) / (factor - 1);
  return to * (high + gain * gains);
}

/// The same along every level that has too many members to count them, from a layout of few ranks.
double grown_by_levels(const choreography& which, const stage& on) {
  constexpr int few = 512;
  const choreographies::nested_groups groups{on.placement};
  std::vector<int> base = groups.extents();
  for (double ranks = on.ranks; ranks > few;) {
    int& most = *std::max_element(base.begin(), base.end());
    ranks *= static_cast<double>((most + 1) / 2) / most;
    most = (most + 1) / 2;
  }
  const double least = counted(which, on, groups.like(base));
  double steps = least;
  for (std::size_t level = 0; level < base.size(); ++level) {
    if (base[level] == groups.extents()[level]) continue;
    const auto with_members = [&](int n) {
      std::vector<int> extents = base;
      extents[level] = n;
      return counted(which, on, groups.like(extents));
    };
    steps *= grown(with_members, std::max(1, base[level] / 4), groups.extents()[level]) / least;
  }
  return steps;
}

}  // namespace

double guessed_steps(const choreography& which, const stage& on) {
  if (on.ranks <= 512) return -1;
  double steps = 0;
  if (on.placement.uniform() && choreographies::nested_groups{on.placement}.depth() > 2) {
    steps = grown_by_levels(which, on);
  } else if (on.placement.is_flat()) {
    steps = grown([&](int n) { return counted(which, on, layout::flat(n)); }, 64, on.ranks);
  } else {
    // Servers and cards each by themselves: some grow with the square of the one and the logarithm of the other.
    constexpr int few_servers = 8, few_cards = 4;
    const int servers = on.placement.server_count(), cards = on.ranks / servers,
              fewer_cards = std::min(cards, 4 * few_cards);
    const auto on_servers = [&](int n) { return counted(which, on, layout::grid(n, fewer_cards)); };
    const auto on_cards = [&](int n) { return counted(which, on, layout::grid(std::min(servers, few_servers), n)); };
    steps = grown(on_servers, 16, servers) * grown(on_cards, few_cards, cards) / on_cards(fewer_cards);
  }
  return std::isfinite(steps) && steps > 0 ? steps : -1;
}

std::string too_many_steps(const choreography& which, const stage& on, double bytes_a_step) {
  const double steps = guessed_steps(which, on);
  if (steps * bytes_a_step <= 0.7 * static_cast<double>(usable_memory())) return {};
  const bool many = steps >= 2e6;
  return std::string{which.name} + " on " + std::to_string(on.ranks) + " ranks has about " +
         std::to_string(static_cast<std::uint64_t>(many ? steps / 1e6 : steps)) + (many ? " million" : "") +
         " steps, more than this computer's memory holds; take fewer ranks, or a choreography with fewer "
         "steps";
}

}  // namespace troupe
