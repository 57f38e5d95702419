// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "actors/flow/flow_node_state.hpp"

namespace troupe::actors {

/// How a flow went that was performed without any work.
struct flow_rehearsal {
  bool ends = false;
  std::vector<flow_wait> waits;  ///< by node: what it waits for if the flow does not end
};

/// Performs the flow by its nodes' own states, with all ranks alike: a part of a collective's output arrives when the same part of this rank's
/// input is ready, and at once where this rank has no input. Which tiles a node takes next depends on nothing but their numbers; where tiles come as
/// they arrive, only nodes of one input take them. So whether it comes to its end is the same in every order of events (Kahn 1974), and one rehearsal proves it.
flow_rehearsal rehearse(const flow_plan& plan);

}  // namespace troupe::actors
