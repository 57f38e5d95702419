// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/offload_verdict.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "memory/spelling.hpp"

namespace troupe {

namespace {

std::string us(double seconds) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f us", seconds * 1e6);
  return text;
}

std::string cores(int n) { return plural(static_cast<std::size_t>(n), "core"); }

std::string compared(const offload_figures& f, double taken) {
  return "takes " + us(taken) + " of a caller's time, and to perform it " + us(f.callers);
}

}  // namespace

offload_verdict weigh_offload(const offload_figures& f) {
  if (std::isinf(f.callers)) return {true, 0, "its callers cannot perform it themselves"};
  if (!f.started) return {false, f.callers, "its caller waits for it, and computes nothing meanwhile"};
  const double posting = f.posting + f.waking;
  if (f.idle_cores >= f.nics)
    return {posting < f.callers, posting,
            "to post it " + compared(f, posting) + "; " + cores(f.idle_cores) + " of " + std::to_string(f.cores) +
                (f.idle_cores == 1 ? " is" : " are") + " free for the NIC's thread, which takes " + us(f.nic)};
  const int core = std::max(1, f.cores);
  const int ranks_of_core = (std::max(1, f.ranks_of_host) + core - 1) / core;
  const double taken = ranks_of_core * posting + f.awake + f.nic / std::min(core, std::max(1, f.ranks_of_host));
  const std::string busy = f.idle_cores > 0 ? cores(f.idle_cores) + (f.idle_cores == 1 ? " is" : " are") +
                                                  " free for the threads of " + std::to_string(f.nics) + " NICs"
                                            : "no core is free for the NIC's thread";
  return {taken < f.callers, taken,
          busy + ": its part of " + us(f.nic) + ", " + us(f.awake) + " until it has a core, and the posting " +
              compared(f, taken)};
}

}  // namespace troupe
