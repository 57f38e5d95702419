// SPDX-License-Identifier: Apache-2.0
// Sums of two fp8 in f16 arithmetic, where the processor has it (AVX512-FP16): half of the work of going through f32.
//
// Codes become f16 as in kernels_bytes.hpp (e4m3 as 2^-8 of itself). Why one rounding to f16 and one to fp8 are the rounding of the exact sum,
// and so of f32's: see there, sums of two. A product with a power of two is exact in f16, down to 2^-7.
#include "memory/kernels/kernel_loops.hpp"

// clang 14 declares the types only where all of a file is compiled for these processors.
#if defined(__x86_64__) && (defined(__AVX512FP16__) || (!defined(__clang__) && __GNUC__ >= 12))
#define TROUPE_F16_ARITHMETIC 1
#include <cpuid.h>
#include <immintrin.h>
#endif

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

TROUPE_IN_F16 inline __m512i added(__m512i left, __m512i right, __m512i factor) {
  // Each operand is multiplied, since their sum may be too large for an f16.
  const __m512h by = _mm512_castsi512_ph(factor);
  const __m512h other = _mm512_mul_ph(_mm512_castsi512_ph(right), by);
  return _mm512_castph_si512(_mm512_fmadd_ph(_mm512_castsi512_ph(left), by, other));
}

/// To nearest even, without the sign; e4m3 saturates. The code begins at bit 8 (e5m2) or 7 (e4m3).
template <class T>
TROUPE_IN_F16 inline __m512i rounded(__m512i half) {
  constexpr bool e5m2 = std::is_same_v<T, f8e5m2>;
  const __m512i magnitude = _mm512_and_si512(half, words(0x7fff));
  const __m512i last = _mm512_and_si512(_mm512_srli_epi16(half, e5m2 ? 8 : 7), words(1));
  const __m512i carried = _mm512_add_epi16(_mm512_add_epi16(magnitude, words(e5m2 ? 0x7f : 0x3f)), last);
  return _mm512_min_epu16(carried, words(e5m2 ? 0x7fff : 0x3f7f));
}

template <class T>
TROUPE_IN_F16 inline __m512i joined(__m512i even, __m512i odd) {
  constexpr bool e5m2 = std::is_same_v<T, f8e5m2>;
  const __m512i low = _mm512_srli_epi16(rounded<T>(even), e5m2 ? 8 : 7);
  const __m512i high = e5m2 ? rounded<T>(odd) : _mm512_slli_epi16(rounded<T>(odd), 1);
  // Code where the mask has a bit, else sign.
  const __m512i low_byte = _mm512_ternarylogic_epi32(words(0x7f), low, _mm512_srli_epi16(even, 8), 0xca);
  const __m512i high_byte = _mm512_ternarylogic_epi32(words(0x7f00), high, odd, 0xca);
  return _mm512_ternarylogic_epi32(words(0x00ff), low_byte, high_byte, 0xca);
}

/// An e4m3's NaN, which its f16 would not be.
template <class T>
TROUPE_IN_F16 inline bool has_special(__m512i left, __m512i right) {
  if constexpr (std::is_same_v<T, f8e5m2>) return false;
  const __m512i mask = words(0x7f7f);
  const __m512i largest = _mm512_max_epu8(_mm512_and_si512(left, mask), _mm512_and_si512(right, mask));
  return _mm512_cmpeq_epi8_mask(largest, mask) != 0;
}

/// Elements that vectors do not serve: the last ones, and where there are NaNs.
template <class T>
void add_apart(const std::byte* left, const std::byte* right, std::byte* out, std::size_t count, float factor) {
  for (std::size_t i = 0; i < count; ++i)
    store<T>(out, i,
             static_cast<T>((static_cast<float>(load<T>(left, i)) + static_cast<float>(load<T>(right, i))) * factor));
}

template <class T>
TROUPE_IN_F16 void add_in_f16(const void* left, const void* right, void* out, std::size_t count, float by) {
  const auto* a = static_cast<const std::byte*>(left);
  const auto* b = static_cast<const std::byte*>(right);
  auto* to = static_cast<std::byte*>(out);
  const __m512i factor = words(f16(by).bits);
  for (; count >= vector_bytes; count -= vector_bytes, a += vector_bytes, b += vector_bytes, to += vector_bytes) {
    const __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b);
    if (__builtin_expect(has_special<T>(x, y), 0)) {
      add_apart<T>(a, b, to, vector_bytes, by);
      continue;
    }
    const __m512i even = added(even_of<T>(x), even_of<T>(y), factor), odd = added(odd_of<T>(x), odd_of<T>(y), factor);
    _mm512_storeu_si512(to, joined<T>(even, odd));
  }
  add_apart<T>(a, b, to, count, by);
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

sum_in_f16 find_sum_in_f16(datatype type) {
  static const bool has = has_f16_arithmetic();
  if (!has) return nullptr;
  if (type == datatype::f8e4m3) return &add_in_f16<f8e4m3>;
  return type == datatype::f8e5m2 ? &add_in_f16<f8e5m2> : nullptr;
}

#else

sum_in_f16 find_sum_in_f16(datatype) { return nullptr; }

#endif

}  // namespace troupe::detail
