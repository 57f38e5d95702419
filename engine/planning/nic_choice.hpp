// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether the process's NIC can perform a call, and which choreography it is given then.
//
// One thread performs all ranks' parts, so what counts is all that there is to do, not who does it when: packets, and bytes.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/planning/plan_choice.hpp"

namespace troupe {

struct nic_choice {
  contender* who = nullptr;  ///< settled; null: nobody can
  double seconds = 0;        ///< predicted, of the NIC's thread
  std::string why_not;       ///< a sentence; empty if somebody can
};

/// Why no call of the task may be offloaded, whoever performs it, as a sentence; empty if one may.
std::string why_not_by_nic(const planning_task& task, const engine_options& options);

/// The one of `all` with the least to do whose descriptors perform it. @pre why_not_by_nic() is empty
/// @param credits messages that a channel has under way
/// @param of_host between processes it is performed by the NIC process of the host, not by rank 0's
nic_choice choose_for_nic(std::vector<contender>& all, plan_choice& choice, score_library& library,
                          const planning_task& task, const tuning& machine, int credits, bool of_host);

}  // namespace troupe
