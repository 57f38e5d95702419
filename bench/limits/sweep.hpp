// SPDX-License-Identifier: Apache-2.0
#pragma once
// The least that threads can do to all-reduce large vectors of one address space: read every input once, add in registers, write every
// output once. Nobody waits for anybody.

#include <algorithm>
#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace bench {

// As wide as the compiler was told the machine is (the limit programs are built with -march=native).
#if defined(__AVX512F__)
using vec = __m512;
inline vec load(const float* p) { return _mm512_loadu_ps(p); }
inline vec add(vec a, vec b) { return _mm512_add_ps(a, b); }
inline void store(float* p, vec v) { _mm512_storeu_ps(p, v); }
inline void stream(float* p, vec v) { _mm512_stream_ps(p, v); }
#elif defined(__AVX__)
using vec = __m256;
inline vec load(const float* p) { return _mm256_loadu_ps(p); }
inline vec add(vec a, vec b) { return _mm256_add_ps(a, b); }
inline void store(float* p, vec v) { _mm256_storeu_ps(p, v); }
inline void stream(float* p, vec v) { _mm256_stream_ps(p, v); }
#elif defined(__SSE2__)
using vec = __m128;
inline vec load(const float* p) { return _mm_loadu_ps(p); }
inline vec add(vec a, vec b) { return _mm_add_ps(a, b); }
inline void store(float* p, vec v) { _mm_storeu_ps(p, v); }
inline void stream(float* p, vec v) { _mm_stream_ps(p, v); }
#else
struct vec {
  float lane[4];
};
inline vec load(const float* p) {
  vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline vec add(vec a, vec b) {
  for (int i = 0; i < 4; ++i) a.lane[i] += b.lane[i];
  return a;
}
inline void store(float* p, vec v) { std::memcpy(p, &v, sizeof v); }
inline void stream(float* p, vec v) { store(p, v); }  // no portable non-temporal store: this way is then the plain one
#endif

inline constexpr std::size_t lanes = sizeof(vec) / sizeof(float);
inline constexpr std::size_t line_floats = 64 / sizeof(float);

/// Which of four ways is fastest depends on size and ranks: all are tried, the best is the limit.
struct way {
  bool streaming;  ///< non-temporal stores
  bool blocks;  ///< a 4 KiB block from all inputs first, then to one output after the other; else line by line to all
};
inline constexpr way ways[4] = {{false, false}, {true, false}, {false, true}, {true, true}};
inline constexpr const char* way_names[4] = {"lines", "lines+nt", "blocks", "blocks+nt"};

template <bool Streaming>
void put(float* p, vec v) {
  if constexpr (Streaming) stream(p, v);
  else store(p, v);
}

template <int P, bool Streaming>
void sweep_lines(const float* const* in, float* const* out, std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < to; i += line_floats) {
    vec total[line_floats / lanes];
    for (std::size_t v = 0; v < line_floats / lanes; ++v) {
      total[v] = load(in[0] + i + v * lanes);
      for (int r = 1; r < P; ++r) total[v] = add(total[v], load(in[r] + i + v * lanes));
    }
    for (int r = 0; r < P; ++r)  // a whole line to one output before the next: write-combining buffers leave full
      for (std::size_t v = 0; v < line_floats / lanes; ++v) put<Streaming>(out[r] + i + v * lanes, total[v]);
  }
}

template <int P, bool Streaming>
void sweep_blocks(const float* const* in, float* const* out, std::size_t from, std::size_t to) {
  constexpr std::size_t block = 1024;
  alignas(64) float total[block];
  for (std::size_t at = from; at < to; at += block) {
    const std::size_t size = std::min(block, to - at);
    for (std::size_t i = 0; i < size; i += lanes) {
      vec sum = load(in[0] + at + i);
      for (int r = 1; r < P; ++r) sum = add(sum, load(in[r] + at + i));
      store(total + i, sum);
    }
    for (int r = 0; r < P; ++r)
      for (std::size_t i = 0; i < size; i += lanes) put<Streaming>(out[r] + at + i, load(total + i));
  }
}

/// @pre from and to are multiples of line_floats; the buffers begin at a cache line
template <int P>
void sweep(way how, const float* const* in, float* const* out, std::size_t from, std::size_t to) {
  if (how.blocks) how.streaming ? sweep_blocks<P, true>(in, out, from, to) : sweep_blocks<P, false>(in, out, from, to);
  else how.streaming ? sweep_lines<P, true>(in, out, from, to) : sweep_lines<P, false>(in, out, from, to);
#if defined(__SSE2__)
  if (how.streaming) _mm_sfence();  // what a caller sees on return must have been written
#endif
}

}  // namespace bench
