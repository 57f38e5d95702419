// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/pairs/pair_board.hpp"

#include <string>

#include "memory/error.hpp"

namespace troupe {

namespace {

[[noreturn]] void no_memory_for_pairs(std::size_t bytes) {
  throw error(errc::out_of_memory,
              "a send or receive needs " + std::to_string(bytes) +
                  " bytes for the pair's slots, which the system refuses; use fewer ranks or the protocol 'simple'");
}

}  // namespace

pair_board::pair_board(int ranks, board_memory& memory)
    : ranks_(static_cast<std::size_t>(ranks)), memory_(&memory), rows_(memory.roots<relative<cell>>(ranks_)) {}

pair_board::cell* pair_board::row(rank_t source) {
  relative<cell>& at = rows_[source];
  if (cell* const found = at.load(std::memory_order_acquire)) return found;
  auto* const made = static_cast<cell*>(memory_->take(ranks_ * sizeof(cell)));
  if (made == nullptr) no_memory_for_pairs(ranks_ * sizeof(cell));
  cell* const first = at.publish(made);
  if (first == nullptr) return made;
  memory_->give_back(made);
  return first;
}

pair_lane& pair_board::lane(rank_t source, rank_t destination) {
  return memory_->lay_down<pair_lane>(row(source)[destination], no_memory_for_pairs);
}

bool pair_board::make_room(pair_lane& lane) noexcept {
  if (lane.left.load(std::memory_order_acquire) != nullptr) return true;
  void* const bytes = memory_->take(sizeof(pair_lane::room));
  if (bytes == nullptr) return false;
  if (lane.left.publish(static_cast<pair_lane::room*>(bytes)) != nullptr) memory_->give_back(bytes);
  return true;
}

std::size_t pair_board::most_bytes(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return n * sizeof(relative<cell>) + 2 * n * (n * sizeof(cell) + board_memory::alignment) +
         2 * n * n * (sizeof(pair_lane) + sizeof(pair_lane::room));
}

std::size_t pair_board::bytes() const {
  std::size_t total = ranks_ * sizeof(rows_[0]);
  for (std::size_t s = 0; s < ranks_; ++s) {
    const cell* const lanes = rows_[s].load(std::memory_order_acquire);
    if (lanes == nullptr) continue;
    total += ranks_ * sizeof(cell);
    for (std::size_t d = 0; d < ranks_; ++d) {
      const pair_lane* const lane = lanes[d].load(std::memory_order_acquire);
      if (lane == nullptr) continue;
      total += sizeof(pair_lane);
      if (lane->left.load(std::memory_order_acquire) != nullptr) total += sizeof(pair_lane::room);
    }
  }
  return total;
}

}  // namespace troupe
