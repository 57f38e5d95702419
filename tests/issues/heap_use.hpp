// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "bench/harness/counted_heap.hpp"

namespace issues {

using bench::allocations;
using bench::heap_use;

inline constexpr int growth_rounds = 3;  ///< so often growth() does its `many`

/// Growth of the heap by `many` repetitions, after as many that warm everything up: the smaller of two rounds. What leaks does so in
/// both; a pool that takes more than ever before, because many operations were under way at once, does so in one.
template <class Work>
std::ptrdiff_t growth(int many, Work work) {
  std::ptrdiff_t least = 0;
  for (int round = 0; round < growth_rounds; ++round) {
    const auto before = static_cast<std::ptrdiff_t>(heap_use());
    for (int i = 0; i < many; ++i) work();
    const auto grown = static_cast<std::ptrdiff_t>(heap_use()) - before;
    if (round > 0) least = round == 1 ? grown : std::min(least, grown);
  }
  return least;
}

}  // namespace issues
