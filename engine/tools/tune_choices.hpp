// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measures which choreography and protocol is the fastest, size by size: what `troupe tune --choices` does.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/planning/tuning.hpp"

namespace troupe {

/// Sizes from 8 B to 16 MiB, in steps of 8; those of so few bytes that a rank has no element for each block are left out.
struct choices_options {
  std::vector<int> ranks{2, 4, 8};  ///< threads of this process
  bool quick = false;               ///< every other size, one repetition
  std::string tuning =
      "none";  ///< engine_options::tuning: by whose constants candidates are cut, and the likely ones are told
  std::function<void(const std::string&)> progress{};
};

/// f32 and sum, root 0, out of place, by threads of this process: of every collective the fastest of those ways that are predicted to take no more than
/// four times as long as its best, six at most. Throws what collectives throw.
std::vector<measured_choice> measure_choices(const choices_options& options);

/// The fastest of one size.
struct fastest_way {
  std::uint64_t bytes = 0;
  std::string choreography;
  message_protocol protocol = message_protocol::simple;
};
/// Neighbours that are alike become one choice; between two others the border is half way on a logarithmic axis. @param found by ascending sizes
std::vector<measured_choice> choices_between(collective what, int ranks, std::span<const fastest_way> found);

}  // namespace troupe
