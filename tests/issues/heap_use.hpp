// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace issues {

/// Bytes that new has given out in this process, and delete has not taken back; of all threads.
std::size_t heap_use();
/// How often new was called; of all threads.
std::size_t allocations();

/// Growth of the heap by `many` repetitions, after as many that warm everything up.
template <class Work>
std::ptrdiff_t growth(int many, Work work) {
  for (int i = 0; i < many; ++i) work();
  const auto before = static_cast<std::ptrdiff_t>(heap_use());
  for (int i = 0; i < many; ++i) work();
  return static_cast<std::ptrdiff_t>(heap_use()) - before;
}

}  // namespace issues
