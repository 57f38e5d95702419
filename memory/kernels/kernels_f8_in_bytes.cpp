// SPDX-License-Identifier: Apache-2.0
// Sums of two fp8 without another type: 64 in a vector, by look-ups in tables of bytes (AVX512-VBMI, GFNI). It takes less than half of the time that
// sums through f32 do.
//
// A code without its sign is P times an exponent and a mantissa below P (e4m3: 8, e5m2: 4); codes of exponent 0 are the subnormal numbers. A
// *position* is the same on a scale that goes on below: a subnormal number has a smaller exponent and a mantissa like any other. So one rule serves all
// numbers. Of two positions:
// - `aligned` is what the smaller number is, in eighths of the larger one's last place; its last bit is also set if something was cut off. It depends
//   only on how far the smaller position is from the last one of the larger one's exponent.
// - The larger number is P and its mantissa in that unit, so the sum or the difference is a byte. `rounded` is the position of that, rounded to nearest
//   even, less that of the larger one's exponent. Eighths are enough: if something was cut off, the smaller number is less than one last place,
//   so that the result's last place is half of it or more, and what lies in the middle between two results is a multiple of a quarter.
// - `small` has the codes of positions that are subnormal. Their sums are exact, so nothing is rounded twice. Where they are divided by 2 or 4 they
//   are rounded here: a sum below 2 P of the smallest numbers was exact; of those up to 4 P, the odd ones were in the middle and became multiples of 4,
//   the quarter of which is nearest, too. Division by 8 would give other bits.
// The results are the bits that sums through f32 have. Where a number is not finite, its neighbours and it are left to others.
#include "memory/kernels/kernel_loops.hpp"
#include "memory/kernels/kernels_intrinsics.hpp"

#if defined(__x86_64__)
#define TROUPE_SUMS_IN_BYTES 1
#endif

#include <array>
#include <cmath>

namespace troupe::detail {

#if defined(TROUPE_SUMS_IN_BYTES)

namespace {

#define TROUPE_IN_BYTES __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,gfni")))
#define TROUPE_INLINE_IN_BYTES TROUPE_IN_BYTES __attribute__((always_inline)) inline

constexpr std::size_t vector_bytes = 64;
constexpr int least_exponent = -2, most_exponent = 5;  // of the factor

template <class T>
struct layout {
  static constexpr int mantissa_bits = 23 - T::format::shift;
  static constexpr int codes = 1 << mantissa_bits;  ///< of each exponent; P above
  static constexpr int special = T::format::special;
  static constexpr bool has_infinity = special != T::format::magnitude_mask;
  /// The largest result, which sums beyond it are, and how far positions of results are above their codes: bytes with a sign saturate there.
  static constexpr int largest = has_infinity ? special : special - 1;
  static constexpr int bias = 127 - largest;
  static constexpr int units = 8;  ///< of the last place
};

constexpr int special_position = 127;

struct alignas(vector_bytes) sum_tables {
  std::uint8_t positions[128];  ///< of codes without their signs
  std::uint8_t aligned[128];    ///< by distance
  std::uint8_t rounded[256];    ///< by units
  std::uint8_t small[64];       ///< by the lower bits of the result's position
};

constexpr int floor_log2(int value) {
  int log = 0;
  while (value >> (log + 1) != 0) ++log;
  return log;
}
constexpr int floor_divide(int value, int by) { return (value - (value % by + by) % by) / by; }

/// value / 2^shift, to nearest even.
constexpr int to_nearest(int value, int shift) {
  if (shift <= 0) return value << -shift;
  const int quotient = value >> shift, rest = value - (quotient << shift), half = 1 << (shift - 1);
  return quotient + (rest > half || (rest == half && quotient % 2 != 0) ? 1 : 0);
}

/// Position = codes x exponent + mantissa.
template <class T>
constexpr int exponent_of(int position) {
  return floor_divide(position, layout<T>::codes);
}
template <class T>
constexpr int significand_of(int position) {
  return layout<T>::codes + position - exponent_of<T>(position) * layout<T>::codes;
}

/// @param by exponent of the factor
template <class T>
constexpr sum_tables make_tables(int by) {
  using of = layout<T>;
  sum_tables made{};
  // Zero is too far below all others to change them. Two zeros are twice a zero, at a position that `small` has no number for.
  const int two_zeros = by <= 0 ? -108 : -44;
  const int zero = two_zeros - of::bias - of::codes * (1 + by);
  for (int code = 0; code < 128; ++code) {
    int position = code;
    if (code >= of::special) position = special_position;
    else if (code == 0) position = zero;
    else if (code < of::codes) {
      const int lost = of::mantissa_bits - floor_log2(code);
      position = (code << lost) - lost * of::codes;
    }
    made.positions[code] = static_cast<std::uint8_t>(position);
  }
  for (int distance = 0; distance < 128; ++distance) {
    const int position = of::codes - 1 - distance;
    const int value = significand_of<T>(position) * of::units, shift = -exponent_of<T>(position);
    const bool far = shift > 8;
    const bool cut = far || (value & ((1 << shift) - 1)) != 0;
    made.aligned[distance] = static_cast<std::uint8_t>((far ? 0 : value >> shift) | (cut ? 1 : 0));
  }
  // No difference: even, and small for every larger number, where no result is. (Where results are divided, they are asked for.)
  made.rounded[0] = static_cast<std::uint8_t>(-127);
  for (int value = 1; value < 256; ++value) {
    const int exponent = floor_log2(value) - floor_log2(of::codes * of::units);
    const int significand = to_nearest(value, exponent + floor_log2(of::units));
    const int distance = (exponent + by) * of::codes + significand - of::codes;
    made.rounded[value] = static_cast<std::uint8_t>(distance + of::bias - (of::codes - 1));
  }
  const int end = of::codes + of::bias;
  for (int at = end - 63; at < end; ++at) {
    const int exponent = exponent_of<T>(at - of::bias) - 1, significand = significand_of<T>(at - of::bias);
    const bool whole = exponent > -8 && significand % (1 << -exponent) == 0;
    if (whole || (by < 0 && exponent > -8))
      made.small[at & 63] = static_cast<std::uint8_t>(to_nearest(significand, -exponent));
  }
  return made;
}

template <class T>
constexpr auto all_tables() {
  std::array<sum_tables, most_exponent - least_exponent + 1> all{};
  for (int by = least_exponent; by <= most_exponent; ++by)
    all[static_cast<std::size_t>(by - least_exponent)] = make_tables<T>(by);
  return all;
}
template <class T>
constexpr auto tables = all_tables<T>();

TROUPE_INLINE_IN_BYTES __m512i bytes(int byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
TROUPE_INLINE_IN_BYTES __m512i find(const std::uint8_t* table, __m512i index) {
  return _mm512_permutex2var_epi8(_mm512_load_si512(table), index, _mm512_load_si512(table + vector_bytes));
}

/// The significand of positions, in units.
template <class T>
TROUPE_INLINE_IN_BYTES __m512i significands(__m512i positions) {
  // A matrix of bits that moves the mantissa up by 3; the last byte makes bit 0.
  constexpr long long mantissa = (0x01ll << 32) | (0x02ll << 24) | (layout<T>::mantissa_bits == 3 ? 0x04ll << 16 : 0);
  static_assert(layout<T>::units == 8);
  return _mm512_gf2p8affine_epi64_epi8(positions, _mm512_set1_epi64(mantissa), layout<T>::codes * layout<T>::units);
}

/// So many vectors of both inputs. Each stage is done to all of them before the next one: a sum is a long chain of instructions, and with one vector
/// after the other the processor would see too few of them at a time.
template <class T, std::size_t Vectors>
struct operands {
  using of = layout<T>;
  __m512i a[Vectors], b[Vectors], larger[Vectors], smaller[Vectors];

  TROUPE_INLINE_IN_BYTES void find_positions(const sum_tables& in) {
    TROUPE_UNROLLED
    for (std::size_t i = 0; i < Vectors; ++i) {
      const __m512i x = find(in.positions, a[i]), y = find(in.positions, b[i]);
      larger[i] = _mm512_max_epi8(x, y);
      smaller[i] = _mm512_min_epi8(x, y);
    }
  }
  TROUPE_INLINE_IN_BYTES bool has_special() const {
    __m512i largest = larger[0];
    TROUPE_UNROLLED
    for (std::size_t i = 1; i < Vectors; ++i) largest = _mm512_max_epi8(largest, larger[i]);
    return _mm512_cmpeq_epi8_mask(largest, bytes(special_position)) != 0;
  }

  /// The sums' codes, in `a`. @tparam Down they are divided
  template <bool Down>
  TROUPE_INLINE_IN_BYTES void add(const sum_tables& in) {
    __m512i last[Vectors], sign[Vectors], sum[Vectors], position[Vectors];
    TROUPE_UNROLLED
    for (std::size_t i = 0; i < Vectors; ++i) {
      last[i] = _mm512_or_si512(larger[i], bytes(of::codes - 1));
      const __m512i other = find(in.aligned, _mm512_subs_epi8(last[i], smaller[i]));
      const __m512i significand = significands<T>(larger[i]);
      const __mmask64 apart = _mm512_movepi8_mask(_mm512_xor_si512(a[i], b[i]));
      sum[i] = _mm512_mask_sub_epi8(_mm512_add_epi8(significand, other), apart, significand, other);
      // Of two signs, the negative number is the larger byte. It is more than 0x80 above the other one if its magnitude is larger, so that the
      // difference has no upper bit. Equal magnitudes give +0.
      const __m512i between = _mm512_sub_epi8(_mm512_min_epu8(a[i], b[i]), _mm512_max_epu8(a[i], b[i]));
      sign[i] = _mm512_ternarylogic_epi32(a[i], b[i], between, 0xd4);  // one sign: it, else ~between
    }
    TROUPE_UNROLLED
    for (std::size_t i = 0; i < Vectors; ++i) {
      __m512i distance = find(in.rounded, sum[i]);
      if constexpr (2 * (2 * of::codes - 1) * of::units > 127)
        distance = _mm512_mask_mov_epi8(distance, _mm512_movepi8_mask(sum[i]), find(in.rounded + 128, sum[i]));
      position[i] = _mm512_adds_epi8(last[i], distance);
    }
    TROUPE_UNROLLED
    for (std::size_t i = 0; i < Vectors; ++i) {
      const __mmask64 small = _mm512_cmplt_epi8_mask(position[i], bytes(of::codes + of::bias));
      __m512i code = _mm512_mask_permutexvar_epi8(_mm512_sub_epi8(position[i], bytes(of::bias)), small, position[i],
                                                  _mm512_load_si512(in.small));
      if constexpr (Down) code = _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(sum[i], sum[i]), code);
      a[i] = _mm512_ternarylogic_epi32(bytes(0x80), sign[i], code, 0xca);
    }
  }
};

/// Elements whose sums others make. Inlined it takes registers from the loop: a tenth of its time.
template <class T>
[[gnu::noinline, gnu::cold]] void add_otherwise(const std::byte* a, const std::byte* b, std::byte* to,
                                                std::size_t count, const adjustment& how) {
  const void* const in[] = {a, b};
  fold_in_f32(layout<T>::has_infinity ? datatype::f8e5m2 : datatype::f8e4m3, {in, 2}, 0, to, count, how);
}

/// What is left to others at a time: where one number is not finite, its neighbours may not be, either.
constexpr std::size_t apart_bytes = 4096;

template <class T, bool Down>
TROUPE_IN_BYTES void add_vectors(const std::byte* a, const std::byte* b, std::byte* to, std::size_t count,
                                 const adjustment& how) {
  const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(common_factor(how)) >> 52) - 1023;
  const sum_tables& in = tables<T>[static_cast<std::size_t>(exponent - least_exponent)];
  constexpr std::size_t vectors = 4, block_bytes = vectors * vector_bytes;
  // A store that crosses a line costs twice. Nothing is written before all of a step is read: the output may be an input.
  const std::size_t ahead = -reinterpret_cast<std::uintptr_t>(to) % vector_bytes;
  std::size_t step = count < 2 * block_bytes ? 0 : ahead;
  for (; count > 0; count -= step, a += step, b += step, to += step, step = 0) {
    if (step == 0 && count >= block_bytes) {
      operands<T, vectors> next;
      TROUPE_UNROLLED
      for (std::size_t i = 0; i < vectors; ++i) {
        next.a[i] = _mm512_loadu_si512(a + i * vector_bytes);
        next.b[i] = _mm512_loadu_si512(b + i * vector_bytes);
      }
      next.find_positions(in);
      if (__builtin_expect(next.has_special(), 0)) {
        step = std::min(count, apart_bytes);
        add_otherwise<T>(a, b, to, step, how);
        continue;
      }
      next.template add<Down>(in);
      TROUPE_UNROLLED
      for (std::size_t i = 0; i < vectors; ++i) _mm512_storeu_si512(to + i * vector_bytes, next.a[i]);
      step = block_bytes;
    } else {
      if (step == 0) step = std::min(count, vector_bytes);
      const __mmask64 some = ~__mmask64{0} >> (vector_bytes - step);
      operands<T, 1> next;
      next.a[0] = _mm512_maskz_loadu_epi8(some, a);
      next.b[0] = _mm512_maskz_loadu_epi8(some, b);
      next.find_positions(in);
      if (__builtin_expect(next.has_special(), 0)) {
        add_otherwise<T>(a, b, to, step, how);
        continue;
      }
      next.template add<Down>(in);
      _mm512_mask_storeu_epi8(to, some, next.a[0]);
    }
  }
}

template <class T>
void add_in_bytes(const void* left, const void* right, void* out, std::size_t count, const adjustment& how) {
  const bool down = common_factor(how) < 1;
  (down ? &add_vectors<T, true> : &add_vectors<T, false>)(static_cast<const std::byte*>(left),
                                                          static_cast<const std::byte*>(right),
                                                          static_cast<std::byte*>(out), count, how);
}

/// What AVX-512 needs of the system is known from avx512vbmi.
bool has_look_ups() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vbmi") && has_gfni();
}

}  // namespace

sum_of_two find_sum_in_bytes(datatype type, double factor) {
  static const bool has = has_look_ups();
  int exponent = 0;
  if (!has || std::frexp(factor, &exponent) != 0.5) return nullptr;
  if (--exponent < least_exponent || exponent > most_exponent) return nullptr;
  if (type == datatype::f8e4m3) return &add_in_bytes<f8e4m3>;
  return type == datatype::f8e5m2 ? &add_in_bytes<f8e5m2> : nullptr;
}

#else

sum_of_two find_sum_in_bytes(datatype, double) { return nullptr; }

#endif

}  // namespace troupe::detail
