// SPDX-License-Identifier: Apache-2.0
#pragma once
// When a rank's call is in place, as its own buffers show: one answer for the check of a call, for lists that are read once, and for plans that
// were made for separate buffers.

#include <cstddef>
#include <numeric>
#include <span>

namespace troupe {

/// The blocks of a rank's own buffers: how many, and where they begin, in elements.
struct own_blocks {
  int inputs = 0, outputs = 0;
  std::size_t own = 0;                    ///< the rank's, in the larger buffer
  std::size_t count = 0;                  ///< of every block, if `counts` is empty
  std::span<const std::size_t> counts{};  ///< of each block in the larger buffer, up to the rank's own at least
  std::span<const std::size_t> input_displacements{}, output_displacements{};  ///< empty: one behind the other

  /// Where the rank's own block begins in the larger buffer. @param displacements of that buffer
  std::size_t own_begin(std::span<const std::size_t> displacements) const {
    if (!displacements.empty()) return displacements[own];
    if (counts.empty()) return own * count;
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(own), std::size_t{0});
  }
};

/// The smaller buffer is the rank's own block of the larger one; buffers of equally many blocks, or of which one has none, begin together. The only
/// block of a rank that is alone may lie anywhere in either. Sizes do not matter, and null is a place as any other.
inline bool lies_in_place(const own_blocks& of, const void* input, const void* output, std::size_t element_bytes) {
  const auto* const in = static_cast<const std::byte*>(input);
  const auto* const out = static_cast<const std::byte*>(output);
  if (of.inputs == 0 || of.outputs == 0) return in == out;
  const auto first = [&](const std::byte* at, std::span<const std::size_t> displacements) {
    return displacements.empty() ? at : at + displacements.front() * element_bytes;
  };
  if (of.inputs == of.outputs)
    return in == out || (of.inputs == 1 && first(in, of.input_displacements) == first(out, of.output_displacements));
  if (of.inputs < of.outputs) return in == out + of.own_begin(of.output_displacements) * element_bytes;
  return out == in + of.own_begin(of.input_displacements) * element_bytes;
}

}  // namespace troupe
