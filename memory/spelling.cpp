// SPDX-License-Identifier: Apache-2.0
#include "memory/spelling.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace troupe {

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view closest(std::string_view wrong, std::span<const std::string_view> candidates) {
  if (wrong.size() > 64) return {};
  std::string_view best;
  std::size_t least = std::max<std::size_t>(2, wrong.size() / 3) + 1;
  for (const std::string_view candidate : candidates)
    if (const std::size_t d = edit_distance(wrong, candidate); d < least && d < candidate.size())
      least = d, best = candidate;
  return best;
}

std::string plural(std::size_t count, std::string_view noun) {
  return std::to_string(count) + ' ' + std::string{noun} + (count == 1 ? "" : "s");
}

}  // namespace troupe
