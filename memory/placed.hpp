// SPDX-License-Identifier: Apache-2.0
#pragma once
// Objects that lie in memory which is given back as a whole: their pointers end them, and free nothing.

#include <memory>
#include <memory_resource>
#include <new>
#include <utility>

namespace troupe {

struct ends_it {
  template <class T>
  void operator()(T* what) const noexcept {
    std::destroy_at(what);
  }
};
/// The memory outlives it.
template <class T>
using placed_ptr = std::unique_ptr<T, ends_it>;

/// Throws what the constructor does, and std::bad_alloc.
template <class T, class... Arguments>
placed_ptr<T> place_in(std::pmr::memory_resource& memory, Arguments&&... arguments) {
  return placed_ptr<T>{::new (memory.allocate(sizeof(T), alignof(T))) T(std::forward<Arguments>(arguments)...)};
}

}  // namespace troupe
