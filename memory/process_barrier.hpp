// SPDX-License-Identifier: Apache-2.0
#pragma once
// A memory barrier in all threads at once, made by one system call of the thread that needs it (Linux' membarrier): the others, who pass the
// place all the time, pay nothing there.
//
// The call can fail, also after it has worked: a sandbox may forbid it later. Then nobody has passed a barrier, and a thread that has relied on one must do
// without what it wanted to know.

#include <cstdint>

namespace troupe {

/// Whose threads.
enum class barrier_of : std::uint8_t {
  this_process,
  all_processes,  ///< of those that have asked whether it works
};

/// Whether the system has it: asked, and this process registered for it, at the first call. False ever after the first barrier that failed, and
/// under ThreadSanitizer, which does not know of it. Any thread.
bool process_barrier_works(barrier_of which) noexcept;

/// True: since the call began every thread has passed a sequentially consistent barrier. False: the system refuses. Any thread.
/// Costs a system call, and an interrupt of each core that runs one of the threads.
[[nodiscard]] bool process_barrier(barrier_of which) noexcept;

}  // namespace troupe
