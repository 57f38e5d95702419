// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks that have not got their part of a communicator, and what follows from that for those that have. Plain states, as early_frames.hpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "actors/ports/link/frames.hpp"
#include "protocols/chunk.hpp"

namespace troupe::actors {

/// Of the splits that failed last: a rank that makes its part later hears of the failure then. Not synchronised.
class given_up_places {
public:
  void add(communicator_id whole, epoch_t split, rank_t rank) {
    places_.push_back({whole, split, rank});
    if (places_.size() > most) places_.pop_front();
  }
  /// Ranks of the whole.
  std::vector<rank_t> of(communicator_id whole, epoch_t split) const {
    std::vector<rank_t> ranks;
    for (const place& each : places_)
      if (each.whole == whole && each.split == split) ranks.push_back(each.rank);
    return ranks;
  }

  static constexpr std::size_t most = 4096;

private:
  struct place {
    communicator_id whole;
    epoch_t split;
    rank_t rank;
  };
  std::deque<place> places_;
};

/// The split of which a communicator is a part; the world is of none.
struct parentage {
  communicator_id whole = 0;
  epoch_t split = 0;
  std::vector<rank_t> in_whole{};  ///< by rank of the part
};

/// One part's ranks that never come. Not synchronised.
class empty_places {
public:
  /// That rank of the whole never comes. The process that has not made the part at all then, as none of its ranks has a place: nobody answers there.
  /// In another one the rank leaves the part like any other, which that process says itself.
  /// @param in_whole by rank of the part @param process_of by rank of the part
  std::optional<std::uint32_t> add(rank_t rank_in_whole, std::span<const rank_t> in_whole,
                                   std::span<const std::uint32_t> process_of) {
    const auto at = std::find(in_whole.begin(), in_whole.end(), rank_in_whole);
    if (at == in_whole.end()) return std::nullopt;
    const auto is_empty = [&](std::size_t place) {
      return std::find(empty_.begin(), empty_.end(), place) != empty_.end();
    };
    const auto place = static_cast<std::size_t>(at - in_whole.begin());
    if (!is_empty(place)) empty_.push_back(place);
    for (std::size_t p = 0; p < process_of.size(); ++p)
      if (process_of[p] == process_of[place] && !is_empty(p)) return std::nullopt;
    return process_of[place];
  }

private:
  std::vector<std::size_t> empty_;
};

}  // namespace troupe::actors
