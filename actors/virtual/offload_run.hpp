// SPDX-License-Identifier: Apache-2.0
#pragma once
// Performs a score in virtual time by NICs: offload_nic (actors/elements/offload) on every node, under a virtual clock, with the costs of
// topology/machine/nic_collectives.hpp. No CAF.
//
// Where hosts perform, the very same state does it, one for each process instead of one a NIC: so the two differ only in who performs,
// and what that costs. One thread, no wall clock, no randomness: the same arguments give the same result.
//
// What it simplifies: responses occupy no port; a host's memory bounds nothing; all jobs are called at once.

#include "actors/virtual/virtual_run.hpp"

namespace troupe {

/// What a study says that means nothing to NICs, as a sentence; empty: nothing. They move no bytes here, and cut messages themselves.
std::string why_not_by_nics(const hardware& on, const cutting& cut, const virtual_options& options);

/// @pre as perform_virtually(), on.nics, and why_not_by_nics() is empty. Throws error(unsupported) for what no NIC can perform.
virtual_outcome perform_by_nics(const score& notes, const call_shape& shape, const hardware& on,
                                const virtual_options& options);

}  // namespace troupe
