// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a thread must not wait: inside a callback, and inside an actor's handler. It would block the actor that it waits for.

#include "memory/export.hpp"

namespace troupe::actors {

/// While one lives, this thread must not wait.
class no_waiting {
public:
  no_waiting() noexcept { ++depth; }
  ~no_waiting() { --depth; }
  no_waiting(const no_waiting&) = delete;
  no_waiting& operator=(const no_waiting&) = delete;

  /// Costs a load: every blocking call asks.
  static bool here() noexcept { return depth != 0; }

private:
  // Constant-initialised and of the initial-exec model, so that a look is one load, also in a shared library.
  TROUPE_INTERNAL __attribute__((tls_model("initial-exec"))) static constinit thread_local int depth;
};

}  // namespace troupe::actors
