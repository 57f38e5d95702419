// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs of a plan, compiled when they are first asked for and then shared by all repetitions.

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "memory/short_lock.hpp"

namespace troupe {

/// get() is thread-safe. A copy begins empty, because a plan is copied for another number of elements.
template <class Program>
class program_cache {
public:
  program_cache() = default;
  program_cache(const program_cache&) noexcept {}
  program_cache& operator=(const program_cache&) noexcept {
    all_.clear();
    return *this;
  }

  /// Entry `at` of `size`, made by `make` if there is none yet. Not under the lock: ranks compile their own programs at the same
  /// time, and the second to come to an entry takes the first one's.
  template <class Make>
  std::shared_ptr<const Program> get(std::size_t at, std::size_t size, Make&& make) const {
    bool first = false;
    {
      const std::lock_guard lock(lock_);
      first = all_.empty();
      if (!first && all_[at]) return all_[at];
    }
    auto made = std::make_shared<const Program>(make());
    std::vector<std::shared_ptr<const Program>> room(first ? size : 0);
    const std::lock_guard lock(lock_);
    if (all_.empty()) all_.swap(room);
    if (!all_[at]) all_[at] = std::move(made);
    return all_[at];
  }

  /// The same where all ranks ask for one entry: one makes it, and the others sleep until it is there.
  template <class Make>
  std::shared_ptr<const Program> get_shared(std::size_t at, std::size_t size, Make&& make) const {
    const auto known = [&]() -> std::shared_ptr<const Program> {
      const std::lock_guard lock(lock_);
      return all_.empty() ? nullptr : all_[at];
    };
    if (auto found = known()) return found;
    const std::lock_guard lock(making_);
    return get(at, size, make);
  }

  /// The entry is known already. @pre nobody has asked for any yet
  void set(std::size_t at, std::size_t size, std::shared_ptr<const Program> made) const {
    const std::lock_guard lock(lock_);
    all_.resize(size);
    all_[at] = std::move(made);
  }

private:
  mutable short_lock lock_;  ///< taken once an operation
  mutable std::mutex making_;
  mutable std::vector<std::shared_ptr<const Program>> all_;
};

}  // namespace troupe
