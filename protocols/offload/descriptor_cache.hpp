// SPDX-License-Identifier: Apache-2.0
#pragma once
// Descriptors of a plan, compiled for a size when it is first asked for. Calls of many sizes share a plan; the last few sizes are kept.

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
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

  /// For `elements`, made by `make` if they are not kept. One rank makes them, and the others sleep until they are there.
  template <class Make>
  std::shared_ptr<const list> get(std::size_t elements, Make&& make) const {
    if (auto known = find(elements)) return known;
    const std::lock_guard making(making_);
    if (auto known = find(elements)) return known;
    auto made = std::make_shared<const list>(std::forward<Make>(make)());
    const std::lock_guard lock(lock_);
    kept_[next_] = {elements, made};
    next_ = (next_ + 1) % kept_.size();
    return made;
  }

private:
  std::shared_ptr<const list> find(std::size_t elements) const {
    const std::lock_guard lock(lock_);
    for (const auto& [size, all] : kept_)
      if (all && size == elements) return all;
    return nullptr;
  }

  mutable short_lock lock_;  ///< taken once a posting
  mutable std::mutex making_;
  mutable std::array<std::pair<std::size_t, std::shared_ptr<const list>>, 4> kept_;
  mutable std::size_t next_ = 0;
};

}  // namespace troupe
