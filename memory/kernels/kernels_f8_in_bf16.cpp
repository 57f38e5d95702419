// SPDX-License-Identifier: Apache-2.0
// Sums of several f8e4m3 by the processor's products of two pairs of bf16 (AVX512-BF16), with bf16 from tables of bytes (AVX512-VBMI).
//
// An e4m3 is a bf16. Of two inputs, elements become neighbours, and the instruction adds both of them, times a power of two, to a total in f32. It
// does not say how it rounds inside, but nothing is rounded: elements are multiples of 2^-9 up to 448, so that 64 of them fit 24 bits. So these are
// the bits of one addition after the other. For e5m2 they would not be. Totals become f16, rounded to odd, and then e4m3, see kernels_bytes.hpp.
// A NaN among the results sends its neighbours and it another way.
#include "memory/kernels/kernel_loops.hpp"
#include "memory/kernels/kernels_intrinsics.hpp"

#if defined(__x86_64__)
#define TROUPE_SUMS_IN_BF16 1
#endif

#include <cmath>

namespace troupe::detail {

#if defined(TROUPE_SUMS_IN_BF16)

namespace {

#define TROUPE_IN_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512bf16")))
#define TROUPE_INLINE_IN_BF16 TROUPE_IN_BF16 __attribute__((always_inline)) inline

constexpr std::size_t vector_bytes = 64, vectors = 4, block_bytes = vectors * vector_bytes;
constexpr std::size_t most_inputs = 64;

/// Lower and upper bytes of the bf16 of codes without their signs.
struct alignas(vector_bytes) bf16_tables {
  std::uint8_t lower[128], upper[128];
};
constexpr bf16_tables make_tables() {
  bf16_tables made{};
  for (int code = 0; code < 128; ++code) {
    const bf16 value{static_cast<float>(f8e4m3::from_bits(static_cast<std::uint8_t>(code)))};
    made.lower[code] = static_cast<std::uint8_t>(value.bits);
    made.upper[code] = static_cast<std::uint8_t>(value.bits >> 8);
  }
  return made;
}
constexpr bf16_tables tables = make_tables();

TROUPE_INLINE_IN_BF16 __m512i words(int word) { return _mm512_set1_epi16(static_cast<short>(word)); }
TROUPE_INLINE_IN_BF16 __m512i bytes(int byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
TROUPE_INLINE_IN_BF16 __m512i find(const std::uint8_t* table, __m512i index) {
  return _mm512_permutex2var_epi8(_mm512_load_si512(table), index, _mm512_load_si512(table + vector_bytes));
}

/// Of 64 elements, those in the lower and those in the upper 8 bytes of each 16.
struct halves {
  __m512i lower, upper;
};
TROUPE_INLINE_IN_BF16 halves as_bf16(const std::byte* from) {
  const __m512i codes = _mm512_loadu_si512(from);
  const __m512i low = find(tables.lower, codes);
  const __m512i high = _mm512_ternarylogic_epi32(bytes(0x80), codes, find(tables.upper, codes), 0xca);
  return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
}

/// Of 64 elements, in the order of `unpack`.
struct totals {
  __m512 quarter[4];
};

/// Both inputs' elements x 2^-8, the scale on which an e4m3's subnormals are f16's.
TROUPE_INLINE_IN_BF16 __m512 added(__m512 total, __m512i both) {
  return _mm512_dpbf16_ps(total, reinterpret_cast<__m512bh>(both), reinterpret_cast<__m512bh>(words(0x3b80)));
}
TROUPE_INLINE_IN_BF16 void add(totals& to, const halves& x, const halves& y) {
  to.quarter[0] = added(to.quarter[0], _mm512_unpacklo_epi16(x.lower, y.lower));
  to.quarter[1] = added(to.quarter[1], _mm512_unpackhi_epi16(x.lower, y.lower));
  to.quarter[2] = added(to.quarter[2], _mm512_unpacklo_epi16(x.upper, y.upper));
  to.quarter[3] = added(to.quarter[3], _mm512_unpackhi_epi16(x.upper, y.upper));
}

/// Rounded to odd at the last bit of an f16, so that rounding that again is rounding once.
TROUPE_INLINE_IN_BF16 __m256i as_f16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value), cut = _mm512_set1_epi32(0x1fff);
  const __m512i carry = _mm512_add_epi32(_mm512_and_si512(bits, cut), cut);
  const __m512i odd = _mm512_ternarylogic_epi32(cut, bits, carry, 0x0e);  // (bits | carry) & ~cut
  return _mm512_cvtps_ph(_mm512_castsi512_ps(odd), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TROUPE_INLINE_IN_BF16 __m512i as_f16(__m512 first, __m512 second) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(as_f16(first)), as_f16(second), 1);
}

/// A magnitude's code, neither saturated nor a NaN yet.
TROUPE_INLINE_IN_BF16 __m512i rounded(__m512i half) {
  const __m512i magnitude = _mm512_and_si512(half, words(0x7fff));
  const __m512i last = _mm512_and_si512(_mm512_srli_epi16(half, 7), words(1));
  return _mm512_srli_epi16(_mm512_add_epi16(_mm512_add_epi16(magnitude, words(0x3f)), last), 7);
}

/// Codes in order. @param largest by byte, before they are saturated
TROUPE_INLINE_IN_BF16 __m512i as_codes(const totals& of, __m512 factor, __m512i& largest) {
  const __m512i front = as_f16(_mm512_mul_ps(of.quarter[0], factor), _mm512_mul_ps(of.quarter[1], factor));
  const __m512i back = as_f16(_mm512_mul_ps(of.quarter[2], factor), _mm512_mul_ps(of.quarter[3], factor));
  const __m512i magnitudes = _mm512_packus_epi16(rounded(front), rounded(back));
  largest = _mm512_max_epu8(largest, magnitudes);
  // Packed words of a sign keep it: a zero is made a number that has one.
  const __m512i signs = _mm512_packs_epi16(_mm512_or_si512(front, words(1)), _mm512_or_si512(back, words(1)));
  const __m512i saturated = _mm512_min_epu8(magnitudes, bytes(0x7e));
  const __m512i codes = _mm512_ternarylogic_epi32(bytes(0x80), signs, saturated, 0xca);
  // Four in a row, of each quarter's row: narrowing has put the rows of two quarters one after the other.
  const __m512i order = _mm512_setr_epi32(0, 8, 2, 10, 1, 9, 3, 11, 4, 12, 6, 14, 5, 13, 7, 15);
  return _mm512_permutexvar_epi32(order, codes);
}

/// `Vectors` of all inputs from `offset` on. False, and nothing is written, if there is a NaN.
template <std::size_t Vectors>
TROUPE_INLINE_IN_BF16 bool fold_block(std::span<const void* const> in, std::size_t offset, std::byte* out,
                                      __m512 factor) {
  totals sum[Vectors];
  TROUPE_UNROLLED
  for (std::size_t i = 0; i < Vectors; ++i)
    for (__m512& quarter : sum[i].quarter) quarter = _mm512_set1_ps(-0.0f);
  std::size_t k = 0;
  for (; k + 1 < in.size(); k += 2) {
    const std::byte *const x = at(in[k], offset), *const y = at(in[k + 1], offset);
    TROUPE_UNROLLED
    for (std::size_t i = 0; i < Vectors; ++i) add(sum[i], as_bf16(x + i * vector_bytes), as_bf16(y + i * vector_bytes));
  }
  if (k < in.size()) {
    TROUPE_UNROLLED
    for (std::size_t i = 0; i < Vectors; ++i)
      add(sum[i], as_bf16(at(in[k], offset) + i * vector_bytes), {words(0x8000), words(0x8000)});  // -0 changes nothing
  }
  __m512i codes[Vectors], largest = _mm512_setzero_si512();
  TROUPE_UNROLLED
  for (std::size_t i = 0; i < Vectors; ++i) codes[i] = as_codes(sum[i], factor, largest);
  // An f16's NaN is 0x7c01 or more.
  if (__builtin_expect(_mm512_cmpgt_epu8_mask(largest, bytes(0xf7)) != 0, 0)) return false;
  TROUPE_UNROLLED
  for (std::size_t i = 0; i < Vectors; ++i) _mm512_storeu_si512(out + i * vector_bytes, codes[i]);
  return true;
}

/// What is left to others at a time: where one number is not finite, its neighbours may not be, either.
constexpr std::size_t apart_bytes = 4096;

TROUPE_IN_BF16 void fold_in_bf16(std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
                                 const adjustment& how) {
  const __m512 factor = _mm512_set1_ps(static_cast<float>(common_factor(how)));
  auto* to = static_cast<std::byte*>(out);
  for (std::size_t step = 0; count > 0; count -= step, offset += step, to += step) {
    if (count >= block_bytes && fold_block<vectors>(in, offset, to, factor)) step = block_bytes;
    else if (count < block_bytes && count >= vector_bytes && fold_block<1>(in, offset, to, factor)) step = vector_bytes;
    else fold_in_f32(datatype::f8e4m3, in, offset, to, step = std::min(count, apart_bytes), how);
  }
}

/// __builtin_cpu_supports does not know the name everywhere. What AVX-512 needs of the system is known from avx512vbmi.
bool has_bf16_products() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned avx512_bf16 = 1u << 5;
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vbmi") && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & avx512_bf16) != 0;
}

}  // namespace

fold_kernel find_fold_in_bf16(datatype type, double factor, std::size_t inputs) {
  static const bool has = has_bf16_products();
  int exponent = 0;
  const bool fits = factor >= 1.0 / 128 && factor <= 32 && std::frexp(factor, &exponent) == 0.5;
  return has && fits && type == datatype::f8e4m3 && inputs >= 2 && inputs <= most_inputs ? &fold_in_bf16 : nullptr;
}

#else

fold_kernel find_fold_in_bf16(datatype, double, std::size_t) { return nullptr; }

#endif

}  // namespace troupe::detail
