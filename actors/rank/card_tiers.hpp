// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of a modelled card, for operations by choreographies that use its tiers (docs/tiers.md).

#include <cstddef>
#include <memory>

#include "protocols/collective.hpp"

namespace troupe::actors {

/// Of one communicator. Thread-safe; blocks may outlive it. Once an operation and rank, not once a chunk.
class card_tiers {
public:
  virtual ~card_tiers() = default;
  /// Of the L0 of the rank's core group. Throws error(out_of_memory) with what there is.
  virtual std::shared_ptr<std::byte> l0(rank_t rank, std::size_t bytes) = 0;
  /// Of the L2 of the card that the communicator's first rank sits on. Throws as l0().
  virtual std::shared_ptr<std::byte> l2(std::size_t bytes) = 0;
};

}  // namespace troupe::actors
