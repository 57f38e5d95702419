// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/extent.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "topology/machine/discovery.hpp"

namespace troupe {

namespace {

/// The layout of fewer ranks that is most like `given`, as a choreography of several levels sees it.
layout like(const layout& given, int ranks) {
  if (given.is_flat()) return layout::flat(ranks);
  const int servers =
      static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(given.server_count(), ranks / 8))));
  return layout::grid(servers, ranks / servers);
}

}  // namespace

double guessed_steps(const choreography& which, const stage& on) {
  constexpr int small = 64;
  if (on.ranks <= 8 * small) return -1;
  double counts[2] = {};
  for (int i = 0; i < 2; ++i) {
    stage less = on;
    less.ranks = small << i;
    less.root = std::min(on.root, less.ranks - 1);
    less.placement = like(on.placement, less.ranks);
    if (!refusal(which, less).empty()) return -1;
    counts[i] = static_cast<double>(step_total(write_score(which, less)));
  }
  if (counts[0] <= 0) return -1;
  const double exponent = std::log2(counts[1] / counts[0]);
  return counts[1] * std::pow(static_cast<double>(on.ranks) / (2 * small), exponent);
}

std::string too_many_steps(const choreography& which, const stage& on, double bytes_a_step) {
  const double steps = guessed_steps(which, on);
  if (steps * bytes_a_step <= 0.7 * static_cast<double>(discover().memory_limit_bytes)) return {};
  const bool many = steps >= 2e6;
  return std::string{which.name} + " on " + std::to_string(on.ranks) + " ranks has about " +
         std::to_string(static_cast<std::uint64_t>(many ? steps / 1e6 : steps)) + (many ? " million" : "") +
         " steps, more than this computer's memory holds; take fewer ranks, or a choreography with fewer "
         "steps";
}

}  // namespace troupe
