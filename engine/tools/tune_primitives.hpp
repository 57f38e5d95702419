// SPDX-License-Identifier: Apache-2.0
#pragma once
// What threads and memory cost, without the engine.

#include <cstddef>

#include "memory/kernels/kernels.hpp"
#include "memory/types/types.hpp"

namespace troupe::primitives {

/// Tenth percentiles over batches; ns. Threads are pinned to cores of their own where there are two.
double flag_exchange_ns(double budget_ms);
/// One core goes from a thread to another and back, half of that.
double switch_ns(double budget_ms);
/// A sleeping thread is woken, until it runs.
double wake_ns(double budget_ms);
/// One core copies 4 KiB to where another takes them from, besides the exchange of flags and what the copies cost in a core's own cache; at least 1.
double staging_ns(double budget_ms);
/// A copy of so many bytes by the system (process_vm_readv), within a core's cache. 0: it is forbidden.
double peer_copy_ns(std::size_t bytes, double budget_ms);

/// One pass of a kernel over memory that only one core touches.
struct pass {
  int inputs = 1;
  int outputs = 1;
  store_hint hint = store_hint::by_size;
  datatype type = datatype::f32;  ///< summed, if there are several inputs
};
/// GB/s of result and core, with `threads` cores at work at once, each on `bytes` of inputs and outputs together.
double rate(const pass& what, double bytes, int threads, double budget_ms);

}  // namespace troupe::primitives
