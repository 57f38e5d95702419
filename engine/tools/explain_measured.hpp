// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measures what the planner only predicts: performs a call in every way that was considered.

#include <functional>
#include <string>

#include "engine/api/engine.hpp"
#include "engine/tools/explain.hpp"
#include "engine/tools/workload.hpp"

namespace troupe {

struct measuring_limits {
  double budget_ms = 20;  ///< of the timed part of one repetition
  int rounds = 5;         ///< interleaved; the median counts
};

/// Seconds of a call, a thread a rank: a checked call first, then repetitions for about the budget, of which the first quarter warms up.
/// Throws what the call throws, and std::runtime_error if its result is wrong.
double measure_call(engine& on, const job& what, int ranks, double budget_ms);

/// Performs `what`, which `e` explains, in every eligible way and notes the medians. @pre the engine has the options that `e` was made with
/// @param progress is told what is measured next
void measure_candidates(explanation& e, engine& on, const job& what, const measuring_limits& limits,
                        const std::function<void(const std::string&)>& progress = {});

}  // namespace troupe
