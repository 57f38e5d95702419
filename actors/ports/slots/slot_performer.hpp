// SPDX-License-Identifier: Apache-2.0
#pragma once
// Performs one rank's program over a slot board, inline in the calling thread: no actor, lock or system call, and no allocation once
// a program has been started before (but see start()).
//
// advance() never blocks. A send is written at once unless the destination still reads the place (it is two operations behind, or as
// many as the ring has); a
// receive takes lines as they come and combines or copies them straight from the slots. One thread may advance the performers of
// many ranks in turn; wait_slots() (slot_waiting.hpp) does that and sleeps.
//
// Fans are performed in their order: contributions are combined as the score says under every level of determinism. Messages are
// combined in pieces (≤ 120 bytes of an LL128 line, ≤ 3840 of LL), so a user's function is called several times for a long one. No unit_of()
// is torn: what is longer than a line and has units of 16 bytes goes by LL (why_torn()). avg and pre_mul_sum add, as in kernels.hpp.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/ports/board_performer.hpp"
#include "actors/ports/slots/slot_board.hpp"
#include "memory/kernels/kernels.hpp"
#include "memory/types/types.hpp"
#include "protocols/perform/performer.hpp"
#include "protocols/program/slot_program.hpp"

namespace troupe {

class slot_performer final : public board_performer {
public:
  /// @param board outlives the performer.
  slot_performer(slot_board& board, rank_t rank) : board_performer(board, rank) {}

  /// Begins an operation; nothing is sent before advance(). Cost of repeating the last program: no allocation, no look-up.
  /// @param code outlives the operation. @param fingerprint of the call, equal on all ranks unless they call different things.
  /// @pre idle(); op and type fit (check_supported), and the format (why_torn). Throws error(out_of_memory) before anything is changed.
  void start(const slot_program& code, const memory_map& memory, datatype type, const op& reduction,
             std::uint64_t sequence, std::uint64_t fingerprint) {
    const bool again = bound_ == code.identity && type_ == type && kind_ == reduction.kind &&
                       tiny_ == (code.largest <= tiny_bytes) && code.most_lines <= bound_lines_;
    if (!again) [[unlikely]]
      prepare(code, type, reduction.kind, sequence);
    if (code.reduces) reduction_ = reduction;
    code_ = &code;
    base_[static_cast<std::size_t>(buffer_kind::input)] = memory.input;
    base_[static_cast<std::size_t>(buffer_kind::output)] = memory.output;
    base_[static_cast<std::size_t>(buffer_kind::scratch)] = memory.scratch;
    base_[static_cast<std::size_t>(buffer_kind::l0)] = memory.l0;
    sequence_ = sequence;
    stamp_ = slots::stamp_of(sequence);
    generation_ = slots::generation_of(sequence);
    tag_ = static_cast<std::uint32_t>(fingerprint ^ fingerprint >> 32);
    suspect_ = -1;
    for (std::size_t l = 0; l < code.lanes.size(); ++l)
      lanes_[l] = {code.lanes[l].begin, code.lanes[l].end, 0, false, outcome::moved, 0};
    unfinished_ = code.lanes.size();
    if (unfinished_ == 0) finish();
  }

  status advance() override;
  /// The rank's own messages stay.
  void abandon() override;

  bool idle() const override { return unfinished_ == 0; }
  bool waits_for_other_cores() const override;
  std::vector<lane_wait> waits() const override;
  void announce(slot_board::sleep& to) const override;
  std::size_t steps_taken() const override { return steps_; }

private:
  static constexpr std::size_t tiny_bytes = 64;         ///< sums of so few are added one by one
  static constexpr std::uint32_t looks_elsewhere = 32;  ///< every so many messages are looked for wherever they may lie
  static constexpr std::size_t lines_behind = 16;       ///< that a reader stays behind a writer it has caught up with

  enum class outcome : std::uint8_t { moved, chunk, credit, lane, mismatch };
  struct lane_state {
    std::uint32_t next = 0;
    std::uint32_t end = 0;
    std::size_t progress = 0;  ///< bytes of the message at `next` that are done with
    bool greeted = false;      ///< its header was seen (LL) or written
    outcome why = outcome::moved;
    std::uint32_t later = 0;  ///< the line to look at first, as the writer was caught up with; 0: none
  };

  void bind(const slot_program& code, std::uint64_t sequence);
  void prepare(const slot_program& code, datatype type, op_kind kind, std::uint64_t sequence);
  outcome step(lane_state& lane, const slot_step& s);
  outcome receive(lane_state& lane, const slot_step& s);
  void local(const slot_step& s) const;
  outcome receive_ll128(lane_state& lane, const slot_step& s);
  outcome look_elsewhere(const slot_step& s, const slots::word*& line);
  bool has_come(slot_channel& from, std::size_t line) const;
  outcome receive_ll(lane_state& lane, const slot_step& s);
  std::size_t unpack_ll(slot_channel& from, const slot_step& s, std::size_t at, std::byte* to, std::size_t bytes) const;
  outcome open(const slot_step& s);
  outcome open_late(const slot_step& s);
  outcome greet(slot_channel& from, const slot_step& s, const slots::word* first);
  std::byte* source(const slot_step& s) const { return base_[static_cast<std::size_t>(s.source)] + s.source_offset; }
  std::byte* target(const slot_step& s) const { return base_[static_cast<std::size_t>(s.target)] + s.target_offset; }
  void deliver(const slot_step& s, std::size_t at, const std::byte* in, std::size_t bytes);
  void write(const slot_step& s, std::size_t at, const std::byte* data, std::size_t bytes);
  void write_ll128(const slot_step& s, std::size_t at, const std::byte* data, std::size_t bytes);
  void write_ll(const slot_step& s, std::size_t at, const std::byte* data, std::size_t bytes);
  void reduce_and_send(const slot_step& s, std::size_t at, const std::byte* in, std::size_t bytes);
  void combine(const slot_step& s, const std::byte* in, const std::byte* own, std::byte* out, std::size_t bytes) const;
  status finish() {
    board_->finish(rank_, sequence_);
    return status::performed;
  }

  std::uint32_t tag_of(const slot_step& s) const { return tag_ ^ s.salt; }

  const slot_program* code_ = nullptr;
  std::vector<slot_channel*> channels_;  ///< as slot_program::channels
  std::vector<lane_state> lanes_;
  std::size_t unfinished_ = 0;
  std::size_t steps_ = 0;           ///< of all operations
  std::byte* base_[6] = {};         ///< of the rank's own memory, by buffer_kind
  reduce_kernel kernel_ = nullptr;  ///< nullptr: a user's function
  op reduction_;                    ///< if the program reduces
  std::uint64_t generation_ = 0;
  std::uint64_t bound_ = 0;        ///< identity of the program that channels_ belong to
  std::uint32_t bound_lines_ = 0;  ///< that each of them has room for
  std::uint32_t stamp_ = 0;
  std::uint32_t tag_ = 0;
  std::uint32_t waits_ = 0;                ///< looks after which it waits
  mutable bool looks_everywhere_ = false;  ///< the next look, perhaps the one before a sleep, leaves no place out
  int unit_shift_ = 0;                     ///< of unit_of(type_, kind_)
  bool found_ring_ = false;                ///< there is another place to look at
  datatype type_ = datatype::u8;
  op_kind kind_ = op_kind::user;
  bool tiny_ = false;  ///< kernel_ is for messages of at most tiny_bytes
};

}  // namespace troupe
