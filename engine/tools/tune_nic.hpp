// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the process's NIC takes for a step, without its thread; and what its thread's callers do for an operation.

namespace troupe {

/// From how much longer an all-reduce of one number takes it for eight ranks than for two, both by recursive doubling; tenth percentile, ns.
double nic_step_ns(double budget_ms);

/// Of a thread's own time, ns; tenth percentiles. Each operation finds the NIC's thread asleep, and its caller's cache cold.
struct nic_caller_costs {
  double post = 0;  ///< the first of three ranks begins an all_reduce, and looks when it is done
  double wake = 0;  ///< by how much longer the third one, which wakes the thread, begins than the second
};
nic_caller_costs nic_caller_ns(double budget_ms);

}  // namespace troupe
