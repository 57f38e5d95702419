// SPDX-License-Identifier: Apache-2.0
#pragma once
// The allocator of one tier of a card: blocks of a given range of memory, aligned to cache lines.
//
//   troupe::tier_heap heap{memory, bytes};
//   void* tile = heap.allocate(100'000);
//   heap.deallocate(tile);                       // a second time: troupe::error, in every build
//   std::pmr::vector<float> v(1000, &heap);
//
// How: spec 1's allocator in two levels, memory/tiers/tier_core.hpp, under one lock; in front of it each thread keeps blocks up to 512 KiB
// that it gave back (of 88 sizes, up to 64 blocks or 128 KiB of each, 1 MiB of the large ones, less of a small heap), which it takes and gives without a lock or an atomic exchange. When nothing else is left, what all threads keep is
// taken back before a request fails.
//
// Costs beside the bytes asked for: 24 bytes a block, rounded up to a cache line; in blocks of 1 to 32 KiB up to an eighth. No memory
// from the system, but for the table of what a thread keeps of a heap (1.2 KB) and 22 bytes a MiB.
//
// Errors, in every build: what was given back before; what is not the beginning of a block of this heap; a block behind whose end
// somebody wrote (told when it is given back). Not seen: a write to a block that was given back, or far from one's own, until the heap comes upon a head that
// was overwritten; then it gives out nothing any more and says where. Two threads that give back the same block at the same moment may both succeed.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>

#include "memory/export.hpp"

namespace troupe {

namespace detail {
class tier_state;
}

/// Thread-safe. Does not own the range, which must outlive it. Its blocks are void when it is destroyed.
class TROUPE_API tier_heap final : public std::pmr::memory_resource {
public:
  static constexpr std::size_t alignment = 64;
  static constexpr std::size_t page = 8192;

  struct usage {
    std::size_t capacity = 0;  ///< bytes of the range that can be given out, heads included
    std::size_t in_use = 0;    ///< of blocks that users have, with their heads
    std::size_t kept = 0;      ///< by threads, for their next requests
    std::size_t largest = 0;   ///< the most that one request may ask for, now
  };

  /// Of `bytes` at `memory`, of which the first `capacity` are given out. `name` is for messages: "L1 of core group 2". A range that is too small for anything makes a heap
  /// without room. Throws errc::size_overflow beyond 256 GiB.
  tier_heap(void* memory, std::size_t bytes, std::size_t capacity, std::string name);
  tier_heap(void* memory, std::size_t bytes) : tier_heap(memory, bytes, bytes, "heap") {}
  ~tier_heap() override;

  tier_heap(const tier_heap&) = delete;
  tier_heap& operator=(const tier_heap&) = delete;

  /// At least `bytes`, of whole cache lines or `align` if that is larger (a power of two). 0 bytes are a block, too.
  /// Throws errc::out_of_memory with what there is, errc::size_overflow if no range could hold it, errc::aborted when a head was overwritten.
  void* allocate(std::size_t bytes, std::size_t align = alignment);
  /// The same; nullptr wherever allocate() would throw.
  void* try_allocate(std::size_t bytes, std::size_t align = alignment) noexcept;
  /// nullptr is nothing. Throws errc::invalid_argument: given back before, no block of this heap, or somebody wrote behind its
  /// end (then it stays out of use); errc::aborted when a head was overwritten.
  void deallocate(void* block);
  /// The same of a block for which `bytes` were asked; faster where the block is in no cache, since both of its ends are fetched at once. Throws
  /// errc::invalid_argument also if another number of bytes was asked for.
  void deallocate(void* block, std::size_t bytes);
  /// The bytes that were asked for. Throws errc::invalid_argument as deallocate(), but does not look behind the block's end.
  std::size_t size_of(const void* block) const;
  /// Whether the address lies in the range: of a block of this heap or not.
  bool contains(const void* address) const noexcept;

  /// Moves the end of what is given out to so many bytes from the beginning, in whole pages (rounded down; at most the range). False, and nothing
  /// happens, while something is allocated behind it.
  bool resize(std::size_t capacity);
  /// Of this moment: other threads go on. Looks at the whole map, under the lock.
  usage use() const;
  /// Gives back what threads keep, unless the system refuses the barrier that it needs (memory/process_barrier.hpp). For tests; a request that finds no
  /// room, and a resize(), do so themselves.
  void collect();
  /// Of tests: nullptr, or what is wrong with the heap. Looks at every block; nobody else may use the heap meanwhile.
  const char* fault() const;

private:
  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t) override { deallocate(block, bytes); }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  std::shared_ptr<detail::tier_state> state_;  // threads that keep blocks may end later
};

}  // namespace troupe
