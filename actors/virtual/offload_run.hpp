// SPDX-License-Identifier: Apache-2.0
#pragma once
// Performs a score in virtual time by NICs: offload_nic (actors/elements/offload) on every node, under a virtual clock, with the costs of
// topology/machine/nic_collectives.hpp. No CAF.
//
// Where hosts perform, the very same state does it, one for each process instead of one a NIC: so the two differ only in who performs,
// and what that costs. One thread, no wall clock, no randomness: the same arguments give the same result.
//
// What it simplifies: responses occupy no port; a host's memory bounds nothing.

#include "actors/virtual/virtual_jobs.hpp"
#include "actors/virtual/virtual_run.hpp"

namespace troupe {

/// What a study says that means nothing to NICs, as a sentence; empty: nothing. They move no bytes here, and cut messages themselves.
std::string why_not_by_nics(const hardware& on, const cutting& cut, const virtual_options& options);

/// @pre as perform_virtually(), on.nics, and why_not_by_nics() is empty. Throws error(unsupported) for what no NIC can perform.
virtual_outcome perform_by_nics(const score& notes, const call_shape& shape, const hardware& on,
                                const virtual_options& options);

/// Several jobs, each by the NICs or by a process on every node of its own. `buffer_fill` is that of the first job's first node.
/// @pre on.nics, and for every call why_not_by_nics() is empty. At most 256 jobs. Throws as above.
virtual_jobs_outcome perform_jobs_by_nics(const std::vector<virtual_job>& jobs, const hardware& on,
                                          const virtual_jobs_options& options);

}  // namespace troupe
