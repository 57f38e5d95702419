// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs of flows on an engine's threads: the door, without CAF, for callers that start one and wait for it.
//
// A run is turned by its caller, which waits for it (flow_cell.hpp). To start one wakes nobody: an actor, the *keeper*, naps as long as there were runs
// lately, looks which of them nobody waits for, and has threads of the scheduler turn those from then on. So a flow that its caller does not come back to
// begins a nap later.

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "actors/flow/flow_cell.hpp"
#include "actors/waiting/completion.hpp"

namespace troupe::actors {

class rank_cell;
class runtime;

/// What turns runs that nobody waits for; of one engine.
std::shared_ptr<flow_threads> flow_threads_of(runtime& in);

/// The run has begun. @param deadline from now on; then it fails with what its host says, unless it is over
void keep(runtime& in, const std::shared_ptr<flow_cell>& which, std::optional<std::chrono::nanoseconds> deadline);

/// A rank whose operations a flow's collectives are.
struct flow_rank {
  rank_cell* cell;
  int yields;  ///< see runtime::wait()
};

/// Turns the run and its ranks until `end`, with what the engine has to do besides. @pre it may wait (no_waiting)
void turn(runtime& in, flow_cell& which, const completion_ptr& end, const std::vector<flow_rank>& ranks);

}  // namespace troupe::actors
