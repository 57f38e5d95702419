// SPDX-License-Identifier: Apache-2.0
// Sums of several f8e5m2 in f32 without a conversion (AVX-512, GFNI): two products with matrices of bits make two vectors of bytes, the upper bytes of f32.
//
// An e5m2's exponent and mantissa, moved to where an f32 has its own, are 2^-112 of its value: the biases are 15 and 127. That holds for
// subnormal numbers, too, which are subnormal f32 then: multiples of 2^-128, and so are all sums. Where such a sum is subnormal it is exact,
// since an f32 holds every multiple of 2^-149; where it is not, it is rounded as its 2^112-fold would be. So these are the bits of additions in f32.
// Products with a power of two from 2^-7 to 2^5 are exact for the same reason. The sum of a tile is rounded to e5m2 as an integer: it has the
// right number of bits above that, subnormal or not, and a carry into the exponent gives the next number.
//
// What is left to others: inputs that are not finite, and threads whose processor takes subnormal numbers for zeros (DAZ, FTZ), traps at
// them, or does not round to nearest.
#include "memory/kernels/kernel_loops.hpp"
#include "memory/kernels/kernels_intrinsics.hpp"

#if defined(__x86_64__)
#define TROUPE_SUMS_IN_WORDS 1
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace troupe::detail {

#if defined(TROUPE_SUMS_IN_WORDS)

namespace {

#define TROUPE_IN_WORDS __attribute__((target("avx512f,avx512bw,gfni")))
#define TROUPE_INLINE_IN_WORDS TROUPE_IN_WORDS __attribute__((always_inline)) inline

constexpr std::size_t vector_bytes = 64, vectors = 4, block_bytes = vectors * vector_bytes;
constexpr int infinity_code = 0x7c;
constexpr int mantissa_shift = 21;  ///< between an e5m2's last bit and its place in an f32

TROUPE_INLINE_IN_WORDS __m512i constant(std::uint32_t word) { return _mm512_set1_epi32(static_cast<int>(word)); }

/// Of 64 elements: each 16 bytes' first eight, those at even places and at odd ones, and the other eight.
struct quarters {
  __m512 part[4];
};
/// Bits 7 … 0 of the result are the bits of x that the bytes of `matrix` name, the first byte bit 7's.
template <std::uint64_t Matrix>
TROUPE_INLINE_IN_WORDS __m512i moved_bits(__m512i x) {
  return _mm512_gf2p8affine_epi64_epi8(x, _mm512_set1_epi64(Matrix), 0);
}
TROUPE_INLINE_IN_WORDS __m512 upper_word(__m512i words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, constant(0xffff0000)));
}
TROUPE_INLINE_IN_WORDS __m512 lower_word(__m512i words) { return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)); }
TROUPE_INLINE_IN_WORDS quarters as_f32(__m512i codes) {
  // An f32's upper bytes: its sign, three zeros and the exponent's upper four bits; the fifth and the mantissa.
  const __m512i upper = moved_bits<0x0810204000000080>(codes), lower = moved_bits<0x010204>(codes);
  const __m512i front = _mm512_unpacklo_epi8(lower, upper), back = _mm512_unpackhi_epi8(lower, upper);
  return {{lower_word(front), upper_word(front), lower_word(back), upper_word(back)}};
}

/// The code without its sign, to nearest even.
TROUPE_INLINE_IN_WORDS __m512i rounded(__m512 sum) {
  const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(sum), constant(0x7fffffff));
  const __m512i last = _mm512_and_si512(_mm512_srli_epi32(magnitude, mantissa_shift), constant(1));
  const __m512i below_half = constant((1u << (mantissa_shift - 1)) - 1);
  const __m512i code =
      _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(magnitude, below_half), last), mantissa_shift);
  return _mm512_min_epu32(code, constant(infinity_code));
}
/// Two codes in the lower half of each word.
TROUPE_INLINE_IN_WORDS __m512i as_codes(__m512 even, __m512 odd) {
  const __m512i both = _mm512_or_si512(rounded(even), _mm512_slli_epi32(rounded(odd), 8));
  const __m512i even_sign = _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 24), constant(0x80));
  const __m512i odd_sign = _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(odd), 16), constant(0x8000));
  return _mm512_ternarylogic_epi32(both, even_sign, odd_sign, 0xfe);
}
TROUPE_INLINE_IN_WORDS __m512i as_codes(const quarters& of) {
  return _mm512_packus_epi32(as_codes(of.part[0], of.part[1]), as_codes(of.part[2], of.part[3]));
}

/// `Vectors` of all inputs from `offset` on. False, and nothing is written, if an input is not finite.
/// @tparam Scaled by a factor other than 1: a product costs some processors a detour where the sum is subnormal
template <std::size_t Vectors, bool Scaled>
TROUPE_INLINE_IN_WORDS bool fold_block(std::span<const void* const> in, std::size_t offset, std::byte* out,
                                       __m512 factor) {
  quarters sum[Vectors];
  __m512i largest = _mm512_setzero_si512();
  const __m512i without_sign = constant(0x7f7f7f7f);
  TROUPE_UNROLLED
  for (std::size_t i = 0; i < Vectors; ++i) {
    const __m512i codes = _mm512_loadu_si512(at(in[0], offset) + i * vector_bytes);
    largest = _mm512_max_epu8(largest, _mm512_and_si512(codes, without_sign));
    sum[i] = as_f32(codes);
  }
  for (std::size_t k = 1; k < in.size(); ++k) {
    const std::byte* const from = at(in[k], offset);
    TROUPE_UNROLLED
    for (std::size_t i = 0; i < Vectors; ++i) {
      const __m512i codes = _mm512_loadu_si512(from + i * vector_bytes);
      largest = _mm512_max_epu8(largest, _mm512_and_si512(codes, without_sign));
      const quarters more = as_f32(codes);
      TROUPE_UNROLLED
      for (int q = 0; q < 4; ++q) sum[i].part[q] = _mm512_add_ps(sum[i].part[q], more.part[q]);
    }
  }
  if (__builtin_expect(_mm512_cmpge_epu8_mask(largest, _mm512_set1_epi8(infinity_code)) != 0, 0)) return false;
  TROUPE_UNROLLED
  for (std::size_t i = 0; i < Vectors; ++i) {
    if constexpr (Scaled)
      for (__m512& quarter : sum[i].part) quarter = _mm512_mul_ps(quarter, factor);
    _mm512_storeu_si512(out + i * vector_bytes, as_codes(sum[i]));
  }
  return true;
}

/// What is left to others at a time: where one number is not finite, its neighbours may not be, either.
constexpr std::size_t apart_bytes = 4096;

bool keeps_subnormals() {
  constexpr unsigned denormals_are_zeros = 0x40;
  const unsigned state = _mm_getcsr();
  return (state & (denormals_are_zeros | _MM_FLUSH_ZERO_ON)) == 0 && (state & _MM_MASK_DENORM) != 0 &&
         (state & _MM_MASK_UNDERFLOW) != 0 && (state & _MM_ROUND_MASK) == _MM_ROUND_NEAREST;
}

template <bool Scaled>
TROUPE_IN_WORDS void fold_blocks(std::span<const void* const> in, std::size_t offset, std::byte* to, std::size_t count,
                                 const adjustment& how) {
  const __m512 factor = _mm512_set1_ps(static_cast<float>(common_factor(how)));
  for (std::size_t step = 0; count > 0; count -= step, offset += step, to += step) {
    if (count >= block_bytes && fold_block<vectors, Scaled>(in, offset, to, factor)) {
      step = block_bytes;
    } else if (count < block_bytes && count >= vector_bytes && fold_block<1, Scaled>(in, offset, to, factor)) {
      step = vector_bytes;
    } else {
      step = std::min(count, apart_bytes);
      fold_in_f32(datatype::f8e5m2, in, offset, to, step, how);
    }
  }
}

void fold_in_words(std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
                   const adjustment& how) {
  if (!keeps_subnormals()) return fold_in_f32(datatype::f8e5m2, in, offset, out, count, how);
  (common_factor(how) == 1 ? &fold_blocks<false> : &fold_blocks<true>)(in, offset, static_cast<std::byte*>(out), count,
                                                                       how);
}

}  // namespace

fold_kernel find_fold_in_words(datatype type, double factor) {
  static const bool has = __builtin_cpu_supports("avx512bw") && has_gfni();
  int exponent = 0;
  const bool fits = factor >= 1.0 / 128 && factor <= 32 && std::frexp(factor, &exponent) == 0.5;
  return has && fits && type == datatype::f8e5m2 ? &fold_in_words : nullptr;
}

#else

fold_kernel find_fold_in_words(datatype, double) { return nullptr; }

#endif

}  // namespace troupe::detail
