// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the readers of traces share: the calls that single ranks say, and the collectives that they are together. Ranks call the collectives
// of a communicator in the order in which their files say them.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tools/replay/application.hpp"

namespace troupe {

inline constexpr std::uint64_t most_trace_payload = std::uint64_t{1} << 50;  ///< bytes of a message or collective

/// One rank's call of a collective, until all ranks' have been read.
struct said_call {
  application_call what;
  std::uint32_t operation = 0;  ///< of its rank
  std::string_view file;
  std::uint32_t line = 0;
};
using said_calls = std::vector<std::map<std::size_t, std::vector<said_call>>>;  ///< by rank, by communicator

/// Why `rank` cannot call that there: a sentence. Empty: it can.
std::string problem_of(const application_call& call, const application::communicator& of, rank_t rank);

/// Adds the collectives that the calls are, and gives each call's operation the number of its collective.
/// @throws error(bad_config) where ranks call different things
void join_collectives(application& into, const said_calls& calls);

}  // namespace troupe
