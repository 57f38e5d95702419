// SPDX-License-Identifier: Apache-2.0
#pragma once
// What fault injection does to a chunk, and to what a rank asks of its card. Seeded per rank and channel, so that a run can be repeated. No CAF in here.

#include <chrono>
#include <cstdint>
#include <random>

#include "actors/caf/runtime.hpp"

namespace troupe::actors {

class fault_injector {
public:
  struct mischief {
    bool drop = false;
    bool twice = false;
    bool kill = false;                   ///< the channel dies instead of sending this chunk
    std::chrono::microseconds delay{0};  ///< also how chunks overtake each other
  };

  fault_injector(const fault_settings& settings, int rank, int channel)
      : settings_(settings),
        random_(settings.seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 1031u +
                static_cast<std::uint64_t>(channel)),
        kills_(settings.kill_after >= 0 && settings.kill_rank == rank && channel == 0) {}

  bool active() const { return settings_.any(); }

  mischief next() {
    mischief m;
    if (kills_ && sent_++ == settings_.kill_after) m.kill = true;
    m.drop = happens(settings_.drop);
    m.twice = happens(settings_.duplicate);
    // Reordering is a short delay: what is sent in the meantime overtakes.
    if (happens(settings_.reorder)) m.delay = std::chrono::microseconds(1 + random_() % 50);
    if (happens(settings_.delay) && settings_.longest_delay.count() > 0)
      m.delay += std::chrono::microseconds(1 + random_() % static_cast<std::uint64_t>(settings_.longest_delay.count()));
    return m;
  }

  /// What is no chunk, and has no other mischief done to it: a request to the rank's DMA engine, or for L0 or L2.
  bool loses() { return happens(settings_.drop); }

private:
  bool happens(double probability) {
    return probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability;
  }

  fault_settings settings_;
  std::mt19937_64 random_;
  bool kills_;
  std::int64_t sent_ = 0;
};

}  // namespace troupe::actors
