// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program made ready for the slot port: every message gets its place in the half of its channel, so that both ends find it
// without a word about it.
//
// The messages from one rank to another lie in the order (lane, position in the lane). A sender orders its sends so and a receiver its
// receives; lanes match first in, first out with equal sizes, hence both come to the same places.
//
// A slot holds a copy: a send is over when it is written, and by-reference rules (the source stays unchanged until the receiver
// has it) are kept with nothing to wait for. Copies that a score makes only to keep them are therefore left out (`forward_copies`).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "protocols/program/program.hpp"
#include "protocols/program/slot_formats.hpp"

namespace troupe {

/// One cache line with the fields of an instruction that the performer needs, and the places of its messages. `lines` count from the begin of
/// the channel's half.
struct alignas(64) slot_step {
  step_kind kind = step_kind::wait;
  bool swapped = false;
  bool fold = false;  ///< local, with several operands: see slot_program::instructions
  buffer_kind source = buffer_kind::none;
  buffer_kind target = buffer_kind::none;
  bool only_in = false;    ///< no other message comes by its channel, or …
  bool only_out = false;   ///< … leaves by it in the operation
  std::uint32_t salt = 0;  ///< size and format, mixed into the tag
  std::size_t bytes = 0;   ///< of the message, or of the local operation
  std::size_t source_offset = 0;
  std::size_t target_offset = 0;
  std::uint32_t in_line = 0;     ///< of the message it receives
  std::uint32_t out_line = 0;    ///< of the message it sends
  std::uint32_t in_channel = 0;  ///< index in slot_program::channels
  std::uint32_t out_channel = 0;
  std::int32_t after_lane = -1;   ///< index in slot_program::lanes …
  std::uint32_t after_index = 0;  ///< … and in slot_program::steps
};
static_assert(sizeof(slot_step) == 64);

/// Not synchronised: a rank that shares it with others changes no sizes in it, but in a copy.
struct slot_program {
  struct channel_use {
    rank_t peer = -1;
    bool outgoing = false;
    std::uint32_t lines = 0;    ///< of all messages of an epoch
    std::int32_t reverse = -1;  ///< outgoing: index of the incoming channel from the same peer
  };
  struct lane_range {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  std::vector<slot_step> steps;           ///< lane after lane
  std::vector<instruction> instructions;  ///< what each step was made from
  std::vector<lane_range> lanes;          ///< every channel's lanes, without empty ones
  std::vector<location> operands;         ///< of folds, see instruction
  std::vector<cell_range> operand_cells;
  cell_places places;
  std::vector<channel_use> channels;
  slot_format format = slot_format::ll128;
  int ranks = 1;
  std::size_t element_size = 1;
  std::size_t scratch_bytes = 0;  ///< what memory_map::scratch and l0 must have
  std::size_t l0_bytes = 0;
  std::size_t largest = 0;       ///< bytes of the largest step
  std::uint32_t most_lines = 0;  ///< of a channel
  bool reduces = false;
  bool sends_first = false;    ///< it receives from every other rank, and nothing before it has sent all
  bool runs_ahead = false;     ///< its sources may be many operations ahead of their destinations
  std::uint64_t identity = 0;  ///< only copies have the same
};

/// Beyond, a word for every pair of ranks (8 MiB) costs more memory than slots save time.
inline constexpr int most_slot_ranks = 1024;

/// How much a pair may exchange in an epoch, in lines of 128 bytes (≤ slots::most_lines).
inline constexpr std::size_t default_slot_lines = 1024;

/// Why `code` cannot be performed over slots, as a sentence; empty if it can.
std::string why_no_slots(const program& code, slot_format format, std::size_t most_lines = default_slot_lines);

/// Why its messages cannot be combined line by line, as a sentence; empty if they can. What is only copied may be torn.
/// @param unit bytes that a reduction takes for one (unit_of), a power of two
std::string why_torn(const program& code, slot_format format, std::size_t unit);

/// Without compiling anything: true if every rank's messages find room whatever the places of its cells. False says nothing.
/// @pre the score is verified and works on its ranks' own memory; blocks are equal
bool surely_fits_slots(const score& s, const call_shape& shape, slot_format format,
                       std::size_t most_lines = default_slot_lines);

/// Throws error(unsupported) with why_no_slots(). Allocates; not for the way of a repeated call.
/// @pre `code` is rank `rank`'s of a verified score; all ranks' programs of the operation are compiled with the same format.
slot_program compile_slots(program code, slot_format format, std::size_t most_lines = default_slot_lines);

/// Makes it that of another call of the same score, as fit() of a program does. All ranks' programs of an operation are fitted to the
/// same call. Throws error: size_overflow, unsupported (a channel would have more than slots::most_lines lines); then its sizes are
/// undefined until it is fitted again.
void fit(slot_program& code, const call_shape& shape);

}  // namespace troupe
