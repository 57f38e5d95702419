// SPDX-License-Identifier: Apache-2.0
#pragma once
// NCCL's LL-A2A (spec 4): elements that every rank stores straight into its peers' buffers, and whose arrival is seen in the data itself.
//
// A *slot* is 16 bytes, [data_lo, epoch, data_hi, epoch], of 8 bytes of data. Either half carries the epoch, so a reader that finds it in both has
// the whole, whatever became of other slots. A rank's buffer has a part for each *block* (a block is used by one session at a time):
//   [epoch word: 16 B][region 0: slots()][region 1: slots()]
// Even epochs lie in region 0 and odd ones in region 1, so that a fast rank may begin the next epoch while a slow one still reads the last. Unit u of
// element e lies at slot e + u · elements of its region.
//
// Epochs are 32 bits: 0 is never used, 1 is cleared, the first is the stored word + 2, after 2³² − 1 comes 2. What a region holds after the last two epochs
// before that is cleared, so what stands in a slot is never later than the epoch that is waited for, unless a peer has overtaken it.
//
// In C++ a half is an atomic word, written with release and read with acquire: a rank that has received an element sees what its sender did before. On x86-64
// both are plain moves, and both halves are written by one 16-byte store (slot_formats.hpp says why that is safe).

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "protocols/program/slot_formats.hpp"

namespace troupe {

/// How large a buffer is, and where what lies in it. A value.
struct ll_shape {
  std::size_t elements = 0;
  std::size_t element_bytes = 0;  ///< of the largest
  std::size_t blocks = 1;

  static constexpr std::size_t slot_bytes = 16, unit_bytes = 8, slot_words = 2;
  static constexpr std::size_t units_of(std::size_t bytes) { return (bytes + unit_bytes - 1) / unit_bytes; }
  /// Of a region.
  constexpr std::size_t slots() const { return elements * units_of(element_bytes); }
  constexpr std::size_t bytes_of_block() const { return (1 + 2 * slots()) * slot_bytes; }
  constexpr std::size_t bytes() const { return blocks * bytes_of_block(); }
  /// In words from the buffer's begin.
  constexpr std::size_t block_at(std::size_t block) const { return block * (1 + 2 * slots()) * slot_words; }
  constexpr std::size_t region_at(std::size_t block, std::uint32_t epoch) const {
    return block_at(block) + (1 + (epoch & 1) * slots()) * slot_words;
  }
};
static_assert(ll_shape{32, 16, 1}.bytes() == 2064);

namespace ll {

using slots::word;

inline constexpr std::uint32_t first_epoch = 2;
inline constexpr std::uint32_t last_epoch = 0xffffffff;
constexpr std::uint32_t epoch_after(std::uint32_t epoch) { return epoch == last_epoch ? first_epoch : epoch + 1; }
/// When this one has ended, its region is cleared.
constexpr bool clears_after(std::uint32_t epoch) { return epoch >= last_epoch - 1; }

inline void store(word* slot, std::uint64_t data, std::uint32_t epoch) {
#if defined(TROUPE_SLOTS_SSE2) && !defined(TROUPE_SLOTS_UNDER_TSAN)
  std::atomic_signal_fence(std::memory_order_release);
  const __m128i two = _mm_cvtsi64_si128(static_cast<long long>(data));
  slots::store_slot(slot, _mm_unpacklo_epi32(two, _mm_set1_epi32(static_cast<int>(epoch))));
#else
  slots::store(slot, slots::join(epoch, static_cast<std::uint32_t>(data)), std::memory_order_release);
  slots::store(slot + 1, slots::join(epoch, static_cast<std::uint32_t>(data >> 32)), std::memory_order_release);
#endif
}

/// False: it has not come, or one half of it; then `data` is anything.
inline bool load(const word* slot, std::uint32_t epoch, std::uint64_t& data) {
  const word low = slots::load(slot, std::memory_order_acquire),
             high = slots::load(slot + 1, std::memory_order_acquire);
  data = (high << 32) | static_cast<std::uint32_t>(low);
  return ((low ^ slots::join(epoch, 0)) >> 32 | (high ^ slots::join(epoch, 0)) >> 32) == 0;
}

/// The value at an element's first slot, if all its units have come. @param pitch from one unit to the next, in slots
template <class T>
bool load_value(const word* first, std::size_t pitch, std::uint32_t epoch, T& into) {
  constexpr std::size_t units = ll_shape::units_of(sizeof(T));
  std::uint64_t data[units];
  bool all = true;
  for (std::size_t u = 0; u < units; ++u) all &= load(first + u * pitch * ll_shape::slot_words, epoch, data[u]);
  std::memcpy(&into, data, sizeof(T));
  return all;
}

}  // namespace ll
}  // namespace troupe
