// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program that is linked with counted_heap.cpp counts what new gives out, also to the shared library. Any thread.

#include <cstddef>

namespace bench {

/// Bytes that new has given out in this process, and delete has not taken back; of all threads.
std::size_t heap_use();
/// How often new was called; of all threads.
std::size_t allocations();

}  // namespace bench
