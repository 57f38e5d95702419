// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a rank copies what it sends to ranks of other processes, so that they find it in memory that they map: a copy by a core costs a fraction
// of one by the system, which is entered for it besides. Of a message that is longer than a place the system copies.
//
// One place for each destination and slot of its lane. It is the message's for as long as the slot is (pair_board.hpp, 2). The receiver only
// reads it; the sender's own buffer stays what the sender itself copies from where the receiver is away.
// Owner: the sender's pairs, on its rank's turn. Memory: 2 MiB a rank at most, from its first such message on, of which the system gives what
// is written to.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "actors/ports/pairs/pair_board.hpp"
#include "actors/ports/segment/stage_memory.hpp"

namespace troupe {

class pair_stages {
public:
  /// From here on a message is worth it that two copies take longer than the system's one, which both ends share then (pair_port.hpp).
  static constexpr std::size_t longest_place = 64 * 1024;
  static constexpr std::size_t most_bytes = 2 * 1024 * 1024;

  /// @param others of the board's ranks, which outlive it; null: none in other processes
  pair_stages(process_memory* others, int ranks)
      : memory_(others),
        ranks_(static_cast<std::size_t>(ranks)),
        place_(std::min(longest_place, most_bytes / (ranks_ * pair_lane::depth) / 64 * 64)) {}

  /// Longer messages have no place. 0: none has.
  std::size_t longest() const { return place_; }
  /// Null: the system gives no such memory. @pre the slot is the message's
  std::byte* place(rank_t to, std::uint64_t number) {
    if (!tried_) {
      tried_ = true;
      memory_.grow(ranks_ * pair_lane::depth * place_);
    }
    if (memory_.get() == nullptr) return nullptr;
    return memory_.get() + (static_cast<std::size_t>(to) * pair_lane::depth + number % pair_lane::depth) * place_;
  }

private:
  stage_memory memory_;
  std::size_t ranks_, place_;
  bool tried_ = false;
};

}  // namespace troupe
