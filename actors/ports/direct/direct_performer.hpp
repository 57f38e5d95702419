// SPDX-License-Identifier: Apache-2.0
#pragma once
// Performs one rank's part in operations over a direct board, inline in the calling thread: its own body and, while others sleep or
// work, units of theirs. The protocol and why it is safe: direct_board.hpp.
//
// advance() never waits, but may work for as long as there are units. Passes fold in the order of their inputs. A user's function
// is that of the rank whose thread performs the unit, on elements of any rank's share.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "actors/ports/board_performer.hpp"
#include "actors/ports/direct/direct_board.hpp"
#include "actors/ports/direct/direct_fit.hpp"
#include "actors/ports/direct/store_trials.hpp"
#include "actors/ports/segment/staging_copier.hpp"
#include "actors/ports/segment/staging_memory.hpp"
#include "actors/ports/segment/staging_trials.hpp"
#include "memory/types/types.hpp"
#include "protocols/program/direct_program.hpp"

namespace troupe {

class direct_performer final : public board_performer {
public:
  /// @param board outlives the performer.
  direct_performer(slot_board& board, rank_t rank)
      : board_performer(board, rank),
        others_(board.memory().peers()),
        between_(board.between_processes()),
        input_staging_(others_),
        output_staging_(others_) {}

  /// Nobody is told before advance(). @param code outlives the operation, and is alike at all ranks with the same fingerprint.
  /// @param memory without scratch, which the performer has itself. @param shape as the rank knows it: of blocks of different sizes what its
  /// call says; its lists are copied. @param ahead the rank may end before all others are known to have come (calls_ahead.hpp); the same at
  /// all ranks. @param kept what was made of such a call before, or will be; outlives the operation. @pre idle(). Throws std::bad_alloc before anything is changed.
  void start(const direct_program& code, const memory_map& memory, const call_shape& shape, datatype type,
             const op& reduction, std::uint64_t sequence, std::uint64_t fingerprint, bool ahead = false,
             direct_fit* kept = nullptr);

  /// When a user's function has thrown, nobody can perform the operation any more.
  status advance() override;
  /// Waits for units that peers are at.
  void abandon() override;

  bool idle() const override { return phase_ == phase::none; }
  bool together() const override { return phase_ > phase::at_odds && !ahead_; }
  /// Of large results of the operation under way, as its sizes say or as is tried. @pre not idle()
  store_hint stores() const { return sizes().equal() ? stores_.hint : sizes().stores(); }
  bool waits_for_other_cores() const override;
  std::vector<lane_wait> waits() const override;
  /// The rank that finishes the last unit wakes all others.
  void announce(slot_board::sleep& to) const override { to.announce(rank_, awaited()); }
  std::size_t steps_taken() const override {
    return static_cast<std::size_t>(met_) + worked_ + (phase_ > phase::coming ? 1 : 0);
  }

private:
  /// A sleeper that is woken takes some 10 µs to come; less work than this is done by then. And less is in nobody's cache for long.
  static constexpr std::size_t much_bytes = 1024 * 1024;
  /// Between processes a rank that brings more than this has it in its staging buffer as well: if another rank brings nothing, all work on the buffers.
  static constexpr std::size_t little_bytes = 1024;
  enum class phase : std::uint8_t { none, coming, meeting, at_odds, working, leaving };
  struct buffers {
    std::byte* input;
    std::byte* output;
    std::byte* scratch;
    double factor;  ///< of the input
    // Addresses are this process's. Of the rank's own, and where all ranks are here, nobody asks.
    bool input_near = true, output_near = true, scratch_near = true;
    bool near(buffer_kind kind) const {
      return kind == buffer_kind::input ? input_near : kind == buffer_kind::output ? output_near : scratch_near;
    }
  };
  /// While it lives, others' buffers may be touched.
  class touching_others {
  public:
    touching_others(direct_board::rank_words& mine, std::uint64_t mark) : mine_(mine) {
      mine_.touching.store(mark, std::memory_order_seq_cst);
    }
    ~touching_others() { mine_.touching.store(0, std::memory_order_release); }
    touching_others(const touching_others&) = delete;
    touching_others& operator=(const touching_others&) = delete;

  private:
    direct_board::rank_words& mine_;
  };

  direct_board& meeting_place() const;
  const direct_sizes& sizes() const { return fit_->sizes; }
  void come();
  status meet();
  status meet(rank_t which);
  status differs(rank_t suspect);
  bool work();
  bool work_on(rank_t body, bool from_end, std::size_t& done);
  void finished(std::size_t shares, std::atomic<std::size_t>& left, double took = 0) const;
  bool is_over() const;
  status wait_for_end();
  status leave();
  status leave_early();
  void give_up() const;
  bool all_here(std::memory_order order) const;
  struct claimed {
    std::uint32_t unit = 0, units = 0;
  };
  bool claim(rank_t body, bool from_end, claimed& unit) const;
  void prepare();
  bool is_small() const;
  std::size_t own_elements() const;  ///< that the rank gives
  bool known_to_all() const { return traits_of(code_->what).v == v_counts::common; }
  void list_takes();
  void pack();
  std::uint64_t balance_of_own() const;
  bool bring();
  bool may_reuse(std::uint64_t last);
  status meet_with_snapshots();
  status take(bool last);
  bool take_copy(const direct_fit::taken& block) const;
  // direct_ahead.cpp
  bool gives_in_advance() const;
  bool has_brought(rank_t which) const;
  /// The rank whose message moves this one; slot_board::anybody: more than one may.
  rank_t awaited() const;
  bool lacks(rank_t which) const;
  status advance_ahead();
  status hand_out();
  status receive();
  status hand_in();
  status collect();
  status collect_from(const direct_fit::taken& block);
  bool take_brought(const direct_fit::taken& block);
  bool take_soon(const direct_fit::taken& block);
  template <class Seen>
  bool look_for(Seen&& seen) const;
  void look_for_copy(rank_t from) const;
  bool copy_own() const;
  bool work_with(rank_t other, rank_t body);
  void put_own_first(std::span<const cell_range> outputs);
  store_hint stores_to(std::span<const cell_range> outputs) const;
  bool is_rooted() const { return traits_of(code_->what).root != root_role::none; }
  status perform(const direct_program::body& body, claimed unit);
  bool fits(std::span<const cell_range> operands);
  std::byte* address(const cell_range& at) const;
  // direct_between.cpp
  struct stretch {
    std::size_t begin, end;  ///< elements of each operand
  };
  void list();
  const block_lists* lists_of(rank_t which);
  bool is_here(const cell_range& at) const { return buffers_[static_cast<std::size_t>(at.owner)].near(at.buffer); }
  void map_what_is_shared(rank_t which);
  bool perform_between(const direct_program::pass& p, stretch which);
  buffers stage_what_others_use();
  void copy_input(std::byte* to, std::span<const std::uint32_t> some);
  void take_from_staging();
  copy_costs::use use_of(std::size_t bytes, bool input) const;
  void choose_stores();
  double time_a_byte(std::size_t done, std::chrono::steady_clock::time_point begun) const;
  bool worth_staging(std::size_t bytes, bool input) const;
  struct staged {
    bool input, output;
  };
  staged choose_staged(std::size_t input, std::size_t output);
  bool copies_alone() const;
  bool works_alone() const;
  bool work_alone();
  bool copy_to_own(const direct_program::copy_between& which);
  bool copy_between(std::span<const cell_range> operands, stretch which);
  bool fold_between(const direct_program::pass& p, stretch which);
  void tell_all() const;
  void wake_helpers() const;

  const direct_program* code_ = nullptr;
  process_memory* others_;                         ///< null: the addresses are this process's
  bool between_;                                   ///< ranks are in several processes
  std::vector<std::byte> pieces_;                  ///< pieces of others' memory
  std::vector<block_lists> lists_read_;            ///< by rank
  staging_memory input_staging_, output_staging_;  ///< of direct_staging.hpp; kept
  staging_copier copier_;
  struct {
    std::vector<staging_trials> of;  ///< by collective; empty: nothing is tried
    way_trials* asked = nullptr;     ///< by the operation, whose time they want; null: none
    bool staged = false;             ///< what they said
    std::size_t bytes = 0;
    std::chrono::steady_clock::time_point begun{};
  } trials_;
  struct {
    std::vector<store_trials> of;  ///< by collective; empty: nothing is tried
    way_trials* asked = nullptr;   ///< by the operation, whose time they want; null: none
    store_hint hint = store_hint::cached;
  } stores_;
  std::vector<std::byte> scratch_;
  std::vector<buffers> buffers_;  ///< by rank; of those met
  std::vector<const void*> in_;
  std::vector<void*> out_;
  std::vector<double> factors_;
  op reduction_;
  buffers mine_{};       ///< the caller's
  buffers of_bodies_{};  ///< on which bodies work: its, or staging buffers
  bool output_staged_ = false;
  bool all_shared_ = true;  ///< as far as they are met, all callers' buffers are mapped by all
  bool alone_ = false;      ///< each rank performs the copies to its own output
  std::uint64_t mark_ = 0;
  std::uint64_t fingerprint_ = 0;
  std::size_t worked_ = 0;     ///< units
  direct_fit own_fit_;         ///< of calls that nobody keeps
  direct_fit* fit_ = nullptr;  ///< of the operation
  // Of snapshots:
  std::uint64_t balance_ = 0;                      ///< of the ranks met
  std::uint64_t brought_[snapshots::places] = {};  ///< 1 + the operation that used the place last; 0: none
  std::uint64_t annexed_[snapshots::places] = {};  ///< the same of annexes
  std::uint64_t all_finished_ = 0;                 ///< all ranks are known to have finished all operations before
  bool all_brought_ = false;                       ///< so have the ranks met so far
  rank_t met_ = 0;                                 ///< all ranks before it are here
  bool ahead_ = false;                             ///< a rank that only gives may leave at once
  bool lent_ = false;                              ///< the root has seen a rank that waits for `over`
  std::size_t taken_ = 0;  ///< blocks that the root has taken from copies, and not counted as finished
  datatype type_ = datatype::u8;
  phase phase_ = phase::none;
};

}  // namespace troupe
