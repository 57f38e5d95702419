// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether what is sent goes by a staging buffer (the second way) or is copied by the system, as its sender finds out by trying (way_trials.hpp). What copies cost is
// measured once, when a host's first process joins (copy_costs.hpp), and decides how a rank begins.
//
// Times are from the moment before the first copy to the moment when this rank saw that the other end has all. Not synchronised.

#include <array>
#include <bit>
#include <cstddef>

#include "actors/ports/segment/way_trials.hpp"

namespace troupe {

/// By length. What is shorter than the first or longer than the last goes as costs say.
class staging_trials {
public:
  static constexpr std::size_t shortest = 32 * 1024, longest = 2 * 1024 * 1024;

  static bool tries(std::size_t bytes) { return bytes >= shortest && bytes <= longest; }
  /// @pre tries(bytes)
  way_trials& of(std::size_t bytes) { return by_length_[index_of(bytes)]; }

private:
  /// Each four times as long as the one before.
  static std::size_t index_of(std::size_t bytes) {
    return (static_cast<std::size_t>(std::bit_width(bytes)) - static_cast<std::size_t>(std::bit_width(shortest))) / 2;
  }
  static constexpr std::size_t lengths = 4;
  std::array<way_trials, lengths> by_length_;
};

}  // namespace troupe
