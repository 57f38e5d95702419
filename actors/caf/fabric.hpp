// SPDX-License-Identifier: Apache-2.0
#pragma once
// The elements of the machine as actors: DMA engines, ring segments, links, NICs and the switch. A chunk passes them hop by hop, in
// the order that topology/machine/routes.hpp gives.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/caf/communicator_actors.hpp"
#include "actors/caf/messages.hpp"
#include "actors/elements/nic_state.hpp"
#include "memory/arena.hpp"
#include "protocols/chunk.hpp"
#include "topology/machine/routes.hpp"

namespace troupe::actors {

/// The way from one rank to another, with the actor of every hop.
struct path {
  route way;
  std::vector<caf::actor> hops;
  std::atomic<bool> recorded{false};
};
using path_ptr = std::shared_ptr<path>;

/// The channel that a chunk is for, or on whose behalf memory is copied. Keeps its communicator.
struct channel_address {
  communicator_actors_ptr members;
  rank_t rank = -1;
  int channel = 0;
  rank_cell& cell() const { return members->table->at(rank); }
};

/// A chunk on its way. `at`: position of the receiving element in the path; behind the last one comes `destination`.
struct transfer_message {
  chunk what;
  path_ptr way;
  std::size_t at;
  channel_address destination;
  std::vector<element_id> passed;  ///< filled when routes are traced
};
/// A piece of a chunk between two NICs.
struct packet_message {
  std::shared_ptr<const transfer_message> whole;
  std::size_t at;  ///< as in transfer_message
  nic_state::packet what;
  caf::actor sender;
};
/// dma_get / dma_put: copy, and tell the channel.
struct copy_message {
  std::byte* target;
  const std::byte* source;
  std::size_t bytes;
  channel_address asker;
  operation_key which;
  int lane;
};
/// "Answer when you have done what came before": from then on the DMA engine reads and writes nothing on the asker's behalf.
struct flush_message {};
struct flushed_message {};

/// Spawns elements on first use and remembers paths. Thread-safe.
class fabric final : public travel_memory {
public:
  fabric(caf::actor_system& system, machine hardware, arena& memory, bool trace, std::shared_ptr<spdlog::logger> log)
      : system_(system), machine_(std::move(hardware)), memory_(memory), trace_(trace), log_(std::move(log)) {}

  /// Null: both ranks share a core group and hand over references directly.
  path_ptr path_between(int from, int to, int channel);
  caf::actor dma_of(int rank);

  /// Sends a transfer to its next hop, or the chunk to its destination. Called by elements, on their turn.
  void forward(transfer_message&& what);

  bool traces() const { return trace_; }
  std::vector<std::string> traced();
  /// Null, and an entry in the log, when there is none.
  std::shared_ptr<scratch_block> buffer(std::size_t bytes) override;
  const machine& hardware() const { return machine_; }
  /// Ends all elements.
  void close();

private:
  caf::actor element_actor(element_id id);
  void record(path& way, const std::vector<element_id>& passed);

  caf::actor_system& system_;
  machine machine_;
  arena& memory_;
  bool trace_;
  std::shared_ptr<spdlog::logger> log_;
  std::mutex mutex_;  // when a pair first talks; paths are cached by the channels
  std::unordered_map<element_id, caf::actor> elements_;
  std::vector<std::string> traced_;
  bool closed_ = false;
};

/// A core group's DMA engine: reads the sender's memory into a buffer that travels (out), hands what arrives to the channel (in),
/// and performs dma_get and dma_put. One request after the other, as the engine is shared by everything on its core group.
caf::actor spawn_dma_engine(caf::actor_system& system, fabric& ways);
/// Calls back, on `self`'s turn, when nothing that the channels of `rank` have handed to their DMA engine refers to the rank's memory
/// any more; at once if the ranks hand over references directly.
template <class Self, class Callback>
void after_transfers(Self& self, const communicator_actors& members, rank_t rank, Callback callback) {
  if (members.ways == nullptr) return callback();
  ask(self, members.ways->dma_of(members.machine_rank[static_cast<std::size_t>(rank)]), caf::infinite, flush_message{})
      .then([callback](const flushed_message&) mutable { callback(); },
            [callback](const caf::error&) mutable { callback(); });  // an engine that is gone refers to nothing either
}

/// One direction of a ring-bus segment, a card link, or the switch: passes on in order.
caf::actor spawn_ring_segment(caf::actor_system& system, fabric& ways);
/// One port of a server: cuts what leaves into packets, and puts together what arrives.
caf::actor spawn_nic(caf::actor_system& system, fabric& ways);

}  // namespace troupe::actors

TROUPE_BEGIN_MESSAGES(troupe_fabric, 60)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::transfer_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::packet_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::copy_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::flush_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::flushed_message)
TROUPE_END_MESSAGES(troupe_fabric)
