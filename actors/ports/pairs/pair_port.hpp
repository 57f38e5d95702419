// SPDX-License-Identifier: Apache-2.0
#pragma once
// The two ends of a message on the pair board, as transitions: each does what can be done at once and returns. The invariants that
// they keep are told in pair_board.hpp.
//
// Owner of an end: its rank's pairs (actors/rank/pairs.hpp), on the rank's turn. An end is looked at again and again by whoever has
// nothing else to do, or goes away and is told: then the other end's transition says `tell`, and its rank wakes
// it on the board or sends a word.
// Cost: no allocation, no lock, no system call; one read-modify-write at each end of a small message.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "actors/ports/pairs/pair_board.hpp"
#include "actors/ports/segment/staging_copier.hpp"
#include "actors/ports/segment/staging_trials.hpp"

namespace troupe {

/// `failed`: the system copies nothing between the two ends' processes any more (process_memory::why_refused). Both ends stop it.
enum class pair_status : std::uint8_t { waiting, performed, mismatch, failed };

/// The memory of the other end, if that is in another process.
struct pair_far_end {
  process_memory* memory = nullptr;  ///< null: its addresses are this process's
  rank_t rank = -1;
  /// Of a sender: as long as the message; where the receiver finds what is copied there (pair_staging.hpp). Null: there is none.
  std::byte* staging = nullptr;
  staging_copier* copier = nullptr;  ///< if there is a staging buffer
  way_trials* trials = nullptr;      ///< of a sender: wants to know how long the message took; null: nobody does
};

/// When a sender's end is over.
enum class sent_when : std::uint8_t {
  taken,   ///< the receiver has it
  copied,  ///< it lies whole on the board: the message is *left* there. @pre it fits its head, or the lane has room and it fits that
};

class pair_end {
public:
  pair_end() = default;
  /// @param number of the message in its lane @param shape what must be equal at both ends
  /// @param far the other end's memory, if that is in another process
  /// @param left_before mark of the last message that was left in this slot, which may still lie there; 0: none
  static pair_end of_sender(pair_lane& lane, std::uint64_t number, std::uint64_t shape, const void* data,
                            std::size_t bytes, pair_far_end far = {}, sent_when over = sent_when::taken,
                            std::uint64_t left_before = 0) {
    pair_end made{lane, number, shape, const_cast<void*>(data), bytes, true, far};
    made.left_before_ = left_before;
    made.over_ = over;
    return made;
  }
  static pair_end of_receiver(pair_lane& lane, std::uint64_t number, std::uint64_t shape, void* data, std::size_t bytes,
                              pair_far_end far = {}) {
    return {lane, number, shape, data, bytes, false, far};
  }

  bool sending() const { return sending_; }
  /// The other end is in another process.
  bool is_far() const { return far_.memory != nullptr; }

  /// From a receiver: there will be an answer to write soon.
  void prepare_answer();
  /// Writes a sender's message, if the slot is free; look afterwards, which tries again. @pre message number − depth is over at this end
  void post();
  /// From a sender: the message `left` of slot `slot` (its mark; 0: none) was taken.
  static bool was_taken(pair_lane& lane, std::size_t slot, std::uint64_t left) {
    return left == 0 || !is_before(lane.finished.of[slot].load(std::memory_order_seq_cst), left);
  }
  /// From a sender: the message that was left in the slot will not be taken.
  void release_slot(std::uint64_t mark) {
    if (left_before_ == mark) left_before_ = 0;
  }
  /// From a sender: its buffer goes back although the receiver, which counts as lost, may live and be reading it. That takes nothing of
  /// what it has read then. @pre it has stopped: not to be looked at any more
  void withdraw();
  std::uint64_t mark() const { return mark_; }
  /// From a sender: it is over, and may still lie in its slot.
  bool left() const { return posted_ && over_ == sent_when::copied; }
  /// Does what can be done. A mismatch only receivers find. @pre posted, not closed
  pair_status look() {
    // Most looks find nothing, and a rank that waits for a message looks as fast as it can.
    if (sending_) {
      if (!posted_) {
        post();
        if (!posted_) return pair_status::waiting;
      }
      if (left() || finished()) {
        if (far_.trials != nullptr) tell_time();
        return pair_status::performed;
      }
      return is_away() && !takes_from_staging() ? help() : pair_status::waiting;
    }
    if (slot_->head.stamp.load(std::memory_order_seq_cst) != mark_ && !offered_) return pair_status::waiting;
    return take();
  }
  /// From a receiver: others may perform it. Look again afterwards. @pre message number − depth is over at this end
  void offer();
  /// Wants to be told from now on. Look again afterwards.
  void go_away();
  /// From a receiver: nobody writes to its buffer any more. True: the message was performed before. May wait for the rest of a unit
  /// that the sender is copying.
  bool close();
  /// From a sender: it is over.
  bool sent() const { return finished() || left(); }
  /// Something has changed since the last question, and the other end wants to be told.
  bool tells() { return std::exchange(tells_, false); }

  /// From here on a message is copied in units of at least this size, by both ends where both are there: twice a core's speed is worth
  /// more than what sharing costs (some 100 ns a unit).
  static constexpr std::size_t unit_bytes = 32 * 1024;
  static constexpr std::size_t far_unit_bytes =
      64 * 1024;  ///< between processes: a copy by the system costs 500 ns more
  static constexpr std::size_t shared_from = 2 * unit_bytes;

private:
  pair_end(pair_lane& lane, std::uint64_t number, std::uint64_t shape, void* data, std::size_t bytes, bool sending,
           pair_far_end far)
      : lane_(&lane),
        slot_(&lane.at(number)),
        mark_(number + 1),
        shape_(shape),
        data_(static_cast<std::byte*>(data)),
        bytes_(bytes),
        far_(far),
        sending_(sending) {}

  const std::byte* stage_what_it_reads();
  void tell_time();
  void stage_unit(std::uint64_t which);
  /// How many units of the message may be claimed: the others do not lie in the staging buffer yet. @pre of a receiver: it has seen the stamp
  std::uint64_t units_there() const;
  /// Of a receiver: where the message lies on the board; null: it does not.
  const std::byte* at_hand() const;
  pair_status help();
  pair_status take();
  pair_status take_offered();
  /// From a sender: the receiver is not looking, or will not be for long.
  bool is_away() const { return slot_->answer.offered.load(std::memory_order_seq_cst) == mark_; }
  /// From a sender: the receiver looks, and copies faster than the system would for this end.
  bool takes_from_staging() const {
    return far_.staging != nullptr && slot_->answer.tell.load(std::memory_order_seq_cst) != mark_;
  }
  pair_status copy_units(std::byte* target, const std::byte* source);
  pair_status copy_unit(std::uint64_t which, std::byte* target, const std::byte* source);
  /// Of a message of which nobody can claim a unit.
  pair_status how_it_ended() const;
  bool claim(std::uint64_t& unit);
  pair_status move(std::byte* target, const std::byte* source, std::size_t bytes) const;
  void finish();
  static bool is_before(std::uint64_t mark, std::uint64_t other) { return static_cast<std::int64_t>(mark - other) < 0; }
  /// From a receiver, after it has read: it may have read anything. Within a process nobody is lost before it touches nothing any more.
  bool was_withdrawn() const;
  bool has_failed() const { return slot_->answer.failed.load(std::memory_order_acquire) == mark_; }
  bool finished() const { return lane_->finished_at(mark_ - 1).load(std::memory_order_seq_cst) == mark_; }
  std::size_t unit() const;
  std::uint64_t units() const;

  pair_lane* lane_ = nullptr;
  pair_slot* slot_ = nullptr;
  std::uint64_t mark_ = 0;
  std::uint64_t shape_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  pair_far_end far_;
  const std::byte* source_ = nullptr;  ///< of a receiver that has offered, once it knows that the message fits …
  bool differs_ = false;               ///< … or that it does not
  std::uint64_t left_before_ = 0;
  sent_when over_ = sent_when::taken;
  bool sending_ = false;
  bool posted_ = false;
  bool away_ = false;
  bool offered_ = false;
  bool closed_ = false;
  bool tells_ = false;
  bool told_ = false;                              ///< that there is a message
  std::chrono::steady_clock::time_point begun_{};  ///< if its time is wanted
};

}  // namespace troupe
