// SPDX-License-Identifier: Apache-2.0
#pragma once
// What plan_choice.cpp and plan_bounds.cpp share.

#include <cstddef>
#include <limits>

#include "engine/planning/plan_choice.hpp"

namespace troupe {

/// Of those that may be wanted (option_bounds.hpp), so many are tried where none are.
inline constexpr int most_channels_tried = 16;
/// Up to here every choreography is tried, whatever its steps.
inline constexpr int few_ranks = 64;
inline constexpr double never = std::numeric_limits<double>::infinity();
/// So many for each rank are tried, too, and are the most that a rank at the direct board is worth where there are many: what all have to do
/// there is done by the last one that comes. More for a small all_to_all, which over slots would need a channel for each pair of ranks, and for
/// one of blocks of different sizes, which would be as many messages by mailbox.
inline constexpr std::size_t most_steps_a_rank = 96, most_exchange_steps_a_rank = 512;

/// Where the one pass of a kernel is better than what can be done with several.
inline bool may_take_one_pass(const planning_task& task) {
  return (task.rules.sums_in_f32 || task.rules.scaled) && task.ranks() > 1;
}
/// Bytes that a rank converts or scales before and after, on average.
double staging_bytes(const contender& c, const planning_task& task);

}  // namespace troupe
