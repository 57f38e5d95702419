// SPDX-License-Identifier: Apache-2.0
#pragma once
// Faults of a score that are found without running it: sizes, ranks, places, operands, fans.

#include <optional>

#include "protocols/verify/verifier.hpp"

namespace troupe::verifying {

/// Larger scores are refused rather than filling memory: vector clocks are quadratic in the lanes.
inline constexpr std::int64_t max_ranks = 8192;
inline constexpr std::int64_t max_lanes = most_lanes;
inline constexpr std::int64_t max_parts = 1 << 20;
inline constexpr std::int64_t max_cells = std::int64_t{1} << 24;  ///< of all ranks and slices together

/// After it has found nothing, every index in the score is in range.
std::optional<fault> check_structure(const score& s, const performing_limits& limits);

/// What lanes of switches, and others that come near their cells, do wrong (score.hpp, "Switches"). @pre check_structure found nothing else
std::optional<fault> check_switches(const score& s);

/// The operand that has as many cells as the message that the step receives.
inline const place& received_into(const step& s) { return writes(s.kind) ? s.target : s.source; }
/// The memory that a sending step hands out a reference to; for recv_reduce_send only its size counts.
inline const place& sent_from(const step& s) {
  return s.kind == step_kind::send || s.kind == step_kind::recv_reduce_send ? s.source : s.target;
}
/// Position one behind the fan that begins at (or contains) `at`; `at + 1` if there is none.
std::size_t end_of_fan(const lane& steps, std::size_t at);

}  // namespace troupe::verifying
