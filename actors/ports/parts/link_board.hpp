// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the ranks of one partitioned operation say to each other through memory that all of them share, in place of messages: a part that is ready
// is seen by the ranks that need it, and read where it lies. Between processes the same words lie in part_areas, each rank's for itself.
//
// A *link* (part_links.hpp) has a word `sent`, which only its sender writes, and `taken`, which only its receiver does. A message is an entry,
// then `sent`; its credit is `taken`. Both words carry the *stamp* of the use that the board is in, so what an earlier operation has left in them
// counts for nothing, and nobody has to wipe the board before its stamp wraps.
//
// No message is overlooked. A sender sets the lane's bit in the receiver's news (N1), then checks whether the receiver has arrived (N2); a rank that arrives
// marks itself present (C1) before it first reads its news (C2). A rank that lacks a credit, or waits for its messages to be taken, sets a flag (W1) and checks once more (W2);
// a receiver stores `taken` (T1), then checks that flag (T2). All eight accesses are sequentially consistent. A sender wakes a receiver that is present when it
// has news for it (part_performer.hpp), and the receiver then looks.
//
// Life. link_boards lends a board to the ranks that call the same operation; it comes back when all that came have left, and no rank comes any more.
// Whatever one rank writes for the next use comes after that: both go through the mutex of link_boards.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "actors/ports/parts/link_view.hpp"
#include "protocols/chunk.hpp"
#include "protocols/perform/performer.hpp"

namespace troupe::actors {

class operation_parts;

class link_board {
public:
  struct member {
    std::shared_ptr<operation_parts> parts;  ///< read once it is `here`
    link_member words;
    std::unique_ptr<std::atomic<std::uint64_t>[]> news;
  };

  /// @param stamp of its last use
  link_board(const part_links& shape, std::uint32_t stamp);

  int news_words() const { return words_; }
  bool is_for(const part_links& shape) const {
    return shape.ranks() == static_cast<int>(members_.size()) && shape.lines() <= lines_.size() &&
           (shape.lanes() + 63) / 64 <= words_;
  }
  link_line& at(std::uint32_t line) { return lines_[line]; }
  member& of(rank_t rank) { return members_[static_cast<std::size_t>(rank)]; }
  std::uint32_t stamp() const { return stamp_; }
  /// By rank, where its buffers are; of a rank that has come. Whoever touches them has heard of that rank.
  const peer_memory* buffers() const { return buffers_.data(); }
  link_view view(rank_t rank, const part_links& shape) {
    member& m = of(rank);
    return {&m.words, m.news.get(), lines_.data() + shape.first_of(rank), stamp_};
  }

private:
  friend class link_boards;
  void next_use();

  std::vector<link_line> lines_;
  std::vector<member> members_;
  std::vector<peer_memory> buffers_;
  int words_;
  std::uint32_t stamp_ = 0;

  // -- of link_boards, under its mutex --
  epoch_t epoch_ = 0;
  std::uint64_t fingerprint_ = 0;
  rank_t first_ = -1;  ///< that came
  int came_ = 0, left_ = 0;
  bool open_ = false;                                   ///< further ranks may come
  std::vector<std::shared_ptr<operation_parts>> gone_;  ///< memory for those that are let go of
};

/// The boards of a communicator whose ranks are all in this process. Any thread.
class link_boards {
public:
  struct place {
    link_board* board = nullptr;  ///< null: rank `unlike` has called something else
    rank_t unlike = -1;
  };
  /// @param stamp that boards begin with; tests of their wrap
  explicit link_boards(std::uint32_t stamp = 0) : first_stamp_(stamp) {}
  link_boards(const link_boards&) = delete;
  link_boards& operator=(const link_boards&) = delete;

  /// A rank comes to the operation, with its buffers; each once. Allocates only for more operations at once, or larger ones, than ever before.
  place enter(epoch_t epoch, std::uint64_t fingerprint, rank_t rank, const part_links& shape,
              const std::shared_ptr<operation_parts>& parts, const peer_memory& buffers = {});
  /// It touches nothing of the board any more.
  void leave(link_board& board);
  /// The operation failed, and no rank will enter any more.
  void forget(epoch_t epoch);

private:
  void let_go(link_board& board, std::vector<std::shared_ptr<operation_parts>>& gone);
  void end_use(link_board& board, bool leaves);

  std::uint32_t first_stamp_;
  std::mutex mutex_;  ///< twice a rank and operation
  std::vector<std::unique_ptr<link_board>> boards_;
};

}  // namespace troupe::actors
