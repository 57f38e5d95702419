// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/pairs/pair_board.hpp"

#include <new>
#include <string>

#include "memory/error.hpp"

namespace troupe {

namespace {

[[noreturn]] void no_memory(std::size_t bytes) {
  throw error(errc::out_of_memory,
              "a send or receive needs " + std::to_string(bytes) +
                  " bytes for the pair's slots, which the system refuses; use fewer ranks or the protocol 'simple'");
}

}  // namespace

pair_board::pair_board(int ranks)
    : ranks_(static_cast<std::size_t>(ranks)), rows_(std::make_unique<std::atomic<cell*>[]>(ranks_)) {}

pair_board::~pair_board() {
  for (std::size_t s = 0; s < ranks_; ++s) {
    cell* const lanes = rows_[s].load(std::memory_order_relaxed);
    if (lanes == nullptr) continue;
    for (std::size_t d = 0; d < ranks_; ++d) delete lanes[d].load(std::memory_order_relaxed);
    delete[] lanes;
  }
}

pair_board::cell* pair_board::row(rank_t source) {
  std::atomic<cell*>& at = rows_[static_cast<std::size_t>(source)];
  cell* found = at.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  std::unique_ptr<cell[]> made{new (std::nothrow) cell[ranks_]{}};
  if (!made) no_memory(ranks_ * sizeof(cell));
  if (at.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) return made.release();
  return found;
}

pair_lane& pair_board::lane(rank_t source, rank_t destination) {
  cell& at = row(source)[static_cast<std::size_t>(destination)];
  pair_lane* found = at.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  std::unique_ptr<pair_lane> made{new (std::nothrow) pair_lane};
  if (!made) no_memory(sizeof(pair_lane));
  if (at.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *found;
}

std::size_t pair_board::bytes() const {
  std::size_t total = ranks_ * sizeof(rows_[0]);
  for (std::size_t s = 0; s < ranks_; ++s) {
    const cell* const lanes = rows_[s].load(std::memory_order_acquire);
    if (lanes == nullptr) continue;
    total += ranks_ * sizeof(cell);
    for (std::size_t d = 0; d < ranks_; ++d)
      if (lanes[d].load(std::memory_order_acquire) != nullptr) total += sizeof(pair_lane);
  }
  return total;
}

}  // namespace troupe
