// SPDX-License-Identifier: Apache-2.0
#pragma once
// Cores that no rank of a job uses.

#include "actors/ports/link/roster.hpp"

namespace troupe::actors {

/// Where fewest are left: of what a process may use, with those who share that, less all their ranks (core_share.hpp). All processes find the same.
int idle_cores(const roster& in);

}  // namespace troupe::actors
