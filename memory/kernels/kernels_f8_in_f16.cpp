// SPDX-License-Identifier: Apache-2.0
// Sums of two fp8 in f16 arithmetic, where the processor has it (AVX512-FP16): half of the work of going through f32.
//
// Codes become f16 as in kernels_bytes.hpp (e4m3 as 2^-8 of itself). Why one rounding to f16 and one to fp8 are the rounding of the exact sum,
// and so of f32's: see there, sums of two. A product with a power of two is exact in f16, down to 2^-7, unless it is too large for an e5m2, too.
#include "memory/kernels/kernel_loops.hpp"

// clang 14 declares the types only where all of a file is compiled for these processors.
#if defined(__x86_64__) && (defined(__AVX512FP16__) || (!defined(__clang__) && __GNUC__ >= 12))
#define TROUPE_F16_ARITHMETIC 1
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <cmath>

namespace troupe::detail {

#if defined(TROUPE_F16_ARITHMETIC)

namespace {

#define TROUPE_IN_F16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512fp16")))

constexpr std::size_t vector_bytes = 64;

TROUPE_IN_F16 inline __m512i words(int word) { return _mm512_set1_epi16(static_cast<short>(word)); }

/// f16 codes of odd (upper) and even bytes.
template <class T>
TROUPE_IN_F16 inline __m512i odd_of(__m512i both) {
  if constexpr (std::is_same_v<T, f8e5m2>) return _mm512_and_si512(both, words(0xff00));
  else return _mm512_and_si512(_mm512_srai_epi16(both, 1), words(0xbf80));
}
template <class T>
TROUPE_IN_F16 inline __m512i even_of(__m512i both) {
  const __m512i moved = _mm512_slli_epi16(both, 8);
  if constexpr (std::is_same_v<T, f8e5m2>) return moved;
  else return odd_of<T>(moved);
}

/// Where the factor of a sum is applied. A sum of two e5m2 may be too large for an f16 when its half is not; and twice an e5m2 may be when
/// twice the sum is not.
enum class scaled : std::uint8_t { no, before, after };

template <scaled Where>
TROUPE_IN_F16 inline __m512i added(__m512i left, __m512i right, __m512i factor) {
  const __m512h a = _mm512_castsi512_ph(left), b = _mm512_castsi512_ph(right), by = _mm512_castsi512_ph(factor);
  if constexpr (Where == scaled::before) return _mm512_castph_si512(_mm512_fmadd_ph(a, by, _mm512_mul_ph(b, by)));
  else if constexpr (Where == scaled::after) return _mm512_castph_si512(_mm512_mul_ph(_mm512_add_ph(a, b), by));
  else return _mm512_castph_si512(_mm512_add_ph(a, b));
}

/// The code in the upper byte, to nearest even: of an e5m2 with its sign (a NaN stays one), of an e4m3 without, and not saturated yet.
/// @tparam Fine there may be less than the smallest e4m3 in it
template <class T, bool Fine>
TROUPE_IN_F16 inline __m512i rounded(__m512i half) {
  if constexpr (std::is_same_v<T, f8e4m3> && !Fine) {
    // G. W. Veltkamp's split into 4 bits and 7: three instructions instead of four. The tests compare all sums there are.
    const __m512h value = _mm512_castsi512_ph(half);
    const __m512h times = _mm512_mul_ph(value, _mm512_castsi512_ph(words(0x5808)));  // 2^7 + 1
    const __m512i upper = _mm512_castph_si512(_mm512_sub_ph(times, _mm512_sub_ph(times, value)));
    return _mm512_add_epi16(upper, upper);
  } else {
    if constexpr (std::is_same_v<T, f8e4m3>) half = _mm512_add_epi16(half, half);
    const __m512i last = _mm512_and_si512(_mm512_srli_epi16(half, 8), words(1));
    return _mm512_add_epi16(_mm512_add_epi16(half, words(0x7f)), last);
  }
}

/// Upper bytes of `odd` and, moved down, of `even`.
TROUPE_IN_F16 inline __m512i upper_bytes(__m512i even, __m512i odd) {
  return _mm512_ternarylogic_epi32(words(0x00ff), _mm512_srli_epi16(even, 8), odd, 0xca);
}

template <class T, bool Fine>
TROUPE_IN_F16 inline __m512i joined(__m512i even, __m512i odd) {
  const __m512i codes = upper_bytes(rounded<T, Fine>(even), rounded<T, Fine>(odd));
  if constexpr (std::is_same_v<T, f8e5m2>) return codes;
  const __m512i saturated = _mm512_min_epu8(codes, words(0x7e7e));
  return _mm512_ternarylogic_epi32(words(0x7f7f), saturated, upper_bytes(even, odd), 0xca);
}

/// The largest magnitude of each byte, to find an e4m3's NaN, which its f16 would not be.
template <class T>
TROUPE_IN_F16 inline __m512i larger(__m512i largest, __m512i both) {
  if constexpr (std::is_same_v<T, f8e5m2>) return largest;
  return _mm512_max_epu8(largest, _mm512_and_si512(both, words(0x7f7f)));
}
template <class T>
TROUPE_IN_F16 inline bool has_special(__m512i largest) {
  if constexpr (std::is_same_v<T, f8e5m2>) return false;
  return _mm512_cmpeq_epi8_mask(largest, words(0x7f7f)) != 0;
}

/// Elements that vectors do not serve: the last ones, and where there are NaNs.
template <class T>
void add_apart(const std::byte* left, const std::byte* right, std::byte* out, std::size_t count, float factor) {
  for (std::size_t i = 0; i < count; ++i)
    store<T>(out, i,
             static_cast<T>((static_cast<float>(load<T>(left, i)) + static_cast<float>(load<T>(right, i))) * factor));
}

template <class T, scaled Where, bool Fine>
TROUPE_IN_F16 inline __m512i sum_of(__m512i x, __m512i y, __m512i factor) {
  return joined<T, Fine>(added<Where>(even_of<T>(x), even_of<T>(y), factor),
                         added<Where>(odd_of<T>(x), odd_of<T>(y), factor));
}

template <class T, scaled Where, bool Fine>
TROUPE_IN_F16 void add_vectors(const std::byte* a, const std::byte* b, std::byte* to, std::size_t count, float by) {
  const __m512i factor = words(f16(by).bits);
  // Two vectors at a time share the question for NaNs. Nothing is written before all of them are read: the output may be an input.
  constexpr std::size_t step = 2 * vector_bytes;
  for (; count >= step; count -= step, a += step, b += step, to += step) {
    const __m512i x0 = _mm512_loadu_si512(a), x1 = _mm512_loadu_si512(a + vector_bytes);
    const __m512i y0 = _mm512_loadu_si512(b), y1 = _mm512_loadu_si512(b + vector_bytes);
    const __m512i largest = larger<T>(larger<T>(larger<T>(larger<T>(_mm512_setzero_si512(), x0), y0), x1), y1);
    if (__builtin_expect(has_special<T>(largest), 0)) {
      add_apart<T>(a, b, to, step, by);
      continue;
    }
    const __m512i first = sum_of<T, Where, Fine>(x0, y0, factor), second = sum_of<T, Where, Fine>(x1, y1, factor);
    _mm512_storeu_si512(to, first);
    _mm512_storeu_si512(to + vector_bytes, second);
  }
  if (count >= vector_bytes) {
    const __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b);
    if (!has_special<T>(larger<T>(larger<T>(_mm512_setzero_si512(), x), y))) {
      _mm512_storeu_si512(to, sum_of<T, Where, Fine>(x, y, factor));
      count -= vector_bytes, a += vector_bytes, b += vector_bytes, to += vector_bytes;
    }
  }
  add_apart<T>(a, b, to, count, by);
}

template <class T>
void add_in_f16(const void* left, const void* right, void* out, std::size_t count, const adjustment& how) {
  const auto by = static_cast<float>(common_factor(how));
  const auto* a = static_cast<const std::byte*>(left);
  const auto* b = static_cast<const std::byte*>(right);
  auto* to = static_cast<std::byte*>(out);
  constexpr scaled down = std::is_same_v<T, f8e5m2> ? scaled::before : scaled::after;
  if (by == 1) add_vectors<T, scaled::no, false>(a, b, to, count, by);
  else if (by > 1) add_vectors<T, scaled::after, false>(a, b, to, count, by);
  else add_vectors<T, down, true>(a, b, to, count, by);
}

/// The compiler's own question (__builtin_cpu_supports) does not know the name everywhere. What AVX-512 needs of the system is known
/// from the other sets that kernels are chosen by.
bool has_f16_arithmetic() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned avx512_fp16 = 1u << 23;
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & avx512_fp16) != 0;
}

}  // namespace

sum_of_two find_sum_in_f16(datatype type, double factor) {
  static const bool has = has_f16_arithmetic();
  int exponent = 0;
  if (!has || factor < 1.0 / 128 || factor > 32 || std::frexp(factor, &exponent) != 0.5) return nullptr;
  if (type == datatype::f8e4m3) return &add_in_f16<f8e4m3>;
  return type == datatype::f8e5m2 ? &add_in_f16<f8e5m2> : nullptr;
}

#else

sum_of_two find_sum_in_f16(datatype, double) { return nullptr; }

#endif

}  // namespace troupe::detail
