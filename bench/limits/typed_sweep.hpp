// SPDX-License-Identifier: Apache-2.0
#pragma once
// sweep.hpp for other element types: read every input once, add as the type is added (f16 and bf16 through f32, rounded once), write every
// output once.

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>
#define BENCH_TYPED_AVX512 1
#endif

namespace bench {

enum class element { f16, bf16, i8 };

#if defined(BENCH_TYPED_AVX512)

/// 16 elements as f32, or 64 as i8, and how they are added.
template <element T>
struct lane;
template <>
struct lane<element::f16> {
  using sum = __m512;
  static constexpr std::size_t bytes = 32;
  static sum load(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static sum add(sum a, sum b) { return _mm512_add_ps(a, b); }
  static void store(std::byte* p, sum v, bool streaming) {
    const __m256i packed = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    if (streaming) _mm256_stream_si256(reinterpret_cast<__m256i*>(p), packed);
    else _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed);
  }
};
template <>
struct lane<element::bf16> {
  using sum = __m512;
  static constexpr std::size_t bytes = 32;
  static sum load(const std::byte* p) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
  }
  static sum add(sum a, sum b) { return _mm512_add_ps(a, b); }
  /// To nearest even; the values here are no NaN.
  static void store(std::byte* p, sum v, bool streaming) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m256i packed = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
    if (streaming) _mm256_stream_si256(reinterpret_cast<__m256i*>(p), packed);
    else _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed);
  }
};
template <>
struct lane<element::i8> {
  using sum = __m512i;
  static constexpr std::size_t bytes = 64;
  static sum load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static sum add(sum a, sum b) { return _mm512_add_epi8(a, b); }
  static void store(std::byte* p, sum v, bool streaming) {
    if (streaming) _mm512_stream_si512(reinterpret_cast<__m512i*>(p), v);
    else _mm512_storeu_si512(p, v);
  }
};

/// @pre from and to are multiples of 64, buffers begin at a cache line. `Ranks` known to the compiler, as in sweep.hpp.
template <element T, int Ranks, bool Streaming>
void typed_sweep(const std::byte* const* in, std::byte* const* out, std::size_t from, std::size_t to) {
  using l = lane<T>;
  for (std::size_t at = from; at < to; at += 64) {
    typename l::sum total[64 / l::bytes];
    for (std::size_t v = 0; v < 64 / l::bytes; ++v) {
      total[v] = l::load(in[0] + at + v * l::bytes);
      for (int r = 1; r < Ranks; ++r) total[v] = l::add(total[v], l::load(in[r] + at + v * l::bytes));
    }
    for (int r = 0; r < Ranks; ++r)
      for (std::size_t v = 0; v < 64 / l::bytes; ++v) l::store(out[r] + at + v * l::bytes, total[v], Streaming);
  }
  if (Streaming) _mm_sfence();
}

inline constexpr bool has_typed_sweep = true;
#else
template <element T, int Ranks, bool Streaming>
void typed_sweep(const std::byte* const*, std::byte* const*, std::size_t, std::size_t) {}
inline constexpr bool has_typed_sweep = false;  // no limit program for this machine: the row is not judged
#endif

}  // namespace bench
