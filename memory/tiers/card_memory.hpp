// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of one card with several core groups, in three tiers (spec 1; docs/tiers.md):
//   L0  of each core group, private, small        tiles that it works on
//   L1  of each core group, private               malloc_local, free_local
//   L2  of the card, shared by all core groups    malloc_cross, free_cross
// L1 and L2 are the two parts of the core groups' memory: a switch says how much of it is L1, and may be moved while nothing is allocated beyond it.
//
//   troupe::card_memory card{{.core_groups = 4, .hbm_bytes = 64 << 20, .l1_bytes = 32 << 20}};
//   void* weights = card.malloc_local(2, 5'000'000);       // of core group 2
//   void* published = card.malloc_cross(20'000'000);       // larger than any core group's L1 would be
//   card.free_cross(published);
//   card.free_local(weights);
//   card.move_split(16 << 20);
//
// Each tier is a tier_heap, and so a std::pmr::memory_resource: std::pmr::vector<float> v(1000, &card.l1(2)).

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>

#include "memory/export.hpp"
#include "memory/tiers/host_way.hpp"
#include "memory/tiers/tier_heap.hpp"

namespace troupe {

/// Sizes in bytes, in whole pages of 8 KiB. They are address space: the system gives memory to what is touched.
struct card_options {
  static constexpr int most_core_groups = 256;
  int core_groups = 4;
  std::size_t l0_bytes = std::size_t{2} << 20;  ///< of a core group: 32 cores with 64 KiB each (spec 1 says "KBs")
  std::size_t hbm_bytes =
      std::size_t{15'000'000'000} / 8192 * 8192;       ///< of a core group, L1 and its part of L2 (spec 1: 15 GB)
  std::size_t l1_bytes = hbm_bytes / 2 / 8192 * 8192;  ///< of hbm_bytes; L2 has what all core groups leave
  bool shared = false;  ///< in a segment without a name, which other processes can map (descriptor())
};

/// What a transfer moved.
struct host_transfer {
  std::size_t host_bytes = 0;  ///< between host and card
  std::size_t ring_bytes = 0;  ///< between L2 and the core groups
};

namespace detail {

/// The memory of all tiers.
struct card_segment {
  card_segment(std::size_t size, bool shared);
  ~card_segment();  // also of what the constructor above has when it throws: it delegates
  card_segment(const card_segment&) = delete;
  card_segment& operator=(const card_segment&) = delete;

  const std::size_t bytes;
  int descriptor = -1;
  std::byte* at = nullptr;

private:
  explicit card_segment(std::size_t size) : bytes{size} {}
};

}  // namespace detail

/// Thread-safe. Blocks are void when it is destroyed. Errors are those of tier_heap and name the tier.
class TROUPE_API card_memory {
public:
  /// Throws errc::invalid_argument, or errc::out_of_memory where the system gives no address space.
  explicit card_memory(card_options options = {});
  ~card_memory();
  card_memory(const card_memory&) = delete;
  card_memory& operator=(const card_memory&) = delete;

  // -- the four calls ------------------------------------------------------------------------------
  /// At least `bytes` of a core group's L1, at a cache line (64 bytes), until free_local(). Throws errc::out_of_memory, with what is left there;
  /// errc::size_overflow; errc::invalid_argument for a core group that is none; errc::aborted when a head of the tier was overwritten.
  void* malloc_local(int core_group, std::size_t bytes) { return l1(core_group).allocate(bytes); }
  /// nullptr is nothing. Throws errc::invalid_argument: given back before, of L2, or no block; somebody wrote behind its end (it then stays out of
  /// use). errc::aborted as above.
  void free_local(void* block);
  /// The same of L2, which all core groups share.
  void* malloc_cross(std::size_t bytes) { return l2_.allocate(bytes); }
  void free_cross(void* block);

  // -- the tiers -----------------------------------------------------------------------------------
  int core_groups() const noexcept { return options_.core_groups; }
  /// Throw errc::invalid_argument for a core group that is none.
  tier_heap& l0(int core_group);
  tier_heap& l1(int core_group);
  tier_heap& l2() noexcept { return l2_; }

  /// How much of each core group's memory is L1, at most hbm_bytes: 0 … all. Memory that leaves a tier goes back to the system. Throws errc::out_of_memory, and nothing
  /// has changed, while something is allocated in what would leave its tier.
  void move_split(std::size_t l1_bytes);
  std::size_t l1_bytes() const;

  // -- host and card -------------------------------------------------------------------------------
  /// Puts the host's bytes into a block of every core group's L1, `local[g]`, by the caller's thread. one_copy needs as much L2 for the
  /// time, and a tile in each L0. Throws errc::invalid_argument unless there is a block of the size in the L1 of each core group,
  /// errc::out_of_memory if L2 or an L0 has no room. Nobody else may write to these blocks meanwhile.
  /// @param host any length; `local`: core_groups() blocks, each of at least that length
  host_transfer upload(std::span<const std::byte> host, std::span<void* const> local,
                       host_way way = host_way::one_copy);
  /// Puts together at the host what each core group has a part of, `local[g]` the g-th. @param host a multiple of core_groups() bytes, of which each
  /// block of `local` has as many as its part. By the caller's thread; errors and room as upload()'s.
  host_transfer download(std::span<void* const> local, std::span<std::byte> host, host_way way = host_way::one_copy);

  // -- other processes -----------------------------------------------------------------------------
  /// Of the segment, if it is shared; -1 if not. Belongs to the card. A process that has it maps `segment_bytes` of it.
  int descriptor() const noexcept { return segment_.descriptor; }
  std::size_t segment_bytes() const noexcept { return segment_.bytes; }
  /// Where a block is, from the beginning of the segment: the same in every process. Throws errc::invalid_argument for other memory.
  std::size_t offset_of(const void* block) const;

private:
  std::byte* window(std::size_t offset) const noexcept;
  std::size_t l2_capacity(std::size_t l1) const noexcept;
  void release(std::byte* from, std::size_t bytes) noexcept;
  tier_heap* l1_with(const void* block) noexcept;
  void check_locals(std::span<void* const> local, std::size_t bytes);
  void through_l0(int core_group, const std::byte* from, std::byte* to, std::size_t bytes);

  const card_options options_;
  detail::card_segment segment_;
  std::deque<tier_heap> l0_, l1_;
  tier_heap l2_;
  mutable std::mutex split_;
  std::size_t l1_bytes_;  // guarded by split_
};

}  // namespace troupe
