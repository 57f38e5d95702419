// SPDX-License-Identifier: Apache-2.0
#pragma once
// What frames cost between two processes, measured on the real mesh: small and large all_reduces of two ranks, a process each, go through the
// actors and so by frames; the cost model's constants of that way are fitted to their times (tune.hpp: fit).

#include <vector>

#include "engine/api/engine.hpp"
#include "engine/tools/tune.hpp"

namespace troupe {

/// How an engine is made for it: chunks are sent whole, so that a frame is as long as its chunk.
engine_options options_to_measure_links();

/// Both processes call it at once, each with its rank of a world of two. The times are rank 0's. Throws what collectives throw.
std::vector<calibration> measure_link(communicator& world, reach between, bool quick);

/// Takes over what was measured of one way; says in t.links that it was.
/// @param by "by the shared ring of a host", for people
void fit_link(tuning& t, const std::vector<calibration>& measured, const std::string& by);

}  // namespace troupe
