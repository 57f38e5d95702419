// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/idle_cores.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "actors/ports/link/core_share.hpp"

namespace troupe::actors {

int idle_cores(const roster& in) {
  std::vector<std::uint32_t> process_of;
  for (std::uint32_t p = 0; p < in.processes.size(); ++p) process_of.insert(process_of.end(), in.processes[p].ranks, p);
  int least = std::numeric_limits<int>::max();
  for (std::uint32_t p = 0; p < in.processes.size(); ++p) {
    const core_share of = cores_shared(in, p, process_of, static_cast<int>(in.processes[p].cores));
    least = std::min(least, of.cores - of.neighbours - static_cast<int>(in.processes[p].ranks));
  }
  return in.processes.empty() ? 0 : std::max(0, least);
}

}  // namespace troupe::actors
