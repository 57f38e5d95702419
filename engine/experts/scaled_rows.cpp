// SPDX-License-Identifier: Apache-2.0
#include "engine/experts/scaled_rows.hpp"

#include <algorithm>
#include <cstring>

#include "memory/kernels/kernels.hpp"

namespace troupe::scaled_rows {

namespace {

constexpr std::size_t tile = 8 * block;
constexpr float largest = 448.0F;
constexpr float least_scale = 1e-35F;  // below, its reciprocal would be none

/// Magnitudes order as their bits do.
float largest_magnitude(const float* from, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, from + i, sizeof bits);
    bits &= 0x7fff'ffffU;
    most = bits > most ? bits : most;
  }
  float result = 0;
  std::memcpy(&result, &most, sizeof result);
  return result;
}

}  // namespace

void encode(datatype type, const void* from, std::byte* to, std::size_t count) {
  alignas(64) float wide[tile];
  std::byte* scales = to + codes_bytes(count);
  for (std::size_t begin = 0; begin < count; begin += tile) {
    const std::size_t here = std::min(tile, count - begin);
    convert(type, static_cast<const std::byte*>(from) + begin * size_of(type), datatype::f32, wide, here);
    for (std::size_t b = 0; b < here; b += block) {
      float* const part = wide + b;
      const std::size_t elements = std::min(block, here - b);
      const float scale = std::max(largest_magnitude(part, elements) / largest, least_scale), factor = 1 / scale;
      for (std::size_t i = 0; i < elements; ++i) part[i] *= factor;
      std::memcpy(scales, &scale, sizeof scale);
      scales += sizeof scale;
    }
    convert(datatype::f32, wide, datatype::f8e4m3, to + begin, here);
  }
}

void decode(datatype type, const std::byte* from, void* to, std::size_t count) {
  alignas(64) float wide[tile];
  const std::byte* scales = from + codes_bytes(count);
  for (std::size_t begin = 0; begin < count; begin += tile) {
    const std::size_t here = std::min(tile, count - begin);
    convert(datatype::f8e4m3, from + begin, datatype::f32, wide, here);
    for (std::size_t b = 0; b < here; b += block) {
      float scale = 0;
      std::memcpy(&scale, scales, sizeof scale);
      scales += sizeof scale;
      const std::size_t elements = std::min(block, here - b);
      for (std::size_t i = 0; i < elements; ++i) wide[b + i] *= scale;
    }
    convert(datatype::f32, wide, type, static_cast<std::byte*>(to) + begin * size_of(type), here);
  }
}

}  // namespace troupe::scaled_rows
