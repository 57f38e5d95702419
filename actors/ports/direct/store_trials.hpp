// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether an operation stores past the caches (the second way) or to them, as its ranks find out by trying (way_trials.hpp). What is very long finds
// nothing in a cache the next time, and what is short all. Between them it depends on what else the processor's last cache holds, of other programs
// and other virtual machines, too: on one computer all_reduce of 4 MiB by 4 ranks took twice as long by cached stores as by others, and in another hour as long.
//
// Times are those of the rank that did the last work, a byte, and all ranks are told them (direct_board::took), so that all change in the same call. Not
// synchronised.

#include <array>
#include <bit>
#include <cstddef>

#include "actors/ports/segment/way_trials.hpp"

namespace troupe {

/// Of one collective, by what all its regions have together. Outside of these sizes direct_sizes::stores() says.
class store_trials {
public:
  /// Outputs of less may be in a cache when their owner reads them, which no rank's time shows.
  static constexpr std::size_t shortest = std::size_t{16} << 20, longest = (std::size_t{128} << 20) - 1;

  static bool tries(std::size_t bytes) { return bytes >= shortest && bytes <= longest; }
  /// @pre tries(bytes)
  way_trials& of(std::size_t bytes) {
    return by_size_[static_cast<std::size_t>(std::bit_width(bytes)) - std::bit_width(shortest)];
  }

private:
  std::array<way_trials, 3> by_size_;  ///< each twice as long as the one before
};

}  // namespace troupe
