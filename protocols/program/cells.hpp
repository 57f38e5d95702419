// SPDX-License-Identifier: Apache-2.0
#pragma once
// Cells and bytes: the words in which programs say where their operands lie. A program knows cells; the sizes of a call make byte
// ranges of them (cell_places.hpp), anew whenever an operation of other sizes begins.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "protocols/score/score.hpp"
#include "protocols/score/slice_order.hpp"

namespace troupe {

/// How many elements the blocks of a call have, and where they lie in this rank's buffers.
struct call_shape {
  std::size_t count = 0;                               ///< elements per block, when all are equal
  std::span<const std::size_t> counts{};               ///< per block otherwise (block_count(what, ranks) of them)
  std::span<const std::size_t> input_displacements{};  ///< elements, per block of the input; empty: packed
  std::span<const std::size_t> output_displacements{};
  std::size_t element_size = 1;
  /// Where a rank knows only what it sends and what it receives (v_counts::every_pair): `counts` are the blocks that it sends, and these
  /// those that it receives. Only the direct port makes do with that.
  std::span<const std::size_t> received{};
  /// Elements of each piece of a block, of partitioned calls; empty: piece p of k has the elements [⌊p·count/k⌋, ⌊(p+1)·count/k⌋).
  std::span<const std::size_t> pieces{};
  /// Of counts, received and displacements: a caller that asks again with this number asks with the same ones. 0: nobody has numbered them.
  std::uint64_t lists_number = 0;

  std::size_t elements(std::int64_t block) const {
    return counts.empty() ? count : counts[static_cast<std::size_t>(block)];
  }
};

/// How a message is cut: every cell into `channels` neighbouring pieces that are performed side by side, and every piece into
/// `slices` that follow one another in the channel, `slices_per_step` of them in each step (slice_order).
struct cutting {
  int channels = 1;
  int slices = 1;
  int slices_per_step = 1;
  bool operator==(const cutting&) const = default;
  slice_order order() const { return {slices, slices_per_step}; }
};
/// For people: "4 slices", or "8 slices, 4 a step".
std::string slices_text(const cutting& cut);

/// The k-th of n parts of `count` elements begins here: ⌊k·count/n⌋, rounded down to 64 elements where parts are long, so that
/// vectors and cache lines are not shared between parts. @pre 0 <= k <= n
std::size_t part_begin(std::size_t count, std::size_t n, std::size_t k);
/// The same of all parts, and the end. Cost: one division, and an allocation if there never were so many.
void part_begins(std::size_t count, std::size_t n, std::vector<std::size_t>& begins);

/// A byte range's begin, relative to the base of a buffer of `owner` (`self`: this rank; l2 has one base for all).
struct location {
  std::size_t offset = 0;
  rank_t owner = self;
  buffer_kind buffer = buffer_kind::none;
  bool operator==(const location&) const = default;
};

/// Neighbouring cells of a buffer, with what of them no size changes. No cells: a token, or no operand.
struct cell_range {
  std::int64_t block = 0;  ///< what the first cell holds …
  std::int32_t part = 0;   ///< … and which part of it
  std::int32_t cell = 0;   ///< the first, counted in its buffer
  std::int32_t index = 0;  ///< input and output: its block, counted in the buffer
  std::int32_t count = 0;
  rank_t owner = self;
  buffer_kind buffer = buffer_kind::none;
  bool operator==(const cell_range&) const = default;
};
/// @param rank whose step names the place
cell_range cells_of(const score& s, rank_t rank, const place& at);
/// Whether a cell is in both. Input and output of a call in place are taken for two buffers.
inline bool overlap(const cell_range& a, const cell_range& b) {
  return a.buffer == b.buffer && a.owner == b.owner && a.cell < b.cell + b.count && b.cell < a.cell + a.count;
}

}  // namespace troupe
