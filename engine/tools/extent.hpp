// SPDX-License-Identifier: Apache-2.0
// How many steps a score would have, before it is written: ring and pairwise grow with the square of the ranks.
#pragma once

#include <string>

#include "protocols/choreographies/choreography.hpp"

namespace troupe {

/// The memory of a step, and its share of players and messages.
inline constexpr double bytes_of_a_step = sizeof(step) + 8;

/// And of a rank that is simulated: double_binary_tree on one and two million ranks, of six steps each, takes 2.75 and 5.47 GB.
inline constexpr double bytes_of_a_rank = 2200;

/// The same where it is printed as well, and where it is verified in three slices (measured on rings of 500 to 1000 ranks).
inline constexpr double bytes_of_a_printed_step = 525;
inline constexpr double bytes_of_a_verified_step = 1130;

/// Guessed from smaller setups, where there are more than 512 ranks; negative: no guess.
double guessed_steps(const choreography& which, const setup& on);

/// Why this computer's memory does not hold a score and what is made of it, as a sentence; empty if it does, or if there is no guess.
std::string too_many_steps(const choreography& which, const setup& on, double bytes_a_step, double bytes_a_rank = 0);

}  // namespace troupe
