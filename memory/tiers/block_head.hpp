// SPDX-License-Identifier: Apache-2.0
#pragma once
// A tier's memory holds, besides its users' bytes: a head of 16 bytes before every block, and a mark of 8 bytes behind what was asked for.
//
//   … │ head 16 │ payload, from a cache line on │ mark 8 │ slack … │ head 16 │ payload …
//       └───────────── a block: whole lines of 64 bytes ──────────┘
//
// The word of a head says what state the block is in, and a check of that, of the block's place and size, and of a number that only
// this heap knows. So a pointer that the heap never gave out, or that was given back, is recognised by reading one word. A block that is
// free carries its links in its own payload.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace troupe::detail {

inline constexpr std::size_t line_bytes = 64;
inline constexpr std::uint32_t no_line = ~std::uint32_t{0};

enum class block_state : std::uint8_t {
  live = 1,    ///< a user has it
  cached = 2,  ///< given back, and kept by a thread for its next request
  free = 3,    ///< in a free list
};

struct block_head {
  std::uint32_t lines;   ///< of the block; written under the lock, never while a user or a cache has the block
  std::uint32_t before;  ///< lines of the free block that ends here, 0 if there is none; under the lock
  /// state 8 bits, bytes of the block that were not asked for 24, check 32. Written by the owner of the block; the lock's holder may look at it.
  std::atomic<std::uint64_t> word;
};

/// Behind the head of a free block: its neighbours in the list, by their first lines.
struct free_links {
  std::uint32_t next, previous;
};

struct free_block {
  block_head head;
  free_links links;
};
static_assert(sizeof(block_head) == 16 && sizeof(free_block) <= line_bytes);

inline constexpr std::size_t mark_bytes = 8;
inline constexpr std::size_t extra_bytes = sizeof(block_head) + mark_bytes;
inline constexpr std::size_t most_slack = (std::size_t{1} << 24) - 1;

/// Makes and judges the words of one heap.
class head_words {
public:
  explicit head_words(std::uint64_t secret) : secret_{secret | 1} {}

  std::uint64_t make(const block_head* at, std::uint32_t lines, std::size_t slack, block_state state) const noexcept {
    const std::uint64_t low = std::uint64_t{slack} << 8 | static_cast<std::uint64_t>(state);
    return check(at, lines, low) << 32 | low;
  }
  bool is(const block_head* at, std::uint32_t lines, std::uint64_t word, block_state state) const noexcept {
    return static_cast<block_state>(word & 0xff) == state && check(at, lines, word & 0xffffffff) == word >> 32;
  }
  static std::size_t slack(std::uint64_t word) noexcept { return word >> 8 & most_slack; }

  std::uint64_t mark(const block_head* at) const noexcept {
    return (reinterpret_cast<std::uintptr_t>(at) ^ secret_) * 0x9e3779b97f4a7c15u;
  }

private:
  std::uint64_t check(const block_head* at, std::uint32_t lines, std::uint64_t low) const noexcept {
    std::uint64_t x = (reinterpret_cast<std::uintptr_t>(at) + (low << 40 | std::uint64_t{lines} << 8)) * secret_;
    x ^= x >> 29;
    return (x * 0xbf58476d1ce4e5b9u) >> 32;
  }

  const std::uint64_t secret_;
};

}  // namespace troupe::detail
