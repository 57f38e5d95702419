// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank's end of the boards: performs its operations over slots and over the direct board, one after the other, on the port that
// their plan names.
//
// On the slot board a *message* is a few cache lines in the receiver's half of a slot channel; its header is the stamp of the *epoch*
// (sequence) beside the data. The *credit* is the receiver's word `done`: it has finished the epoch that used the half before. On the
// direct board the message is a rank's mark of the epoch: its buffers may be used. The mark of the end gives them back, which is the
// credit. The proofs are in slot_board.hpp and direct_board.hpp.
//
// Not synchronised: the holder of the rank's turn uses it. Remembers the rank's last calls, so that a repeated one costs no plan, no
// program and no allocation. Which port performs a call is asked when it is remembered, not when it is repeated.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "actors/ports/checked_calls.hpp"
#include "actors/ports/direct/direct_performer.hpp"
#include "actors/ports/remembered_calls.hpp"
#include "actors/ports/slots/slot_performer.hpp"
#include "protocols/call.hpp"
#include "protocols/plan.hpp"

namespace troupe::actors {

class board_port {
public:
  board_port(slot_board& board, rank_t rank)
      : board_(&board), rank_(rank), slots_(board, rank), direct_(board, rank), performer_(&slots_) {}
  board_port(const board_port&) = delete;
  board_port& operator=(const board_port&) = delete;

  // -- calls --
  /// Makes the remembered call that is like this one the last. False: there is none.
  bool recall(const call& what) { return calls_.recall(what); }
  /// Where such words were noted, if some were; else null. Others may ask without the turn: recall() looks again.
  const checked_calls::place* where_checked(const checked_call& words) const { return checked_.place_if(words); }
  /// The same of the one that these words were of, when they were noted there, with these sizes: a count, a call's, or a listed call's.
  template <class Sizes>
  bool recall(const checked_calls::place& at, const checked_call& words, const Sizes& sizes) {
    remembered_calls::entry* const known = at.of_words(words);
    if (known == nullptr) [[unlikely]]
      return false;
    calls_.recall(*known, sizes);
    // The last of its class may have had another one. Not written for nothing: what reads the whole operation next would wait for that.
    double& scale = known->what.reduction.scale;
    if (std::bit_cast<std::uint64_t>(scale) != words.scale) scale = std::bit_cast<double>(words.scale);
    return true;
  }
  /// The last call was said so, and found right.
  void note_checked(const checked_call& words) { checked_.put(words, calls_.last()); }
  /// The plan of such a call; null if none is remembered.
  std::shared_ptr<const plan> plan_of(const call& what) const;
  /// Makes it the last. Throws error(out_of_memory …). @pre how->on_board()
  void remember(const call& what, const std::shared_ptr<const plan>& how);
  /// @pre something was recalled or remembered
  remembered_calls::entry& last() { return calls_.last(); }

  // -- one operation --
  /// Begins the last remembered call. Operations must be started in the order of their numbers; numbers may be left out.
  /// @param ahead performed as plan::ahead says. @param history see call::history
  void start(const call_buffers& buffers, std::uint64_t sequence, bool ahead, std::uint64_t history) {
    remembered_calls::entry& known = calls_.last();
    // Operations that failed before they were begun here were not finished either, and peers wait for the slots that they have
    // written.
    if (board_->done(rank_) < sequence) [[unlikely]]
      board_->finish(rank_, sequence - 1);
    if (known.fits_as_planned()) start_slots(known, *(ahead ? known.ahead : known.slots), buffers, sequence, history);
    else if (known.is_direct_alone) start_direct(known, buffers, sequence, ahead, history);
    else start_fitted(known, buffers, sequence, ahead, history);
  }
  /// Runs until nothing can go on. Throws what a user's function throws. A blocking caller asks this in a loop; both classes are final,
  /// so this is a branch and no virtual call.
  board_performer::status advance() { return performer_ == &slots_ ? slots_.advance() : direct_.advance(); }
  std::size_t steps_taken() const { return performer_ == &slots_ ? slots_.steps_taken() : direct_.steps_taken(); }
  /// Brings the result into the form that the caller wants. @pre performed
  void conclude(void* output) {
    if (calls_.last().concludes) [[unlikely]]
      conclude_last(output);
  }
  /// The operation is not performed, and peers may reuse its slots. Ends when no peer touches its buffers. @pre started or not
  void drop(std::uint64_t sequence);

  /// Of the last operation.
  board_performer& performer() { return *performer_; }
  slot_board& board() { return *board_; }
  rank_t rank() const { return rank_; }  ///< on the board
  bool idle() const { return performer_->idle(); }

private:
  static constexpr std::size_t unfitted = static_cast<std::size_t>(-1), listed = unfitted - 1;  ///< as fitting::count

  static call_shape shape_of(const remembered_calls::entry& known, const call_buffers& buffers) {
    const call& what = known.what;
    call_shape shape{what.count, what.counts, buffers.input_displacements, buffers.output_displacements};
    shape.element_size = size_of(known.work_type);
    shape.received = what.receive_counts;
    // Of what is staged the input is packed, wherever its blocks lay.
    if (!known.stages) shape.lists_number = known.lists_number;
    return shape;
  }
  static std::byte* room(std::vector<std::byte>& where, std::size_t bytes) {
    if (where.size() < bytes) [[unlikely]]
      where.resize(bytes);
    return where.data();
  }
  static memory_map memory_of(const call_buffers& buffers) {
    memory_map memory;
    memory.input = const_cast<std::byte*>(static_cast<const std::byte*>(buffers.input));
    memory.output = static_cast<std::byte*>(buffers.output);
    return memory;
  }
  /// start() of a call that is staged, that might alias, or that is no plan's own size.
  void start_fitted(remembered_calls::entry& known, const call_buffers& buffers, std::uint64_t sequence, bool ahead,
                    std::uint64_t history);
  void start_on(remembered_calls::entry& known, const call_buffers& buffers, std::uint64_t sequence, bool ahead,
                std::uint64_t history);
  void start_slots(const remembered_calls::entry& known, const slot_program& code, const call_buffers& buffers,
                   std::uint64_t sequence, std::uint64_t history) {
    memory_map memory = memory_of(buffers);
    memory.scratch = room(scratch_, code.scratch_bytes);
    memory.l0 = room(l0_, code.l0_bytes);
    slots_.start(code, memory, known.work_type, known.what.reduction, sequence, known.fingerprint ^ history);
    performer_ = &slots_;
  }
  void start_direct(remembered_calls::entry& known, const call_buffers& buffers, std::uint64_t sequence, bool ahead,
                    std::uint64_t history) {
    direct_.start(*known.direct, memory_of(buffers), shape_of(known, buffers), known.work_type, known.what.reduction,
                  sequence, known.fingerprint ^ history, ahead, &known.of_direct);
    performer_ = &direct_;
  }
  void conclude_last(void* output);
  void stage(remembered_calls::entry& known, call_buffers& buffers);
  static const slot_program& fitted(const remembered_calls::entry& known, const slot_program& code,
                                    remembered_calls::fitting& copy, const call_shape& shape);

  slot_board* board_;
  rank_t rank_;
  slot_performer slots_;
  direct_performer direct_;
  board_performer* performer_;
  remembered_calls calls_;
  checked_calls checked_;
  /// The last one that lost its place among the remembered, as others may still refer to the last operation's program: an operation does not count
  /// itself among a program's users, as all ranks would write to that number.
  std::unique_ptr<remembered_calls::entry> displaced_;
  std::vector<std::byte> scratch_, l0_;
  /// An input that is widened or scaled; or that of a call in place, whose plan is for separate buffers.
  std::vector<std::byte> apart_;
  std::vector<std::byte> result_;  ///< not yet rounded
};

}  // namespace troupe::actors
