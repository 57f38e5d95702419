// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the process's NIC takes for a step, without its thread.

namespace troupe {

/// From how much longer an all-reduce of one number takes it for eight ranks than for two, both by recursive doubling; tenth percentile, ns.
double nic_step_ns(double budget_ms);

}  // namespace troupe
