// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/measured_choices.hpp"

#include <set>

namespace troupe {

const measured_choice* find_choice(std::span<const measured_choice> among, collective what, int ranks,
                                   std::uint64_t bytes) {
  const measured_choice* best = nullptr;
  for (const measured_choice& c : among)
    if (c.what == what && c.ranks == ranks && bytes <= c.up_to && (best == nullptr || c.up_to < best->up_to)) best = &c;
  return best;
}

std::string ranks_with_choices(std::span<const measured_choice> among, collective what) {
  std::set<int> all;
  for (const measured_choice& c : among)
    if (c.what == what) all.insert(c.ranks);
  std::string text;
  for (const int ranks : all)
    text += (text.empty() ? "" : ranks == *all.rbegin() ? " and " : ", ") + std::to_string(ranks);
  return text;
}

}  // namespace troupe
