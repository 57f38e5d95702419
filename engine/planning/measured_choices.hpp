// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fastest choreographies as `troupe tune --choices` measured them, for engines whose planner is "measured". Part of the tuning file.

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "protocols/call.hpp"

namespace troupe {

/// For calls of one collective by so many threads of one process.
struct measured_choice {
  static constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

  collective what{};
  int ranks = 0;
  std::uint64_t up_to =
      no_limit;  ///< bytes of all blocks that a rank has; the choice with the least that is no less than a call's counts
  std::string choreography;
  message_protocol protocol = message_protocol::simple;
  bool operator==(const measured_choice&) const = default;
};

/// Null: there is none for so many ranks.
const measured_choice* find_choice(std::span<const measured_choice> among, collective what, int ranks,
                                   std::uint64_t bytes);

/// "2, 4 and 8": for which numbers of ranks there are choices of that collective. Empty: for none.
std::string ranks_with_choices(std::span<const measured_choice> among, collective what);

}  // namespace troupe
