// SPDX-License-Identifier: Apache-2.0
#include "topology/layout/placement.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

namespace troupe {

void begin_on_cpu([[maybe_unused]] int index) noexcept {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;  // more CPUs than the set has room for: leave it
  const int count = CPU_COUNT(&allowed);
  if (count < 2 || index < 0) return;
  int nth = index % count, cpu = 0;
  for (;; ++cpu)
    if (CPU_ISSET(static_cast<unsigned>(cpu), &allowed) && nth-- == 0) break;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(cpu), &one);
  if (sched_setaffinity(0, sizeof one, &one) == 0) static_cast<void>(sched_setaffinity(0, sizeof allowed, &allowed));
#endif
}

}  // namespace troupe
