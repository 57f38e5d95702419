// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a DMA engine has begun and not ended: transfers whose pieces are with other elements. No CAF in here.
//
//   begin, came_back, drop   from its engine, on the engine's turn
// Only the engine itself writes its askers' memory, and only for a transfer that is open here. So an asker whose transfers
// were dropped has its memory back at once, wherever their pieces are; and one that never comes back holds up nobody.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::actors {

/// `Asker`: the receiver of a transfer's end.
template <class Asker>
class transfers_under_way {
public:
  /// Returns its number. @pre pieces > 0
  std::uint64_t begin(Asker asker, std::size_t pieces) {
    open_.push_back({next_, pieces, false, std::move(asker)});
    return next_++;
  }
  /// Whether a piece that has come back still belongs to somebody.
  bool open(std::uint64_t number) const {
    const auto at = std::ranges::lower_bound(open_, number, {}, &transfer::number);
    return at != open_.end() && at->number == number;
  }
  /// A piece is back. `whole`: all of its bytes have come where they belong. Gives whom to tell if that was the last
  /// piece and all were whole; a channel that has lost one hears nothing, as of a chunk that was lost. @pre open(number)
  std::optional<Asker> came_back(std::uint64_t number, bool whole) {
    const auto at = std::ranges::lower_bound(open_, number, {}, &transfer::number);
    at->lost = at->lost || !whole;
    if (--at->pieces > 0) return std::nullopt;
    std::optional<Asker> told;
    if (!at->lost) told = std::move(at->asker);
    open_.erase(at);
    return told;
  }
  /// Those of such askers are nobody's any more.
  template <class Which>
  void drop(Which which) {
    std::erase_if(open_, [&](const transfer& one) { return which(one.asker); });
  }

private:
  struct transfer {
    std::uint64_t number;
    std::size_t pieces;
    bool lost;
    Asker asker;
  };
  std::uint64_t next_ = 0;
  std::vector<transfer> open_;  ///< by number; at most one a lane of the core group's ranks
};

}  // namespace troupe::actors
