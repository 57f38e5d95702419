// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/api/request.hpp"
#include "memory/export.hpp"

namespace troupe {

class group;

/// An operation that is described, checked and planned once and started many times, always on the same buffers:
///   auto sum = comm.all_reduce_init(gradient, gradient, troupe::sum);
///   for (;;) { …; sum.run(); }
/// Every start counts as a call of its own, in the order of the rank's other calls; the other ranks may call it in any form.
///
/// Move-only; must not outlive what it reads and writes. One thread at a time may use it.
class TROUPE_API persistent {
public:
  persistent();
  persistent(persistent&&) noexcept;
  persistent& operator=(persistent&&) noexcept;
  /// Waits for an operation under way, and swallows its failure.
  ~persistent();

  /// Starts and waits; throws error if the operation failed.
  void run();
  /// Begins the next repetition. Throws errc::invalid_argument while the one before is not done; that counts as a refused call.
  request start();
  /// The same, launched with the group.
  request start(group& in);

  explicit operator bool() const noexcept { return what_ != nullptr; }

private:
  friend class communicator;
  struct prepared;
  explicit persistent(std::unique_ptr<prepared> what);
  std::unique_ptr<prepared> what_;
};

}  // namespace troupe
