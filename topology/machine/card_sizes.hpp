// SPDX-License-Identifier: Apache-2.0
#pragma once
// How much memory the cards of a modelled machine have for operations (docs/tiers.md). L1 is not among it: it is where
// callers' buffers are.

#include <cstddef>

namespace troupe {

/// In bytes, in whole pages. They are address space: the system gives memory to what is touched.
struct card_sizes {
  static constexpr std::size_t page = 8192;
  static constexpr std::size_t most_l0 = std::size_t{1} << 32;
  static constexpr std::size_t most_l2 = std::size_t{1} << 36;

  /// Of a core group. Far more than one has (spec 1: KBs a core), so that what runs does not depend on a size that
  /// nobody has said.
  std::size_t l0 = std::size_t{1} << 30;
  /// Of a card. Spec 1: up to 60 GB; here the power of two above.
  std::size_t l2 = most_l2;

  /// The most that a block of so many bytes takes of its tier, with its head and what its size is rounded up to
  /// (memory/tiers/tier_heap.hpp).
  static constexpr std::size_t taken_by(std::size_t bytes) noexcept { return bytes == 0 ? 0 : bytes + bytes / 8 + 64; }
  /// The largest block that a tier, or a part of one, of so many bytes has room for.
  static constexpr std::size_t room_in(std::size_t size) noexcept { return size < 64 ? 0 : (size - 64) / 9 * 8; }

  friend bool operator==(const card_sizes&, const card_sizes&) = default;
};

}  // namespace troupe
