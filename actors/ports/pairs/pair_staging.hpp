// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a rank copies what it sends to ranks of other processes, so that they find it in memory that they map, if two copies by cores cost less than
// one by the system, which is entered for it, and looks up every page (copy_costs.hpp): short messages mostly, long ones on some computers.
//
// A place for each destination and slot of its lane, for short messages: it is the message's for as long as the slot is (pair_board.hpp, 2). And one
// place for a long message, to whomever: while that has not been taken, the system copies further ones. The receiver only reads a place.
// Owner: the sender's pairs, on its rank's turn. Memory: 2 MiB a rank at most for the short ones, from the first on, of which the system gives what is
// written to; for the long ones as much as the longest has needed: up to 2 MiB, and up to 16 once several were longer than that. New memory
// costs as much as some copies by the system.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "actors/ports/pairs/pair_board.hpp"
#include "actors/ports/segment/staging_copier.hpp"
#include "actors/ports/segment/staging_memory.hpp"
#include "actors/ports/segment/staging_trials.hpp"

namespace troupe {

class pair_staging {
public:
  static constexpr std::size_t longest_place = 64 * 1024;       ///< of those for short messages
  static constexpr std::size_t most_short = 2 * 1024 * 1024;    ///< of all of them
  static constexpr std::size_t most_at_once = 2 * 1024 * 1024;  ///< of a place for the first long message
  static constexpr int several = 8;                             ///< messages, after which there may be a longer one
  /// Message that is staged at all.
  static constexpr std::size_t longest = 16 * 1024 * 1024;

  /// @param others of the board's ranks, which outlive it; null: none in other processes
  pair_staging(process_memory* others, int ranks)
      : short_(others),
        long_(others),
        ranks_(static_cast<std::size_t>(ranks)),
        place_(std::min(longest_place, most_short / (ranks_ * pair_lane::depth) / 64 * 64)) {}

  /// For the message that is posted next in the lane. Null: there is none. @pre the slot is the message's
  std::byte* place(rank_t to, pair_lane& lane, std::uint64_t number, std::size_t bytes) {
    return bytes <= place_ ? short_place(to, number) : bytes <= longest ? long_place(lane, number, bytes) : nullptr;
  }

  staging_copier& copier() { return copier_; }
  staging_trials& trials() { return trials_; }

private:
  std::byte* short_place(rank_t to, std::uint64_t number) {
    if (!tried_) {
      tried_ = true;
      short_.reserve(ranks_ * pair_lane::depth * place_);
    }
    if (short_.get() == nullptr) return nullptr;
    return short_.get() + (static_cast<std::size_t>(to) * pair_lane::depth + number % pair_lane::depth) * place_;
  }
  std::byte* long_place(pair_lane& lane, std::uint64_t number, std::size_t bytes) {
    if (user_ != nullptr && !user_->is_over(user_number_)) return nullptr;
    if (bytes > most_at_once && bytes > long_.bytes() && longer_++ < several) return nullptr;
    std::byte* const at = long_.grow(bytes);  // a copy that waits for new pages would be taken for a slow one
    user_ = at != nullptr ? &lane : nullptr;
    user_number_ = number;
    return at;
  }

  staging_memory short_, long_;
  staging_copier copier_;
  staging_trials trials_;
  std::size_t ranks_, place_;
  bool tried_ = false;
  int longer_ = 0;             ///< than there was a place for
  pair_lane* user_ = nullptr;  ///< whose message has the long place
  std::uint64_t user_number_ = 0;
};

}  // namespace troupe
