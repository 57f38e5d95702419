// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a DMA engine has begun and not ended: transfers whose pieces are with other elements, and flushes that wait for
// them. No CAF in here.
//
//   begin, came_back, flush   from its engine, on the engine's turn
// A flush waits for what began before it, and for nothing that begins later, so that one rank's flush does not wait for
// what others go on to ask for.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::actors {

/// `Asker`: the receiver of a transfer's end. `Answer`: what a flush is answered by.
template <class Asker, class Answer>
class transfers_under_way {
public:
  /// Returns its number. @pre pieces > 0
  std::uint64_t begin(Asker asker, std::size_t pieces) {
    open_.push_back({next_, pieces, false, std::move(asker)});
    return next_++;
  }
  /// A piece touches nobody's memory any more. `whole`: all of its bytes have come where they belong. Gives whom to
  /// tell if that was the last piece and all were whole; a channel that has lost one hears nothing, as of a chunk that was lost.
  std::optional<Asker> came_back(std::uint64_t number, bool whole) {
    const auto at = std::ranges::lower_bound(open_, number, {}, &transfer::number);
    at->lost = at->lost || !whole;
    if (--at->pieces > 0) return std::nullopt;
    std::optional<Asker> told;
    if (!at->lost) told = std::move(at->asker);
    open_.erase(at);
    return told;
  }
  /// True: nothing is under way. False: `answer` waits for what is; it comes out of flushed().
  bool flush(const Answer& answer) {
    if (open_.empty()) return true;
    waiting_.push_back({next_, answer});
    return false;
  }
  /// The next flush that waits for nothing any more.
  std::optional<Answer> flushed() {
    if (waiting_.empty() || (!open_.empty() && open_.front().number < waiting_.front().before)) return std::nullopt;
    std::optional<Answer> answer = std::move(waiting_.front().answer);
    waiting_.pop_front();
    return answer;
  }

  /// Its engine has ended, and touches nobody's memory any more: no asker is told, and all flushes are answered
  /// (flushed()).
  void end() { open_.clear(); }

private:
  struct transfer {
    std::uint64_t number;
    std::size_t pieces;
    bool lost;
    Asker asker;
  };
  struct waiting_flush {
    std::uint64_t before;
    Answer answer;
  };
  std::uint64_t next_ = 0;
  std::vector<transfer> open_;  ///< by number; at most one a lane of the core group's ranks
  std::deque<waiting_flush> waiting_;
};

}  // namespace troupe::actors
