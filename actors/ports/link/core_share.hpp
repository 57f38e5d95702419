// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which ranks wait on the same cores. Processes of a host do; so do those of hosts that are namespaces or containers of one running system, which
// share no memory; and processes that are bound to cores of their own do not, wherever they are.

#include <cstdint>
#include <span>
#include <vector>

#include "actors/ports/link/roster.hpp"

namespace troupe::actors {

struct core_share {
  int neighbours = 0;  ///< ranks of other processes that use cores of this one
  int cores = 1;       ///< that all of these have together
};

/// Of the ranks of a communicator. Where the host's ranks and the running system's differ: of those that have fewer cores than they need.
/// @param process_of by rank @param usable how many threads of process `here` can run at once
core_share cores_shared(const roster& in, std::uint32_t here, std::span<const std::uint32_t> process_of, int usable);

/// All that processes of the host of `here` may use.
std::vector<int> cpus_of_host(const roster& in, std::uint32_t here);

/// For process_place::cpus.
std::vector<std::uint64_t> bits_of_cpus(std::span<const int> cpus);

}  // namespace troupe::actors
