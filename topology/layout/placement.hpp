// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace troupe {

/// Moves the calling thread to the `index`-th of the CPUs that it may use (modulo their number), and leaves the scheduler free to move
/// it on. Threads that are started together and at once wait for each other begin on one CPU otherwise, and Linux takes tens of
/// milliseconds to part two that hand their CPU to and fro. Does nothing where that is not possible. Two system calls.
void begin_on_cpu(int index) noexcept;

}  // namespace troupe
