// SPDX-License-Identifier: Apache-2.0
#pragma once
// What little a rank has to give, copied to where all ranks of a direct board can read it when it comes. If every rank's input is here,
// nobody works on another's buffers: who has seen all ranks come copies what is for him and leaves at once, instead of waiting until all
// have done so (direct_board.hpp says how ranks meet).
//
// For operations that only move blocks whose sizes the ranks know in part. That the two ends of every block count it alike is seen by all
// or none: each rank adds a hash of every block that it expects, and subtracts one of every block that it has; the sum over all ranks, its
// *balance*, is 0 if they agree (else only by a chance of 2⁻⁶⁴). If not, they work on each other's buffers as if nothing were here, and find
// out who is at odds.
//
// Each rank has two places. It writes to one only after all ranks have come to an operation later than the one whose data were there, since
// they have read those before. A place says whose data it holds by the operation's mark, so who looks late still finds them.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "protocols/collective.hpp"

namespace troupe {

class snapshots {
public:
  static constexpr int most_ranks = 16;
  static constexpr std::size_t most_bytes = 448;

  struct alignas(128) place {
    std::atomic<std::uint64_t> mark{0};  ///< stored last
    std::uint64_t balance;
    std::array<std::uint16_t, most_ranks + 1> begins;  ///< bytes before each block of the rank's input, and the end
    std::array<std::byte, most_bytes> data;
  };

  explicit snapshots(int ranks)
      : places_(ranks <= most_ranks ? new place[2 * static_cast<std::size_t>(ranks)] : nullptr) {}

  bool offered() const { return places_ != nullptr; }
  /// @pre offered()
  place& of(rank_t rank, unsigned which) const { return places_[2 * static_cast<std::size_t>(rank) + which]; }
  /// What the rank brought to the operation; null: nothing. @pre offered()
  const place* find(rank_t rank, std::uint64_t mark) const {
    for (unsigned which = 0; which < 2; ++which)
      if (const place& p = of(rank, which); p.mark.load(std::memory_order_acquire) == mark) return &p;
    return nullptr;
  }
  /// A block of `bytes` from one rank to another, in a balance.
  static std::uint64_t weight(rank_t from, rank_t to, std::size_t bytes) {
    std::uint64_t word = (bytes << 16) + (static_cast<std::uint64_t>(from) << 8) + static_cast<std::uint64_t>(to) + 1;
    // The finaliser of splitmix64 (Steele, Lea, Flood 2014).
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
  }

  /// Mark of the last operation that all ranks have come to, each with a snapshot.
  alignas(128) std::atomic<std::uint64_t> complete{0};

private:
  std::unique_ptr<place[]> places_;
};

}  // namespace troupe
