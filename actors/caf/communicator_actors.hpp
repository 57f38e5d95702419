#pragma once
// The actors of one communicator, and what they share.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <caf/actor.hpp>

#include "actors/caf/messages.hpp"
#include "actors/caf/runtime.hpp"
#include "actors/rank/rank_table.hpp"

namespace troupe::actors {

class fabric;

/// Written while the communicator is made, before any of its actors has a message; read-only afterwards, but for the members that
/// say so. Actors hold it until they end, which breaks the circle of references.
struct communicator_actors : std::enable_shared_from_this<communicator_actors> {
  communicator_actors(std::string called, int n, int channel_count, arena& m, fabric* way)
      : name(std::move(called)), ranks(n), channels(channel_count), memory(m), ways(way) {}

  std::string name;
  int ranks;
  int channels;
  arena& memory;
  fabric* ways;  ///< null on a flat layout: references go directly
  fault_settings faults;
  std::vector<int> machine_rank;  ///< rank of the communicator → rank of the machine's layout
  caf::actor membership;
  std::vector<caf::actor> rank;  ///< the ranks' shells
  std::unique_ptr<rank_threads> threads;
  std::unique_ptr<rank_table> table;  ///< thread-safe
  /// Makes an operation of a request that came as a message to a rank actor; set by the engine. Thread-safe.
  std::function<operation_ptr(rank_t, const call_description&)> accept;

  /// Chunks that fault injection has held back, and let go again, so far.
  std::atomic<std::uint64_t> held_back{0}, let_go{0};
  std::atomic<look_t> looks{0};    ///< that have begun: see confirm()
  std::atomic<bool> ended{false};  ///< all ranks have left or the communicator was dissolved
};
using communicator_actors_ptr = std::shared_ptr<communicator_actors>;

}  // namespace troupe::actors
