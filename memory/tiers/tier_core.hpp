// SPDX-License-Identifier: Apache-2.0
#pragma once
// A tier's memory as blocks of whole cache lines: the coarse and the fine level together. Not synchronised; tier_heap has the lock.
//
// Free memory is in two places. Whole free pages are in the page map (coarse). What is left of a page, between a used block and the next page
// or block, is a *fragment*: a free block in a list of its exact length, threaded through the fragments themselves (fine). Invariants:
//  - no fragment contains a whole page, so none has more than 254 lines, and 254 lists with a bitmap of those that have any find the best fit at once;
//  - two fragments never touch, and every page that is wholly free is in the page map: neighbours coalesce when a block is freed;
//  - a run of free pages begins with a head whose `before` tells of the fragment in front, as the head of a used block does;
//  - a block is placed at the very beginning of what is free there, fragments on both sides of the pages included.
// So 1 MiB costs 1 MiB and a line, not a page more.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memory/tiers/block_head.hpp"
#include "memory/tiers/page_map.hpp"

namespace troupe::detail {

class tier_core {
public:
  static constexpr std::size_t page_bytes = 8192;
  static constexpr std::uint32_t page_lines = page_bytes / line_bytes;

  /// @param first   where the first head goes: 16 bytes before a cache line, and with whole pages behind it
  /// @param most    pages that there may ever be; `pages` of them are there now
  tier_core(std::byte* first, std::uint32_t most, std::uint32_t pages, const head_words& words);

  /// A block of exactly so many lines, whose word is not set; nullptr if there is no room. @pre lines > 0
  block_head* take(std::uint32_t lines);
  /// Coalesces. The head's state is free, or overwritten, afterwards. @pre the block was taken and is not free
  void give(block_head* block);
  /// Cuts a block that is taken: it keeps `lines`, the rest is a taken block of its own, which is returned. @pre lines < block->lines
  block_head* cut(block_head* block, std::uint32_t lines);

  /// How many pages there are. False, and nothing happens, if less were wanted and something lies behind. @pre pages <= most
  bool resize(std::uint32_t pages);

  std::uint32_t pages() const noexcept { return total_ / page_lines; }
  std::uint64_t free_lines() const noexcept { return fragment_lines_ + std::uint64_t{page_lines} * map_.free_pages(); }
  /// Lines of the largest block that there is room for. Looks at all of the map.
  std::uint64_t largest() const;

  block_head* head_of(std::uint32_t line) const noexcept {
    return reinterpret_cast<block_head*>(first_ + std::size_t{line} * line_bytes);
  }
  std::uint32_t line_of(const block_head* head) const noexcept {
    return static_cast<std::uint32_t>((reinterpret_cast<const std::byte*>(head) - first_) / std::ptrdiff_t{line_bytes});
  }
  /// A head of a free block was overwritten: by a thread that wrote before or behind its block, or into one that it had given back.
  /// The heap gives out no more, since nothing it knows can be trusted.
  /// These two may be asked by any thread, without the lock.
  bool spoiled() const noexcept { return spoiled_at() != nullptr; }
  const void* spoiled_at() const noexcept { return spoiled_.load(std::memory_order_relaxed); }

  /// Of the tests: looks at everything, and says what is wrong, or nullptr. Cost: every block.
  const char* fault() const;

private:
  static constexpr std::uint32_t most_fragment = 2 * (page_lines - 1);

  free_block* fragment(std::uint32_t line) const noexcept { return reinterpret_cast<free_block*>(head_of(line)); }
  bool is_page(std::uint32_t line) const noexcept { return line % page_lines == 0 && map_.is_free(line / page_lines); }
  /// Lines of the fragment that begins at `line`, 0 if none does.
  std::uint32_t fragment_at(std::uint32_t line) const noexcept;
  /// Lines of the fragment that ends at `line`, 0 if none does.
  std::uint32_t fragment_before(std::uint32_t line) const noexcept;
  void fetch_around(const block_head* block) const noexcept;
  void fetch_links(std::uint32_t line) const noexcept;
  void insert(std::uint32_t line, std::uint32_t lines);
  void remove(std::uint32_t line, std::uint32_t lines);
  const char* list_fault() const;
  /// The fragment that begins at `line` notes that the one in front of it has so many lines.
  void tell(std::uint32_t line, std::uint32_t lines) noexcept {
    if (line < total_) head_of(line)->before = lines;
    else before_end_ = lines;
  }
  std::uint32_t before(std::uint32_t line) const noexcept {
    return line < total_ ? head_of(line)->before : before_end_;
  }
  /// [from, to) is free, is no page and stands for itself.
  void settle(std::uint32_t from, std::uint32_t to);
  block_head* taken(std::uint32_t line, std::uint32_t lines) noexcept;
  block_head* take_fragment(std::uint32_t lines);
  block_head* take_pages(std::uint32_t lines);
  /// The free stretch around a run of pages: its fragments, too.
  struct stretch {
    std::uint32_t from, to;
  };
  stretch around(page_map::run run) const noexcept;

  std::byte* const first_;
  const std::uint32_t most_;
  const head_words& words_;
  std::uint32_t total_ = 0;       // lines
  std::uint32_t before_end_ = 0;  // as `before` of a head, of the end of the tier
  std::uint64_t fragment_lines_ = 0;
  page_map map_;
  std::array<std::uint32_t, most_fragment + 1> lists_;
  std::array<std::uint64_t, most_fragment / 64 + 1> lists_with_{};
  // In a line of its own, which is written once at most: every request reads it.
  alignas(line_bytes) mutable std::atomic<const void*> spoiled_{nullptr};
};

}  // namespace troupe::detail
