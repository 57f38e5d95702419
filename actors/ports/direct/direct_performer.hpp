// SPDX-License-Identifier: Apache-2.0
#pragma once
// Performs one rank's part in operations over a direct board, inline in the calling thread: its own body and, while others sleep or
// work, units of theirs. The protocol and why it is safe: direct_board.hpp.
//
// advance() never waits, but may work for as long as there are units. Passes fold in the order of their inputs. A user's function
// is that of the rank whose thread performs the unit, on elements of any rank's share.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/ports/board_performer.hpp"
#include "actors/ports/direct/direct_board.hpp"
#include "memory/types/types.hpp"
#include "protocols/program/direct_program.hpp"
#include "protocols/program/direct_sizes.hpp"

namespace troupe {

class direct_performer final : public board_performer {
public:
  /// @param board outlives the performer.
  direct_performer(slot_board& board, rank_t rank) : board_performer(board, rank) {}

  /// Nobody is told before advance(). @param code outlives the operation, and is alike at all ranks with the same fingerprint.
  /// @param memory without scratch, which the performer has itself. @param shape as the rank knows it: of blocks of different sizes what its
  /// call says; its lists are copied. @pre idle(). Throws std::bad_alloc before anything is changed.
  void start(const direct_program& code, const memory_map& memory, const call_shape& shape, datatype type,
             const op& reduction, std::uint64_t sequence, std::uint64_t fingerprint);

  /// When a user's function has thrown, nobody can perform the operation any more.
  status advance() override;
  /// Waits for units that peers are at.
  void abandon() override;

  bool idle() const override { return stage_ == stage::none; }
  bool together() const override { return stage_ > stage::at_odds; }
  std::vector<lane_wait> waits() const override;
  /// Whoever finishes the last unit wakes everybody.
  void announce(slot_board::sleep& to) const override { to.announce(rank_, slot_board::anybody); }
  std::size_t steps_taken() const override {
    return static_cast<std::size_t>(met_) + worked_ + (stage_ > stage::coming ? 1 : 0);
  }

private:
  enum class stage : std::uint8_t { none, coming, meeting, at_odds, working, leaving };
  struct buffers {
    std::byte* input;
    std::byte* output;
    std::byte* scratch;
    double factor;  ///< of the input
  };
  class touching_others;

  direct_board& meeting_place() const;
  void come();
  status meet();
  bool work();
  bool is_over() const;
  status leave();
  void give_up() const;
  bool all_here(std::memory_order order) const;
  struct claimed {
    std::uint32_t unit = 0, units = 0;
  };
  bool claim(rank_t body, claimed& unit) const;
  bool may_bring() const;
  void pack();
  bool bring();
  bool may_reuse(std::uint64_t last) const;
  status meet_with_snapshots();
  status take(bool last);
  bool perform(const direct_program::body& body, claimed unit);
  bool fits(std::span<const cell_range> operands);
  std::byte* address(const cell_range& at) const;
  void tell_all() const;
  void wake_helpers() const;

  const direct_program* code_ = nullptr;
  direct_sizes sizes_;
  std::vector<std::byte> scratch_;
  std::vector<buffers> buffers_;  ///< by rank; of those met
  std::vector<const void*> in_;
  std::vector<void*> out_;
  std::vector<double> factors_;
  op reduction_;
  buffers mine_{};
  std::uint64_t mark_ = 0;
  std::uint64_t fingerprint_ = 0;
  std::size_t worked_ = 0;  ///< units
  // Of snapshots:
  bool unpacked_ = false;                                          ///< the sizes have changed
  bool small_ = false;                                             ///< what the rank has fits
  std::uint64_t own_balance_ = 0;                                  ///< of the rank alone
  std::array<std::uint16_t, snapshots::most_ranks + 1> begins_{};  ///< see snapshots::place
  std::uint64_t balance_ = 0;                                      ///< of the ranks met
  std::uint64_t brought_[2] = {};  ///< 1 + the operation that used the rank's place last; 0: none
  std::uint64_t all_came_ = 0;     ///< 1 + the last operation that all ranks are known to have come to
  bool all_brought_ = false;       ///< so have the ranks met so far
  rank_t met_ = 0;                 ///< all ranks before it are here
  datatype type_ = datatype::u8;
  stage stage_ = stage::none;
};

}  // namespace troupe
