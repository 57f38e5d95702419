// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where an engine's callers have data that the other processes of its host can map (host_segment.hpp): from its join on. Before, without such
// processes, or where there is no more room, it is memory like any other, which the system copies from and to.

#include <memory>
#include <memory_resource>
#include <mutex>
#include <unordered_set>

namespace troupe::actors {

class host_segment;

/// Any thread. Memory may be given back after the engine has ended.
class caller_memory final : public std::pmr::memory_resource {
public:
  /// From now on memory is allocated there. Once.
  void lie_in(std::shared_ptr<host_segment> shared);
  /// Small pieces lie together: a stretch of the segment is 64 KiB at least.
  std::pmr::memory_resource& pooled() { return pool_; }

private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* what, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  std::mutex mutex_;
  std::shared_ptr<host_segment> shared_;  ///< null: not yet
  std::unordered_set<void*> lent_;
  std::pmr::synchronized_pool_resource pool_{{64, 64 * 1024},
                                             this};  ///< pieces of up to 64 KiB, 64 of a kind at a time
};

}  // namespace troupe::actors
