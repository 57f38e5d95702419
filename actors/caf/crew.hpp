#pragma once
// The actors of one communicator, and what they share.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <caf/actor.hpp>

#include "actors/caf/messages.hpp"
#include "actors/caf/runtime.hpp"
#include "actors/rank/rank_state.hpp"
#include "actors/rank/slot_desk.hpp"

namespace troupe::actors {

class fabric;

/// Written while the communicator is made, before any of its actors has a message; read-only afterwards, but for the members that
/// say so. Actors hold it until they end, which breaks the circle of references.
struct crew {
  crew(std::string called, int n, int channel_count, arena& m, fabric* way)
      : name(std::move(called)), ranks(n), channels(channel_count), memory(m), spaces(n), ways(way) {}

  std::string name;
  int ranks;
  int channels;
  arena& memory;
  shared_spaces spaces;  ///< thread-safe
  fabric* ways;          ///< null on a flat layout: references go directly
  fault_settings faults;
  std::vector<int> machine_rank;  ///< rank of the communicator → rank of the machine's layout
  caf::actor membership;
  std::vector<caf::actor> rank;
  std::vector<std::vector<caf::actor>> channel;  ///< [rank][channel]
  std::unique_ptr<slot_desk> desk;               ///< numbers the operations, and performs those over slots; thread-safe
  /// Makes an operation of a request that came as a message to a rank actor, and begins it if it goes over slots; set by the
  /// engine. Thread-safe.
  std::function<operation_ptr(rank_t, const call_description&)> accept;

  /// Chunks that fault injection has held back, and let go again, so far.
  std::atomic<std::uint64_t> held_back{0}, let_go{0};
  std::atomic<look_t> looks{0};    ///< that have begun: see confirm()
  std::atomic<bool> ended{false};  ///< all ranks have left or the communicator was dissolved

  /// The state of a rank whose actor died, with its operations, until no living rank refers to their buffers.
  void bury(std::unique_ptr<rank_state> state) {
    const std::lock_guard lock(graves_mutex_);
    graves_.push_back(std::move(state));
  }
  /// Their operations fail, with this if the rank did not know better.
  void clear_graves(const failure_ptr& why) {
    std::vector<std::unique_ptr<rank_state>> graves;
    {
      const std::lock_guard lock(graves_mutex_);
      graves.swap(graves_);
    }
    if (why)
      for (const auto& state : graves) state->perish(why);
  }

private:
  std::mutex graves_mutex_;
  std::vector<std::unique_ptr<rank_state>> graves_;
};
using crew_ptr = std::shared_ptr<crew>;

}  // namespace troupe::actors
