// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/extent.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/score/score_tally.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe {

namespace {

/// Steps on fewer ranks; not a number where such a setup is refused.
double counted(const choreography& which, setup less, layout placement) {
  less.ranks = placement.size();
  less.root = std::min(less.root, less.ranks - 1);
  less.placement = std::move(placement);
  if (!refusal(which, less).empty()) return std::nan("");
  return static_cast<double>(is_built_in(which) ? tally_of(which, less).steps()
                                                : static_cast<std::int64_t>(step_total(write_score(which, less))));
}

/// f(to), from f at three sizes, each about twice the one before; f itself where `to` is no more than the last. What f(n) / n gains by a doubling
/// grows by the same factor each time: right for sums of n, n log n, n² and n³ that have but one term beside n.
template <class Count>
double grown(Count&& f, const std::array<int, 3>& sizes, int to) {
  if (to <= sizes[2]) return f(to);
  const auto share = [&](int n) { return f(n) / n; };
  const auto doublings = [](double from, double until) { return std::log2(until / from); };
  const double low = share(sizes[0]), middle = share(sizes[1]), high = share(sizes[2]);
  const double first = doublings(sizes[0], sizes[1]), second = doublings(sizes[1], sizes[2]),
               rest = doublings(sizes[2], to);
  const double gain = high - middle;
  const double factor = middle == low ? 1 : std::pow((gain / second) / ((middle - low) / first), 2 / (first + second));
  const double gains =
      std::abs(factor - 1) < 1e-3 ? rest / second : (std::pow(factor, rest) - 1) / (1 - std::pow(factor, -second));
  return to * (high + gain * gains);
}

template <class Count>
double grown(Count&& f, int first, int to) {
  return grown(f, {first, 2 * first, 4 * first}, to);
}

/// Few ranks that are like `ranks`: as far from a power of two, where some fold, and divisible by two as often and no oftener, as far as nhr
/// parts its slices in even and odd ones.
std::array<int, 3> few_like(int ranks) {
  constexpr int few = 64;
  const int unit = std::min(ranks & -ranks, few);
  if ((ranks & (ranks - 1)) == 0) return {few, 2 * few, 4 * few};
  int less = ranks;
  while (less >= 2 * std::max(few, 3 * unit)) less /= 2;
  const auto odd_multiple = [unit](int near) { return unit * (near / unit / 2 * 2 + 1); };
  return {odd_multiple(less), odd_multiple(2 * less), odd_multiple(4 * less)};
}

/// The same along every level that has too many members to count them, from a layout of few ranks.
double grown_by_levels(const choreography& which, const setup& on) {
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

double guessed_steps(const choreography& which, const setup& on) {
  if (on.ranks <= 512) return -1;
  double steps = 0;
  if (on.placement.uniform() && choreographies::nested_groups{on.placement}.depth() > 2) {
    steps = grown_by_levels(which, on);
  } else if (on.placement.is_flat()) {
    steps = grown([&](int n) { return counted(which, on, layout::flat(n)); }, few_like(on.ranks), on.ranks);
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

std::string too_many_steps(const choreography& which, const setup& on, double bytes_a_step, double bytes_a_rank) {
  const double steps = guessed_steps(which, on), most = 0.7 * static_cast<double>(usable_memory());
  const double bytes = std::max(steps, 0.0) * bytes_a_step + on.ranks * bytes_a_rank;
  if (bytes <= most) return {};
  const std::string who = std::string{which.name} + " on " + std::to_string(on.ranks) + " ranks";
  if (steps * bytes_a_step <= most)
    return who + " takes about " + std::to_string(static_cast<std::uint64_t>(bytes / 1e9)) +
           " GB, more than this computer's memory holds; take fewer ranks";
  const bool many = steps >= 2e6;
  return who + " has about " + std::to_string(static_cast<std::uint64_t>(many ? steps / 1e6 : steps)) +
         (many ? " million" : "") +
         " steps, more than this computer's memory holds; take fewer ranks, or a choreography with fewer "
         "steps";
}

}  // namespace troupe
