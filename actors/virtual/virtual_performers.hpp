// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks of one collective in virtual time, states or players: made, looked after, and judged when the clock has stopped. One run
// (virtual_run.cpp) has one of these, a run of several jobs (virtual_jobs.cpp) one for every call under way.

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/virtual/state_rank.hpp"
#include "actors/virtual/traffic.hpp"
#include "actors/virtual/virtual_run.hpp"

namespace troupe::actors {

/// Events between two looks whether to go on.
inline constexpr std::uint64_t events_between_looks = 1 << 16;

/// Torn down before the traffic that they speak through.
struct virtual_performers {
  std::unique_ptr<virtual_communicator> all;
  std::vector<virtual_rank*> ranks;  ///< owned by `all`
  const state_communicator* states = nullptr;
};

/// Throws error(invalid_argument, bad_config) for what cannot be performed in virtual time.
void check_virtual(const score& notes, const cutting& cut, const hardware& on, const virtual_options& options);

/// @param on the hardware as the score's ranks see it, as it was added to `ways` as `part`
virtual_performers make_performers(const std::shared_ptr<const lazy_sizes>& sizes, const hardware& on,
                                   const virtual_options& options, traffic& ways, std::uint32_t part, recorder* record);

/// When nothing is left to happen: throws the reason if the collective has failed, or waits for what will never come.
void check_ended(const virtual_performers& by);
/// Throws error(size_overflow) for times that can no longer be counted.
void check_time(std::int64_t now);

}  // namespace troupe::actors
