// SPDX-License-Identifier: Apache-2.0
#pragma once
// Descriptors of a plan, compiled for a size when it is first asked for. Calls of many sizes share a plan; the last few sizes are kept.

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "memory/short_lock.hpp"
#include "protocols/offload/descriptor.hpp"

namespace troupe {

/// get() is thread-safe. A copy begins empty, because a plan is copied for another score.
class descriptor_cache {
public:
  /// By rank.
  using list = std::vector<offload::rank_program>;

  descriptor_cache() = default;
  descriptor_cache(const descriptor_cache&) noexcept {}
  descriptor_cache& operator=(const descriptor_cache&) noexcept {
    kept_.fill({});
    return *this;
  }

  /// For blocks of `elements`, or of `counts` if there are any, made by `make` if they are not kept. One rank makes them, and the others sleep
  /// until they are there.
  template <class Make>
  std::shared_ptr<const list> get(std::size_t elements, std::span<const std::size_t> counts, Make&& make) const {
    if (auto known = find(elements, counts)) return known;
    const std::lock_guard making(making_);
    if (auto known = find(elements, counts)) return known;
    kept fresh{elements, {counts.begin(), counts.end()}, std::make_shared<const list>(std::forward<Make>(make)())};
    const std::lock_guard lock(lock_);
    std::swap(kept_[next_], fresh);
    const std::size_t which = std::exchange(next_, (next_ + 1) % kept_.size());
    return kept_[which].all;
  }

private:
  struct kept {
    std::size_t elements = 0;
    std::vector<std::size_t> counts;
    std::shared_ptr<const list> all;
  };
  std::shared_ptr<const list> find(std::size_t elements, std::span<const std::size_t> counts) const {
    const std::lock_guard lock(lock_);
    for (const kept& k : kept_)
      if (k.all && k.elements == elements && std::ranges::equal(k.counts, counts)) return k.all;
    return nullptr;
  }

  mutable short_lock lock_;  ///< taken once a posting
  mutable std::mutex making_;
  mutable std::array<kept, 4> kept_;
  mutable std::size_t next_ = 0;
};

}  // namespace troupe
