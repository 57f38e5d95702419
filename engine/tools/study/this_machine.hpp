// SPDX-License-Identifier: Apache-2.0
#pragma once
// The preset `this_machine`: this computer as a machine of the study mode, made of what hwloc finds and of the constants of
// engine/planning/tuning.hpp. A score takes in virtual time what the constants say it takes here through the actors.
//
//   core r mod cores   ranks are threads: a rank's steps, chunks and bytes occupy the core that it shares
//   a message          is a reference: no bytes move; the receiver's core works tuning::actor_message_ns until it has it
//   copy, reduce       at the measured rates for what all ranks' buffers are, divided among the cores
//   launch             an operation and its ranks, of the cores' time (tuning::actor_operation_seconds)
//
// Only protocol simple: slots and the direct port are no actors' messages. Where a call need not go by actors (the replay of a trace),
// study_machine::on_board says what it takes over memory that its ranks share, as the engine's planner predicts it.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/planning/tuning.hpp"
#include "memory/types/types.hpp"
#include "protocols/call.hpp"
#include "topology/machine/hardware.hpp"

namespace troupe {

inline constexpr std::string_view this_machine_preset = "this_machine";

/// topology's presets and `this_machine`.
const std::vector<preset>& study_presets();

/// A call that ranks perform themselves on memory that all of them see, once the last one has come.
struct board_call {
  std::string choreography, protocol;
  picoseconds takes{0};  ///< of each of their cores
};

/// A machine, and what its host costs are for a size.
struct study_machine {
  hardware on;
  /// Sets copy_rate and reduce_rate for elements of a type and so many bytes in all ranks' inputs and outputs together. Empty: they are the
  /// same at every size.
  std::function<void(double bytes_of_all, datatype type, host_costs& costs)> rates;
  /// How an engine would perform the call on so many ranks, if it is not by actors' messages. Empty: there is no engine on this machine. May be
  /// called by one thread at a time; `counts` and what it throws as planner::plan_for().
  std::function<std::optional<board_call>(const call& what, int ranks, const std::vector<std::size_t>* counts)>
      on_board;
};

/// Throws error(bad_config) as build_preset(); for `this_machine` also what read_tuning() throws. Structure of `this_machine`: cores,
/// tuning (a file, or none; otherwise as an engine finds it).
study_machine build_study_machine(std::string_view preset, const preset_request& wanted);
/// `this_machine` with these constants.
study_machine machine_of(const tuning& costs, const preset_request& wanted);

}  // namespace troupe
