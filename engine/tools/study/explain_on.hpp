// SPDX-License-Identifier: Apache-2.0
#pragma once
// The time that every choreography would take for one call on hardware that one does not have: the study model in the place of the planner's
// (which knows this machine only).

#include <functional>
#include <string>
#include <vector>

#include "engine/tools/study/study.hpp"

namespace troupe {

struct modelled_candidate {
  std::string choreography;
  std::string protocol;      ///< the fastest of the preset's table
  double time_us = 0;        ///< virtual
  double busbw = 0;          ///< GB/s
  double bound_us = 0;       ///< no schedule is faster
  std::string why_rejected;  ///< empty: it was run
};

/// Runs `call` (its last size) with every choreography and every protocol; fastest first, then those that cannot, or would take too many steps for a
/// look at all of them, with the reason.
/// Throws error for what is wrong with the call or the hardware itself. `progress`: a line now and then.
std::vector<modelled_candidate> explain_on(const study_scenario& call,
                                           const std::function<void(const std::string&)>& progress = {});

/// The table that `troupe explain --on` prints.
std::string to_text(const study_scenario& call, const std::vector<modelled_candidate>& candidates);
std::string to_json(const study_scenario& call, const std::vector<modelled_candidate>& candidates);

}  // namespace troupe
