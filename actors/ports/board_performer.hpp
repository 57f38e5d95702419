// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the ports on a board (slots, direct) offer to the holder of a rank's turn: one operation at a time, performed inline by the calling
// thread. No message announces progress there, so somebody has to look: advance(), and announce() before it sleeps.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/ports/slots/slot_board.hpp"
#include "protocols/collective.hpp"
#include "protocols/perform/performer.hpp"

namespace troupe {

/// One for each rank and port, kept for its operations one after the other. One owner at a time. A port adds start() with its kind
/// of program, with numbers greater than those of any operation of this rank before, the same at all ranks.
class board_performer {
public:
  enum class status : std::uint8_t { waiting, performed, mismatch };

  virtual ~board_performer() = default;

  /// Runs until nothing can go on. `mismatch`: `suspect()` called something else; the performer stays so until abandon(). Throws what a
  /// user's function throws.
  virtual status advance() = 0;
  /// Gives up an operation that will not be finished. When this returns, no peer touches this rank's buffers any more, and peers may
  /// reuse what it has written. Nothing if idle().
  virtual void abandon() = 0;

  virtual bool idle() const = 0;
  /// All ranks have come and none waits for another's message: the operation ends soon.
  virtual bool together() const { return false; }
  /// All that the operation still lacks is done by threads that were seen last on other cores than the caller's, as far as is known: who looks keeps none
  /// of them from it, and yielding helps nobody. Not known is whether a thread here was stopped in the middle of its part, so nobody should look for long.
  /// After advance(); some loads a rank.
  virtual bool waits_for_other_cores() const { return false; }
  /// The resource that each unfinished lane waits for. For verdicts; allocates.
  virtual std::vector<lane_wait> waits() const = 0;
  /// Tells a sleep what the rank waits for: a message of one peer or of anybody, and every peer whose credit a lane lacks.
  virtual void announce(slot_board::sleep& to) const = 0;
  /// Changes with every step that is performed. While it does not, an announcement is still true.
  virtual std::size_t steps_taken() const = 0;

  rank_t rank() const { return rank_; }
  slot_board& board() const { return *board_; }
  std::uint64_t sequence() const { return sequence_; }
  /// The rank that called something else. @pre advance() returned mismatch
  rank_t suspect() const { return suspect_; }

protected:
  board_performer(slot_board& board, rank_t rank) : board_(&board), rank_(rank) {}
  board_performer(board_performer&&) = default;
  board_performer& operator=(board_performer&&) = default;

  slot_board* board_;
  std::uint64_t sequence_ = 0;  ///< of the last operation that was started
  rank_t rank_;
  rank_t suspect_ = -1;
};

}  // namespace troupe
