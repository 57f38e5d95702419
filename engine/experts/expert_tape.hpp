// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inside of an `expert_tape`: the records that one node writes, and the other goes back by.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/experts/expert_early.hpp"
#include "engine/experts/expert_flow.hpp"
#include "engine/experts/expert_node.hpp"

namespace troupe {

/// A record is the forward node's thread's until it has `kept` it, then the other node's, from take() to the end of its tile. Each run of the forward node goes back once at most.
struct TROUPE_INTERNAL expert_tape::inside {
  enum class state : std::uint8_t { empty, kept, went_back };
  struct kept_tile {
    kept_tile(const std::shared_ptr<lasting_memory>& memory, std::size_t ranks, std::size_t own_experts)
        : record(memory, ranks, own_experts) {}
    state is = state::empty;
    expert_access::record record;
    std::vector<std::int32_t> ids;
  };

  // -- when nodes are added --
  void describe(const expert_access::inside& exchange, const stream_type& tokens);
  /// Why that cannot go back by it; nothing if it can.
  std::string mismatch(const expert_access::inside& through, const stream_type& gradients) const;

  // -- any thread --
  void forward_starts(const std::string& who);
  void back_starts();
  void back_ended() noexcept;
  kept_tile& at(int tile) { return *(*tiles)[static_cast<std::size_t>(tile)]; }
  void keep(int tile);
  /// Throws error(invalid_argument): there is nothing to go back by.
  kept_tile& take(int tile);

  std::weak_ptr<void> forward, back;  ///< nodes
  // Of the forward node's exchange, which may be gone:
  std::weak_ptr<const communicator_state> comm;
  expert_options options;
  expert_replicas replicas;
  stream_type type;

  /// Exchanges keep them as long as others may read them.
  std::shared_ptr<std::vector<std::unique_ptr<kept_tile>>> tiles;
  std::mutex mutex;
  bool goes_back = false;  ///< the other node runs
};

}  // namespace troupe
