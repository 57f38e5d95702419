// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds which of a communicator's ranks is the last to post an operation to the NIC: that one wakes it, since it can begin nothing before. Any thread.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocols/chunk.hpp"

namespace troupe::actors {

class nic_arrivals {
public:
  /// A rank has posted; one atomic step, whatever the number of ranks. True: as far as this knows, all have. A rank that is late may get true
  /// without need; the last one never gets false. Sequentially consistent. @pre ranks <= 255, and a rank posts an epoch once
  bool complete(epoch_t epoch, int ranks) noexcept {
    std::atomic<std::uint64_t>& slot = counts_[epoch % slots];
    std::uint64_t seen = slot.load();
    while (true) {
      const std::uint64_t stamp = seen >> count_bits;
      if (stamp > epoch) return true;  // its operation has ended badly, and others have gone on
      const std::uint64_t next = stamp == epoch ? seen + 1 : (std::uint64_t{epoch} << count_bits) + 1;
      if (slot.compare_exchange_weak(seen, next))
        return (next & ((1U << count_bits) - 1)) >= static_cast<unsigned>(ranks);
    }
  }

private:
  static constexpr unsigned count_bits = 8;
  static constexpr std::size_t slots = 64;  ///< more than a rank may have under way
  std::array<std::atomic<std::uint64_t>, slots> counts_{};
};

}  // namespace troupe::actors
