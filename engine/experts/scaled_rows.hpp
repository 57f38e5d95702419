// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows of numbers as f8e4m3 with a scale for every 128 of them, as DeepSeek-V3 sends its tokens (DeepSeek-AI 2024, section 3.3): a row is its codes,
// padded to 4 bytes, then its f32 scales. The largest magnitude of the 128 becomes 448, the largest f8e4m3. An infinity or NaN makes its 128 NaN, or
// itself.

#include <cstddef>

#include "memory/types/types.hpp"

namespace troupe::scaled_rows {

inline constexpr std::size_t block = 128;
constexpr std::size_t codes_bytes(std::size_t count) { return (count + 3) / 4 * 4; }
constexpr std::size_t row_bytes(std::size_t count) {
  return codes_bytes(count) + (count + block - 1) / block * sizeof(float);
}

/// @param type f32, f16 or bf16
void encode(datatype type, const void* from, std::byte* to, std::size_t count);
void decode(datatype type, const std::byte* from, void* to, std::size_t count);

}  // namespace troupe::scaled_rows
