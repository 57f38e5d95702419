#pragma once
// A score made ready for one rank and one size: cells become byte ranges, lanes become channels × lanes, steps repeat per
// slice, and runs of local steps that build one result become a single pass of the kernel (`fold`).
//
// Immutable after compile(), shared by threads without synchronisation.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocols/score/score.hpp"

namespace troupe {

/// How many elements the blocks of a call have, and where they lie in this rank's buffers.
struct call_shape {
  std::size_t count = 0;                               ///< elements per block, when all are equal
  std::span<const std::size_t> counts{};               ///< per block otherwise (block_count(what, ranks) of them)
  std::span<const std::size_t> input_displacements{};  ///< elements, per block of the input; empty: packed
  std::span<const std::size_t> output_displacements{};
  std::size_t element_size = 1;

  std::size_t elements(std::int64_t block) const {
    return counts.empty() ? count : counts[static_cast<std::size_t>(block)];
  }
};

/// How a message is cut: every cell into `channels` neighbouring pieces that are performed side by side, and every piece into
/// `slices` that follow one another in the channel.
struct cutting {
  int channels = 1;
  int slices = 1;
  bool operator==(const cutting&) const = default;
};

/// The k-th of n parts of `count` elements begins here: ⌊k·count/n⌋, rounded down to 64 elements where parts are long, so that
/// vectors and cache lines are not shared between parts. @pre 0 <= k <= n
std::size_t part_begin(std::size_t count, std::size_t n, std::size_t k);

/// A byte range's begin, relative to the base of a buffer of `owner` (`self`: this rank; l2 has one base for all).
struct location {
  std::size_t offset = 0;
  rank_t owner = self;
  buffer_kind buffer = buffer_kind::none;
  bool operator==(const location&) const = default;
};

/// A step on bytes. `fold` (a `copy` with more than one operand) combines all `inputs` from left to right in one pass and
/// writes the result to all `outputs`.
struct instruction {
  step_kind kind = step_kind::wait;
  bool swapped = false;
  bool completes = false;  ///< what it combines has all ranks' contributions then, see completion.hpp
  std::uint16_t fan = 0;
  rank_t from = -1;
  rank_t to = -1;
  location source;
  location target;
  std::size_t elements = 0;
  std::int32_t after_lane = -1;   ///< lane of the same channel …
  std::int32_t after_index = -1;  ///< … whose instruction of this index must be performed before
  std::uint32_t operands = 0;  ///< fold: first operand in program::operands: `inputs` sources, then `outputs` targets
  std::uint16_t inputs = 0;    ///< 0: not a fold
  std::uint16_t outputs = 0;
  std::int32_t score_step = -1;  ///< position in the score's lane, for messages to people
  std::int32_t slice = 0;
};

/// What performing a step means. In virtual time its work takes time, so each step stays an instruction of its own. Where only times are
/// of interest no bytes move, and there need not be memory for them.
enum class step_work : std::uint8_t { at_once, timed, timed_without_bytes };

/// What is done to sums while they are made, in place of passes over input and output.
struct sum_handling {
  std::size_t divisor = 1;     ///< instructions that complete a sum divide it by this (avg)
  bool scales_inputs = false;  ///< folds multiply every rank's input by that rank's factor (pre_mul_sum)
};

struct program {
  std::vector<std::vector<instruction>> lanes;  ///< lane l of channel c is lanes[c * lanes_per_channel + l]
  std::vector<location> operands;
  int channels = 1;
  int lanes_per_channel = 1;
  int ranks = 1;
  std::size_t element_size = 1;
  std::size_t scratch_bytes = 0;
  std::size_t l0_bytes = 0;
  std::size_t l2_bytes = 0;    ///< the whole segment, the same at every rank
  std::size_t slot_bytes = 0;  ///< largest intermediate result of a recv_reduce_send; 0: no slot is needed
  bool shares_memory = false;  ///< touches l2 or another rank's buffers: one address space only
  sum_handling sums;

  std::span<const instruction> lane(int channel, int l) const {
    return lanes[static_cast<std::size_t>(channel * lanes_per_channel + l)];
  }
};

/// @pre the score is lowered (no sync, unless `work` is timed) and verified; steps have one cell each unless `cut` is {1, 1} and the call is uniform
/// (one_cell_per_step()). Throws error(size_overflow) when a buffer would not fit the address space.
program compile(const score& s, rank_t rank, const call_shape& shape, const cutting& cut,
                step_work work = step_work::at_once);

/// Bytes that the input and output buffers of `rank` have when packed. Throws error(size_overflow).
std::size_t input_bytes(collective what, int ranks, rank_t root, rank_t rank, const call_shape& shape);
std::size_t output_bytes(collective what, int ranks, rank_t root, rank_t rank, const call_shape& shape);

}  // namespace troupe
