// SPDX-License-Identifier: Apache-2.0
#pragma once
// A pointer in memory that several processes map, each somewhere else: the distance from itself. Zero, with which fresh memory begins, is null.
//
// Its target lies in the same memory, and is never the pointer itself.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace troupe {

template <class T>
class relative {
public:
  relative() = default;
  relative(const relative&) = delete;
  relative& operator=(const relative&) = delete;

  T* load(std::memory_order order) const noexcept { return at(distance_.load(order)); }
  void store(T* what, std::memory_order order) noexcept { distance_.store(distance_to(what), order); }
  /// If it is null: then it is `what` from now on, for all who acquire it. Returns what it was, null: `what` was the first.
  T* publish(T* what) noexcept {
    std::uintptr_t seen = 0;
    return distance_.compare_exchange_strong(seen, distance_to(what), std::memory_order_acq_rel,
                                             std::memory_order_acquire)
               ? nullptr
               : at(seen);
  }

private:
  T* at(std::uintptr_t distance) const noexcept {
    auto* const here = reinterpret_cast<std::byte*>(const_cast<relative*>(this));
    return distance == 0 ? nullptr : reinterpret_cast<T*>(here + static_cast<std::ptrdiff_t>(distance));
  }
  std::uintptr_t distance_to(T* what) const noexcept {
    return what == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(what) - reinterpret_cast<std::uintptr_t>(this);
  }

  std::atomic<std::uintptr_t> distance_{0};
};

}  // namespace troupe
