// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a communicator's membership is when the process where it was, its home, is lost: then every other process is the home of its own
// ranks, with all others counted as lost. They may live, but the membership that they answer is not this one.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "protocols/collective.hpp"

namespace troupe::actors {

struct takeover {
  bool begins = false;  ///< this process is the home of its ranks from now on
  std::vector<std::pair<rank_t, bool>>
      lost;  ///< ranks that the membership here has lost; true: only because it was elsewhere
};

/// @param process_of by rank @param at_home the membership is here
inline takeover when_lost(std::uint32_t process, std::uint32_t here, std::uint32_t home, bool at_home,
                          std::span<const std::uint32_t> process_of) {
  takeover made;
  made.begins = process == home && !at_home;
  if (!made.begins && !at_home) return made;
  for (std::size_t r = 0; r < process_of.size(); ++r)
    if (process_of[r] == process) made.lost.emplace_back(static_cast<rank_t>(r), false);
  for (std::size_t r = 0; made.begins && r < process_of.size(); ++r)
    if (process_of[r] != process && process_of[r] != here) made.lost.emplace_back(static_cast<rank_t>(r), true);
  return made;
}

}  // namespace troupe::actors
