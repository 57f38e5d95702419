// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace troupe {

/// Whether the system lets a process of this user copy from the memory of another one that it has not started (process_vm_readv), as a job's do.
/// Starts a process for that. False also if it could not be tried.
bool processes_may_copy();

}  // namespace troupe
