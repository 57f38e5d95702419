// SPDX-License-Identifier: Apache-2.0
#pragma once
// The choreography of a call where the options' planner is not the cost model: the one that another library would take (hccl_selection.hpp and nccl_selection.hpp), or
// what was measured (measured_choices.hpp), brought to a task of the planner. A wish like a choreography's name in the options.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/options.hpp"
#include "protocols/call.hpp"

namespace troupe {

struct planning_task;
struct tuning;

struct selected_way {
  std::string by;            ///< "HCCL's selection"; empty: the cost model chooses, nobody else was asked
  std::string choreography;  ///< empty: the cost model chooses
  bool through_scratch = false;
  std::size_t chunk_bytes = 0;                              ///< 0: the planner decides
  std::size_t scratch_bytes = 0;                            ///< of BCopy; 0: as the options say
  int channels = 0;                                         ///< 0: the planner decides
  message_protocol protocol = message_protocol::automatic;  ///< simple: or direct
  bool exactly = false;           ///< by that protocol (simple is not direct), or the cost model chooses all of it
  std::string unused;             ///< who was selected and is not used, and why; empty: nobody
  std::vector<std::string> path;  ///< how it came to that, for people
};

/// "HCCL's selection"; of the cost model nothing.
std::string who_selects(std::string_view planner);

/// Why a choreography cannot perform a task, or must not; empty: it can.
using why_not_performed_by = std::function<std::string(const std::string&, const planning_task&)>;

/// @param machine whose measured choices count
selected_way select_as(const engine_options& options, const tuning& machine, const planning_task& task,
                       const why_not_performed_by& why_not);

}  // namespace troupe
