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
// Not synchronised: whoever has the rank's turn uses it. Remembers the rank's last calls, so that a repeated one costs no plan, no
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
  /// The same of the one that these words were of, when they were noted, with these sizes: a count, a call's, or a listed call's. Others may
  /// ask may_repeat() without the turn.
  template <class Sizes>
  bool recall(const checked_call& words, const Sizes& sizes) {
    remembered_calls::entry* const known = checked_.find(words);
    if (known == nullptr) return false;
    calls_.recall(*known, sizes);
    known->what.reduction.scale = std::bit_cast<double>(words.scale);  // the last of its class may have had another one
    return true;
  }
  bool may_repeat(const checked_call& words) const { return checked_.may_be(words); }
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
  void start(const call_buffers& memory, std::uint64_t sequence, bool ahead, std::uint64_t history);
  /// Runs until nothing can go on. Throws what a user's function throws. A blocking caller asks this in a loop; both classes are final,
  /// so this is a branch and no virtual call.
  board_performer::status advance() { return performer_ == &slots_ ? slots_.advance() : direct_.advance(); }
  std::size_t steps_taken() const { return performer_ == &slots_ ? slots_.steps_taken() : direct_.steps_taken(); }
  /// Brings the result into the form that the caller wants. @pre performed
  void conclude(void* output);
  /// The operation is not performed, and peers may reuse its slots. Ends when no peer touches its buffers. @pre started or not
  void drop(std::uint64_t sequence);

  /// Of the last operation.
  board_performer& performer() { return *performer_; }
  slot_board& board() { return *board_; }
  rank_t rank() const { return rank_; }  ///< on the board
  bool idle() const { return performer_->idle(); }

private:
  static constexpr std::size_t unfitted = static_cast<std::size_t>(-1), listed = unfitted - 1;  ///< as fitting::count

  static call_shape shape_of(const remembered_calls::entry& known, const call_buffers& buffers);
  const void* set_apart(const remembered_calls::entry& known, const call_buffers& buffers);
  std::size_t own_elements(const call& what, const block_run& run, std::size_t i) const;
  std::size_t elements_of(const call& what, const block_run& run) const;
  void start_on(remembered_calls::entry& known, const call_buffers& buffers, std::uint64_t sequence, bool ahead,
                std::uint64_t history);
  void stage(const remembered_calls::entry& known, call_buffers& buffers);
  static void stage_elements(const remembered_calls::entry& known, const std::byte* from, std::byte* to,
                             std::size_t count);
  static const std::shared_ptr<const slot_program>& fitted(const remembered_calls::entry& known,
                                                           const std::shared_ptr<const slot_program>& code,
                                                           remembered_calls::fitting& copy, const call_shape& shape);

  slot_board* board_;
  rank_t rank_;
  slot_performer slots_;
  direct_performer direct_;
  board_performer* performer_;
  remembered_calls calls_;
  checked_calls checked_;
  // What is performed outlives its place among the remembered.
  std::shared_ptr<const slot_program> slots_code_;
  std::shared_ptr<const direct_program> direct_code_;
  std::vector<std::byte> scratch_, l0_;
  /// An input that is widened or scaled; or that of a call in place, whose plan is for separate buffers.
  std::vector<std::byte> apart_;
  std::vector<std::byte> result_;  ///< not yet rounded
};

}  // namespace troupe::actors
