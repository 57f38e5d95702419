// SPDX-License-Identifier: Apache-2.0
#pragma once
// LL and LL128: messages whose arrival is seen in the data itself (spec 5; spec 4, "NCCL LL-A2A").
//
// A message begins on a 128-byte line and its first word is always the same: the epoch's 32-bit *stamp* above 32 bits of the
// message's *tag* (fingerprint of the call, size and format). So a reader in either format that meets the right stamp with another tag
// knows that the sender performs something else, and has read nothing but that word.
//
//   LL      16-byte slots [data 4 B, stamp, data 4 B, stamp]; the first is a header with the tag. Every 8-byte half carries its own
//           stamp, so it is complete when it is there, whatever became of the other half or of other slots. Half of the bytes are
//           stamps.
//   LL128   lines [stamp and tag 8 B, data 120 B]; the stamp is written last. It comes first in memory so that up to 56 bytes
//           touch one 64-byte cache line only. @pre of reading `data`: the stamp has been seen.
//
// Why the stores are safe:
//   C++      LL: every half is one 8-byte relaxed atomic; the header's first is a release store / acquire load, which orders what
//            must happen between operations (slots cleared or free again). LL128: release store of the stamp after plain data,
//            acquire load before plain reads: no data race, nothing more to prove. ThreadSanitizer checks exactly this.
//   x86-64   Aligned 8-byte accesses are atomic and all stores become visible in program order (TSO), so release and acquire are
//            plain moves. LL then writes both halves by one 16-byte SSE2 store: architecture promises no more than that each aligned
//            8-byte half is whole, and no more is needed. The compiler keeps volatile accesses whole and in order.
//   AArch64  Two 8-byte stores for a slot (single-copy atomic when aligned). No vector stores: ST2 is atomic only per element of
//            4 bytes, and would tear a datum from its stamp. LL128: STLR after the data and LDAR before it; where a machine makes that
//            dear, choose LL. Big-endian needs nothing else: a word is built and taken apart by shifts.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SANITIZE_THREAD__)
#define TROUPE_SLOTS_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TROUPE_SLOTS_UNDER_TSAN 1
#endif
#endif
#if defined(__SSE2__)
#define TROUPE_SLOTS_SSE2 1
#include <emmintrin.h>
#endif

namespace troupe {

enum class slot_format : std::uint8_t { ll, ll128 };

namespace slots {

inline constexpr std::size_t line_words = 16;
inline constexpr std::size_t line_bytes = 128;
inline constexpr std::size_t most_lines = 8192;    ///< that a pair may exchange in an epoch
inline constexpr std::size_t ll128_payload = 120;  ///< a multiple of 8 bytes; see why_torn() for larger elements
inline constexpr std::size_t half_payload = 56;    ///< of the first half of a line, the cache line with the stamp
inline constexpr std::size_t ll_payload = 8;       ///< of a slot of two words
inline constexpr std::size_t ll_tile =
    3840;  ///< bytes unpacked at once: half of a small first-level cache, with the operand

using word = std::uint64_t;

/// Called between the halves of a slot and before the stamp of a line, to make what must not matter likely. Tests only.
using tear_hook = void (*)();

// -- stamps -----------------------------------------------------------------------------------------------------------

/// 0: never written; 1: cleared.
inline constexpr std::uint32_t cleared = 1;
inline constexpr std::uint64_t stamps_per_generation = (std::uint64_t{1} << 32) - 2;

constexpr std::uint64_t generation_of(std::uint64_t sequence) { return sequence / stamps_per_generation; }
constexpr std::uint32_t stamp_of(std::uint64_t sequence) {
  return static_cast<std::uint32_t>(sequence % stamps_per_generation + 2);
}

constexpr word join(std::uint32_t stamp, std::uint32_t data) { return word{stamp} << 32 | data; }
constexpr std::uint32_t stamp_in(word w) { return static_cast<std::uint32_t>(w >> 32); }

inline word load(const word* at, std::memory_order order) {
  return std::atomic_ref<word>(*const_cast<word*>(at)).load(order);
}
inline void store(word* at, word value, std::memory_order order) { std::atomic_ref<word>(*at).store(value, order); }

/// Makes whatever was there unlike any stamp. Ordered by the release of the next header.
inline void clear(word* first, std::size_t words) {
  for (std::size_t i = 0; i < words; ++i) store(first + i, join(cleared, 0), std::memory_order_relaxed);
}

/// How many lines a message takes; a token (no bytes) takes one.
constexpr std::size_t lines_of(slot_format format, std::size_t bytes) {
  if (format == slot_format::ll128) return bytes == 0 ? 1 : (bytes + ll128_payload - 1) / ll128_payload;
  return (2 + 2 * ((bytes + ll_payload - 1) / ll_payload) + line_words - 1) / line_words;
}

// -- LL128 ------------------------------------------------------------------------------------------------------------

/// Lines ahead of the one that is written, which the writer asks for: they lie in their last reader's cache, and without that each store would wait for a
/// transfer of its own.
inline constexpr std::size_t lines_asked_for = 16;

/// Asks for the half of a line that is going to be written, without waiting for it.
inline void ask_for_half(const word* at) {
#if defined(__x86_64__)
  __asm__(
      "prefetchw %0"
      :
      : "m"(*at));  // without -mprfchw, the compiler's own would ask for reading; where it is unknown it does nothing
#elif defined(__GNUC__)
  __builtin_prefetch(at, 1);
#else
  static_cast<void>(at);
#endif
}
/// Asks for a half that is going to be read.
inline void ask_to_read(const word* at) {
#if defined(__GNUC__)
  __builtin_prefetch(at, 0);
#else
  static_cast<void>(at);
#endif
}
/// The same of a whole line.
inline void ask_for(const word* line) {
  ask_for_half(line);
  ask_for_half(line + line_words / 2);
}

/// Writes one line. @pre bytes <= 120
inline void write_line(word* line, const std::byte* data, std::size_t bytes, word stamp_and_tag, tear_hook tear) {
  if (bytes == sizeof(word)) {
    std::memcpy(line + 1, data, sizeof(word));
  } else if (bytes > half_payload) {
    // The half with the stamp comes last: a reader that waits takes it back as soon as it is being written, and would take it twice.
    if (bytes == ll128_payload) std::memcpy(line + line_words / 2, data + half_payload, ll128_payload - half_payload);
    else std::memcpy(line + line_words / 2, data + half_payload, bytes - half_payload);
    std::memcpy(line + 1, data, half_payload);
  } else if (bytes > 0) {
    std::memcpy(line + 1, data, bytes);
  }
  if (tear != nullptr) [[unlikely]]
    tear();
  store(line, stamp_and_tag, std::memory_order_release);
}

inline const std::byte* data_of(const word* line) { return reinterpret_cast<const std::byte*>(line + 1); }

// -- LL ---------------------------------------------------------------------------------------------------------------

/// The header slot: 32 bits of the tag in either half.
inline void write_header(word* slot, std::uint32_t stamp, std::uint32_t tag, tear_hook tear) {
  if (tear != nullptr) [[unlikely]]
    tear();
  store(slot, join(stamp, tag), std::memory_order_release);
}

#if defined(TROUPE_SLOTS_SSE2)
/// A slot at once. For ThreadSanitizer it is the two halves that the architecture promises, so that it checks what is packed where, too.
inline void store_slot(word* slot, __m128i value) {
#if defined(TROUPE_SLOTS_UNDER_TSAN)
  store(slot, static_cast<word>(_mm_cvtsi128_si64(value)), std::memory_order_relaxed);
  store(slot + 1, static_cast<word>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(value, value))), std::memory_order_relaxed);
#else
  *reinterpret_cast<volatile __m128i*>(slot) = value;
#endif
}
inline __m128i load_slot(const word* slot) {
#if defined(TROUPE_SLOTS_UNDER_TSAN)
  const word low = load(slot, std::memory_order_relaxed), high = load(slot + 1, std::memory_order_relaxed);
  return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
#else
  return *reinterpret_cast<const volatile __m128i*>(slot);
#endif
}
#endif

/// Writes ⌈bytes / 8⌉ slots, the last one padded with zeros.
inline void write_slots(word* slot, const std::byte* data, std::size_t bytes, std::uint32_t stamp, tear_hook tear) {
  std::size_t at = 0;
#if defined(TROUPE_SLOTS_SSE2)
  if (tear == nullptr) [[likely]] {
    const __m128i stamps = _mm_set1_epi32(static_cast<int>(stamp));
    for (; at + 16 <= bytes; at += 16, slot += 4) {
      const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + at));
      store_slot(slot, _mm_unpacklo_epi32(four, stamps));
      store_slot(slot + 2, _mm_unpackhi_epi32(four, stamps));
    }
    for (; at < bytes; at += ll_payload, slot += 2) {
      std::uint64_t two = 0;
      std::memcpy(&two, data + at, bytes - at < ll_payload ? bytes - at : ll_payload);
      const __m128i low = _mm_cvtsi64_si128(static_cast<long long>(two));
      store_slot(slot, _mm_unpacklo_epi32(low, stamps));
    }
    return;
  }
#endif
  for (; at < bytes; at += ll_payload, slot += 2) {
    std::uint32_t two[2] = {0, 0};
    std::memcpy(two, data + at, bytes - at < ll_payload ? bytes - at : ll_payload);
    store(slot, join(stamp, two[0]), std::memory_order_relaxed);
    if (tear != nullptr) [[unlikely]]
      tear();
    store(slot + 1, join(stamp, two[1]), std::memory_order_relaxed);
  }
}

/// Unpacks from the front what has arrived of `bytes` bytes, whole slots only; returns how many bytes.
/// `out` has room for `bytes` rounded up to 8.
inline std::size_t read_slots(const word* slot, std::byte* out, std::size_t bytes, std::uint32_t stamp) {
  std::size_t at = 0;
#if defined(TROUPE_SLOTS_SSE2)
  const __m128 stamps = _mm_castsi128_ps(_mm_set1_epi32(static_cast<int>(stamp)));
  for (; at + 16 <= bytes; at += 16, slot += 4) {
    const __m128 first = _mm_castsi128_ps(load_slot(slot));
    const __m128 second = _mm_castsi128_ps(load_slot(slot + 2));
    const __m128i seen = _mm_castps_si128(_mm_shuffle_ps(first, second, _MM_SHUFFLE(3, 1, 3, 1)));
    if (_mm_movemask_epi8(_mm_cmpeq_epi32(seen, _mm_castps_si128(stamps))) != 0xffff) break;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + at),
                     _mm_castps_si128(_mm_shuffle_ps(first, second, _MM_SHUFFLE(2, 0, 2, 0))));
  }
#endif
  for (; at < bytes; at += ll_payload, slot += 2) {
    const word low = load(slot, std::memory_order_relaxed), high = load(slot + 1, std::memory_order_relaxed);
    if (stamp_in(low) != stamp || stamp_in(high) != stamp) return at;
    const std::uint32_t two[2] = {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(high)};
    std::memcpy(out + at, two, sizeof two);
  }
  return bytes;
}

}  // namespace slots
}  // namespace troupe
