// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/parts/link_board.hpp"

#include <algorithm>

#include "actors/rank/operation_parts.hpp"

namespace troupe::actors {

link_board::link_board(const part_links& shape, std::uint32_t stamp)
    : lines_(shape.lines()),
      members_(static_cast<std::size_t>(shape.ranks())),
      buffers_(members_.size()),
      words_((shape.lanes() + 63) / 64),
      stamp_(stamp) {
  for (member& m : members_) m.news = std::make_unique<std::atomic<std::uint64_t>[]>(static_cast<std::size_t>(words_));
  gone_.reserve(members_.size());
}

/// After 2³² uses a line that smaller operations have not touched since could hold the stamp that comes now.
void link_board::next_use() {
  if (++stamp_ != 0) return;
  for (link_line& l : lines_) {
    l.sent.store(0, std::memory_order_relaxed);
    l.taken.store(0, std::memory_order_relaxed);
    l.wanted.store(0, std::memory_order_relaxed);
  }
  stamp_ = 1;  // what was never written has 0
}

link_boards::place link_boards::enter(epoch_t epoch, std::uint64_t fingerprint, rank_t rank, const part_links& shape,
                                      const std::shared_ptr<operation_parts>& parts, const peer_memory& buffers) {
  const std::lock_guard lock(mutex_);
  link_board* found = nullptr;
  for (const auto& board : boards_)
    if (board->open_ && board->epoch_ == epoch) found = board.get();
  if (found != nullptr && found->fingerprint_ != fingerprint) return {nullptr, found->first_};
  if (found == nullptr) {
    for (const auto& board : boards_)
      if (!board->open_ && board->came_ == 0 && board->is_for(shape)) found = board.get();
    if (found == nullptr) found = boards_.emplace_back(std::make_unique<link_board>(shape, first_stamp_)).get();
    found->epoch_ = epoch;
    found->fingerprint_ = fingerprint;
    found->first_ = rank;
    found->open_ = true;
    found->next_use();
  }
  link_board::member& mine = found->of(rank);
  mine.parts = parts;
  found->buffers_[static_cast<std::size_t>(rank)] = buffers;
  mine.words.here.store(true);
  if (++found->came_ == static_cast<int>(found->members_.size())) found->open_ = false;
  return {found, -1};
}

void link_boards::leave(link_board& board) { end_use(board, true); }

void link_boards::forget(epoch_t epoch) {
  link_board* found = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& board : boards_)
      if (board->open_ && board->epoch_ == epoch) found = board.get();
    if (found == nullptr) return;
    found->open_ = false;
  }
  end_use(*found, false);
}

/// Operations that are let go of may hold callers' callbacks, which end outside the lock.
void link_boards::end_use(link_board& board, bool leaves) {
  std::vector<std::shared_ptr<operation_parts>> gone;
  {
    const std::lock_guard lock(mutex_);
    if (leaves) ++board.left_;
    if (board.open_ || board.left_ < board.came_) return;
    let_go(board, gone);
  }
  gone.clear();
  const std::lock_guard lock(mutex_);
  if (board.gone_.capacity() < gone.capacity()) board.gone_.swap(gone);
}

/// @pre locked
void link_boards::let_go(link_board& board, std::vector<std::shared_ptr<operation_parts>>& gone) {
  gone.swap(board.gone_);
  for (link_board::member& m : board.members_) {
    gone.push_back(std::move(m.parts));
    m.words.here.store(false, std::memory_order_relaxed);
    m.words.waits.store(false, std::memory_order_relaxed);
    m.words.open.store(0, std::memory_order_relaxed);
  }
  board.came_ = board.left_ = 0;
}

}  // namespace troupe::actors
