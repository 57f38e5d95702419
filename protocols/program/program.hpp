// SPDX-License-Identifier: Apache-2.0
#pragma once
// A score made ready for one rank: lanes become channels × lanes, steps repeat per slice (slice_order), and runs of local steps that build one
// result become a single pass of the kernel (`fold`). All that knows no size. The sizes of a call make byte ranges of the cells: compile()
// does that for the first ones, and fit() for others, in place.
//
// Not synchronised: a rank that shares a program with others changes no sizes in it, but in a copy.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocols/program/cell_places.hpp"
#include "protocols/program/cells.hpp"
#include "protocols/score/score.hpp"

namespace troupe {

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
  cell_range source_cells;
  cell_range target_cells;
  std::int32_t after_lane = -1;   ///< lane of the same channel …
  std::int32_t after_index = -1;  ///< … whose instruction of this index must be performed before
  std::uint32_t operands = 0;  ///< fold: first operand in program::operands: `inputs` sources, then `outputs` targets
  std::uint16_t inputs = 0;    ///< 0: not a fold
  std::uint16_t outputs = 0;
  std::int32_t score_step = -1;  ///< position in the score's lane, for messages to people
  std::int32_t slice = 0;
  std::int32_t channel = 0;
  std::int32_t ready_part = -1;  ///< of a wait: see step::ready_part
  bool arrives = false;          ///< see program::arrivals
  bool early = false;            ///< see early_receives()
};

inline bool touches_l2(const instruction& i) {
  return i.source.buffer == buffer_kind::l2 || i.target.buffer == buffer_kind::l2;
}

/// Of a partitioned program: the lane's last instruction that brings something of that piece of the output, or hears that it was brought, see arrivals.hpp.
struct arrival {
  std::int32_t lane = 0;
  std::int32_t index = 0;  ///< of the instruction
  std::int32_t piece = 0;
  auto operator<=>(const arrival&) const = default;
};

/// The way in which a step is performed. In virtual time its work takes time, so each step stays an instruction of its own. Where only times are
/// of interest no bytes move, and there need not be memory for them.
enum class step_work : std::uint8_t { at_once, timed, timed_without_bytes };

/// Work done on sums while they are made, instead of in passes over input and output.
struct sum_handling {
  std::size_t divisor = 1;     ///< instructions that complete a sum divide it by this (avg)
  bool scales_inputs = false;  ///< folds multiply every rank's input by that rank's factor (pre_mul_sum)
};

struct program {
  std::vector<std::vector<instruction>> lanes;  ///< lane l of channel c is lanes[c * lanes_per_channel + l]
  std::vector<location> operands;
  std::vector<cell_range> operand_cells;  ///< of each operand
  cell_places places;
  int channels = 1;
  int lanes_per_channel = 1;
  int ranks = 1;
  int parts = 1;  ///< cells of a block
  std::size_t element_size = 1;
  std::size_t scratch_bytes = 0;
  std::size_t l0_bytes = 0;
  std::size_t l2_bytes = 0;    ///< the whole segment, the same at every rank
  std::size_t slot_bytes = 0;  ///< largest intermediate result of a recv_reduce_send; 0: no slot is needed
  bool shares_memory = false;  ///< touches l2 or another rank's buffers; of a plan: some rank's program does
  sum_handling sums;
  std::vector<arrival> arrivals;              ///< of a partitioned program, in their order
  std::vector<std::int32_t> arrivals_needed;  ///< by piece of the output: how many of them
  int pieces = 0;                             ///< of the input; 0: not partitioned

  std::span<const instruction> lane(int channel, int l) const {
    return lanes[static_cast<std::size_t>(channel * lanes_per_channel + l)];
  }
};

/// @pre the score is lowered (no sync, unless `work` is timed) and verified; steps have one cell each unless `cut` is {1, 1} and the call is uniform
/// (one_cell_per_step()). Throws error(size_overflow) when a buffer would not fit the address space.
program compile(const score& s, rank_t rank, const call_shape& shape, const cutting& cut,
                step_work work = step_work::at_once);

/// Each rank touches only blocks whose sizes it knows of itself in a v-form: those that it sends or receives in the end, and a root all. So its
/// program is right whatever it takes the others for. @pre as compile()
bool needs_only_own_blocks(const score& s);

/// Makes it that of another call of the same score: only sizes and places of bytes change. Throws error(size_overflow); then its sizes are
/// undefined until it is fitted again. Cost: some nanoseconds an operand; allocates only for more blocks than ever before.
/// @pre made by compile(), and nobody performs it
void fit(program& code, const call_shape& shape);
/// The same for one of its instructions. @pre places.set()
void fit(instruction& i, const cell_places& places);
void fit_operands(const instruction& i, const cell_places& places, std::span<const cell_range> cells,
                  std::span<location> operands);

/// Bytes that the input and output buffers of `rank` have when packed. Throws error(size_overflow).
std::size_t input_bytes(collective what, int ranks, rank_t root, rank_t rank, const call_shape& shape);
std::size_t output_bytes(collective what, int ranks, rank_t root, rank_t rank, const call_shape& shape);

}  // namespace troupe
