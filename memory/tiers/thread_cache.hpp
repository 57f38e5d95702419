// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to memory/tiers: the blocks that one thread keeps of one heap, in classes of sizes. Its owner alone takes and gives, behind a quiet door;
// who has the heap's lock may close the door and take everything. Nothing here locks, allocates or throws. Lengths are in lines of 64 bytes, heads included.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "memory/tiers/block_head.hpp"
#include "memory/tiers/quiet_door.hpp"

namespace troupe::detail {

/// Sizes of kept blocks, in lines: each up to 16 (1 KiB), then eight a power of two, up to 512 (32 KiB).
struct line_classes {
  static constexpr std::uint32_t most_lines = 512;
  static constexpr std::size_t count = 16 + 5 * 8;

  std::array<std::uint8_t, most_lines + 1> of{};  ///< the smallest class that holds so many lines
  std::array<std::uint16_t, count> lines{};

  constexpr line_classes() {
    std::size_t c = 0;
    for (; c < 16; ++c) lines[c] = static_cast<std::uint16_t>(c + 1);
    for (std::uint32_t base = 16; base < most_lines; base *= 2)
      for (std::uint32_t step = 1; step <= 8; ++step) lines[c++] = static_cast<std::uint16_t>(base + step * base / 8);
    for (std::uint32_t n = 1; n <= most_lines; ++n)
      of[n] = static_cast<std::uint8_t>(std::lower_bound(lines.begin(), lines.end(), n) - lines.begin());
  }
};
inline constexpr line_classes classes;
static_assert(classes.lines.back() == line_classes::most_lines && classes.of[17] == 16 && classes.lines[16] == 18);

class alignas(128) thread_cache {
public:
  static constexpr std::uint32_t most_blocks = 64;

  /// @param most_bytes of each class; fewer than two blocks: the class is not kept
  explicit thread_cache(std::size_t most_bytes) {
    for (std::uint32_t octave = 9; octave < 13; ++octave)
      for (std::uint32_t eighth = 8; eighth < 16; ++eighth) {
        const std::uint32_t lines = eighth << (octave - 3);
        const std::size_t blocks = large_share * most_bytes / (lines * line_bytes);
        most_[large_of(lines)] = static_cast<std::uint16_t>(std::min<std::size_t>(blocks, most_blocks));
      }
    for (std::size_t c = 0; c < line_classes::count; ++c) {
      const std::size_t blocks = most_bytes / (classes.lines[c] * line_bytes);
      most_[c] = static_cast<std::uint16_t>(blocks < 2 ? 0 : std::min<std::size_t>(blocks, most_blocks));
    }
  }

  /// Blocks of that kind that are kept at once; kinds are numbered by `classes.of`, and behind those by large_of(). Any thread.
  std::uint32_t most(std::size_t c) const noexcept { return most_[c]; }

  /// Of blocks beyond the classes, which come in any length, up to this: kept by the power of two and the eighth of it that they reach.
  static constexpr std::uint32_t most_large = 8191;  // 512 KiB
  static constexpr std::size_t kinds = line_classes::count + 4 * 8;
  static constexpr std::size_t large_share = 8;  // of each of them as many times more bytes as of a class
  /// @pre line_classes::most_lines <= lines <= most_large
  static constexpr std::size_t large_of(std::uint32_t lines) noexcept {
    const auto octave = static_cast<std::uint32_t>(std::bit_width(lines)) - 1;  // 9 … 12
    return line_classes::count + (octave - 9) * 8 + (lines >> (octave - 3)) % 8;
  }

  // -- of the owner, behind the door ---------------------------------------------------------------
  /// The last one that was given back; nullptr: none is kept. Its word says `cached`.
  block_head* pop(std::size_t c) noexcept {
    block_head* const top = tops_[c];
    if (top == nullptr) return nullptr;
    tops_[c] = next(top);
    if (c >= line_classes::count) count_large(-static_cast<std::int64_t>(top->lines));
    counts_[c].store(static_cast<std::uint16_t>(counts_[c].load(std::memory_order_relaxed) - 1),
                     std::memory_order_relaxed);
    return top;
  }
  /// The last one of the kind that was given back, if it is long enough.
  block_head* pop_large(std::uint32_t lines) noexcept {
    const std::size_t c = large_of(lines);
    return tops_[c] != nullptr && tops_[c]->lines >= lines ? pop(c) : nullptr;
  }
  /// False: as many as may be are kept already. @pre the block is of that kind, and its word says `cached`
  bool push(std::size_t c, block_head* block) noexcept {
    const std::uint16_t count = counts_[c].load(std::memory_order_relaxed);
    if (count >= most_[c]) return false;
    next(block) = tops_[c];
    tops_[c] = block;
    if (c >= line_classes::count) count_large(block->lines);
    counts_[c].store(static_cast<std::uint16_t>(count + 1), std::memory_order_relaxed);
    return true;
  }

  /// Lines that it keeps. Any thread; of the moment.
  std::uint64_t kept_lines() const noexcept {
    std::uint64_t sum = large_lines_.load(std::memory_order_relaxed);
    for (std::size_t c = 0; c < line_classes::count; ++c)
      sum += std::uint64_t{counts_[c].load(std::memory_order_relaxed)} * classes.lines[c];
    return sum;
  }

  quiet_door door;

private:
  void count_large(std::int64_t lines) noexcept {
    large_lines_.store(large_lines_.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(lines),
                       std::memory_order_relaxed);
  }
  /// In the payload of a kept block. The word in its head says that it is kept.
  static block_head*& next(block_head* block) noexcept { return *reinterpret_cast<block_head**>(block + 1); }

  std::array<block_head*, kinds> tops_{};
  std::array<std::atomic<std::uint16_t>, kinds> counts_{};
  std::array<std::uint16_t, kinds> most_{};
  std::atomic<std::uint64_t> large_lines_{0};
};

}  // namespace troupe::detail
