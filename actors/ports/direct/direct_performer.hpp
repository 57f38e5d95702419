#pragma once
// Performs one rank's part in operations over a direct board, inline in the calling thread: its own body and, while others sleep or
// work, units of theirs. The protocol and why it is safe: direct_board.hpp.
//
// advance() never waits, but may work for as long as there are units. Passes fold in the order of their inputs. A user's function
// is that of the rank whose thread performs the unit, on elements of any rank's share.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/ports/direct/direct_board.hpp"
#include "memory/types/types.hpp"
#include "protocols/perform/performer.hpp"
#include "protocols/program/direct_program.hpp"

namespace troupe {

class slot_board;

/// One for each rank, kept for its operations one after the other. One owner at a time.
class direct_performer {
public:
  enum class status : std::uint8_t { waiting, performed, mismatch };

  /// @param board outlives the performer.
  direct_performer(slot_board& board, rank_t rank) : board_(&board), rank_(rank) {}

  /// Nobody is told before advance(). @param code outlives the operation, and is alike at all ranks with the same fingerprint.
  /// @param sequence greater than that of any operation of this rank before, the same at all ranks.
  /// @pre idle(). Throws std::bad_alloc before anything is changed.
  void start(const direct_program& code, const memory_map& memory, datatype type, const op& reduction,
             std::uint64_t sequence, std::uint64_t fingerprint);

  /// `mismatch`: missing() called something else; stays so until abandon(). Throws what a user's function throws; then nobody can
  /// perform the operation any more.
  status advance();

  /// When this returns, no peer touches this rank's buffers, nor will. Waits for units that peers are at. Nothing if idle().
  void abandon();

  bool idle() const { return stage_ == stage::none; }
  /// Every rank has come: the operation ends without any rank's doing more than what it is at.
  bool together() const { return stage_ > stage::at_odds; }
  /// Who is not here yet, or called something else; −1: nobody.
  rank_t missing() const { return stage_ == stage::meeting || stage_ == stage::at_odds ? met_ : -1; }
  std::size_t steps_taken() const {
    return static_cast<std::size_t>(met_) + worked_ + (stage_ > stage::coming ? 1 : 0);
  }

private:
  enum class stage : std::uint8_t { none, coming, meeting, at_odds, working, leaving };
  struct buffers {
    std::byte* input;
    std::byte* output;
    std::byte* scratch;
  };
  class touching_others;

  direct_board& meeting_place() const;
  void come();
  status meet();
  void work();
  bool is_over() const;
  status leave();
  bool all_here(std::memory_order order) const;
  bool claim(rank_t body, std::uint32_t& unit) const;
  void perform(const direct_program::body& body, std::uint32_t unit);
  std::byte* address(const location& at) const;
  void tell_all() const;
  void wake_helpers() const;

  slot_board* board_;
  const direct_program* code_ = nullptr;
  std::vector<buffers> buffers_;  ///< by rank; of those met
  std::vector<const void*> in_;
  std::vector<void*> out_;
  op reduction_;
  buffers mine_{};
  std::uint64_t sequence_ = 0;
  std::uint64_t mark_ = 0;
  std::uint64_t fingerprint_ = 0;
  std::size_t worked_ = 0;  ///< units
  rank_t rank_;
  rank_t met_ = 0;  ///< all ranks before it are here
  datatype type_ = datatype::u8;
  stage stage_ = stage::none;
};

}  // namespace troupe
