// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "bench/harness/counted_heap.hpp"

namespace issues {

using bench::allocations;
using bench::heap_use;

inline constexpr int growth_rounds = 3;  ///< so often growth() does its `many`

/// Words that were sent and not yet heard are memory, too, and on a busy machine much is said before anybody hears: looks until it stays as it is.
inline std::ptrdiff_t settled_heap() {
  constexpr int most_looks = 100;
  auto now = static_cast<std::ptrdiff_t>(heap_use());
  for (int looks = 0, same = 0; looks < most_looks && same < 2; ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
    const std::ptrdiff_t before = std::exchange(now, static_cast<std::ptrdiff_t>(heap_use()));
    same = now == before ? same + 1 : 0;
  }
  return now;
}

/// Growth of the heap by `many` repetitions, after as many that warm everything up: the smaller of two rounds. What leaks does so in
/// both; a pool that takes more than ever before, because many operations were under way at once, does so in one.
template <class Work>
std::ptrdiff_t growth(int many, Work work) {
  std::ptrdiff_t least = 0;
  for (int round = 0; round < growth_rounds; ++round) {
    const std::ptrdiff_t before = settled_heap();
    for (int i = 0; i < many; ++i) work();
    const std::ptrdiff_t grown = settled_heap() - before;
    if (round > 0) least = round == 1 ? grown : std::min(least, grown);
  }
  return least;
}

}  // namespace issues
