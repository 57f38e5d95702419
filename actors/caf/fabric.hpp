// SPDX-License-Identifier: Apache-2.0
#pragma once
// The elements of the machine as actors: core groups with their DMA engines, hosts, ring segments, links, PCIe, NICs and the switch. A chunk passes
// them hop by hop, in the order that topology/machine/routes.hpp gives. Nothing passes the MPE of a card: it owns the memory.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/caf/communicator_actors.hpp"
#include "actors/caf/messages.hpp"
#include "actors/elements/ended_elements.hpp"
#include "actors/elements/nic_state.hpp"
#include "actors/rank/card_tiers.hpp"
#include "memory/arena.hpp"
#include "memory/tiers/tier_heap.hpp"
#include "protocols/chunk.hpp"
#include "topology/machine/card_sizes.hpp"
#include "topology/machine/element_traffic.hpp"
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

/// A piece of a dma_get (`reads`) or dma_put whose cells lie in one share of L2 (topology/machine/shared_segment.hpp).
/// It goes there and comes back, by the elements that messages between the two core groups pass: a request and then the
/// bytes, or the bytes and then word that they were written. L2 stays valid until it is back, since it owns that; its
/// asker's memory until a flush, after which the asker's engine does nothing with what comes back.
struct l2_access {
  bool reads;
  std::byte* target;
  const std::byte* source;
  std::size_t bytes;
  path_ptr there, back;  ///< null: the share is its asker's own
  std::shared_ptr<const void> keep;
  std::uint64_t number = 0;  ///< among those of the asker's DMA engine
};

/// A chunk on its way. `at`: position of the receiving element in the path; behind the last one comes `destination`, if
/// it is a channel's.
struct transfer_message {
  chunk what;
  path_ptr way;
  std::size_t at;
  channel_address destination;
  std::vector<element_id> passed;             ///< filled when routes are traced
  std::shared_ptr<const l2_access> access{};  ///< it carries that instead of a channel's chunk; else null
};
/// A piece of a chunk between two NICs.
struct packet_message {
  std::shared_ptr<const transfer_message> whole;
  std::size_t at;  ///< as in transfer_message
  nic_state::packet what;
  caf::actor sender;
};
/// The rank whose dma_get or dma_put it is, which hears of its end.
struct transfer_asker {
  channel_address channel;
  operation_key which;
  int lane;
};
/// dma_get / dma_put within a core group's memory: copy, and tell the channel.
struct copy_message {
  std::byte* target;
  const std::byte* source;
  std::size_t bytes;
  transfer_asker asker;
};
/// The same between its L0 and L2, of which some lies in other core groups' shares.
struct shared_copy_message {
  std::vector<l2_access> pieces;
  transfer_asker asker;
};
/// "Answer when you have done what came before": from then on the DMA engine reads and writes nothing on that rank's behalf,
/// or only nothing for one operation.
struct flush_message {
  const communicator_actors* of;  ///< who that is, no more
  rank_t rank;
  std::optional<operation_key> which;
};
struct flushed_message {};
/// A rank asks for a block of its L0 (`of`) or of L2 (card_tiers::shared): its core group, or the MPE of the card, answers with a
/// region_message. Once for each size that the communicator's operations need, not once an operation (card_tiers.hpp).
struct region_order_message {
  std::shared_ptr<card_tiers> to;
  rank_t of;
  std::size_t bytes;
};
struct region_message {
  card_tiers::region block;
  failure_ptr why;  ///< null: granted
};
/// A core group asks the MPE for its L0. The answer is an l0_message.
struct l0_order_message {
  int core_group;
};
struct l0_message {
  std::shared_ptr<tier_heap> tier;
  failure_ptr why;  ///< null: it is the core group's
};

/// Spawns elements on first use and remembers paths. Thread-safe.
class fabric final : public travel_memory {
public:
  fabric(caf::actor_system& system, machine hardware, arena& memory, card_sizes cards, bool trace,
         std::shared_ptr<spdlog::logger> log)
      : system_(system),
        machine_(std::move(hardware)),
        memory_(memory),
        trace_(trace),
        log_(std::move(log)),
        ended_(machine_.element_count()),
        card_sizes_(cards) {}

  /// Null: both ranks share a core group, or are at one host, and hand over references directly.
  path_ptr path_between(int from, int to, int channel);
  /// Or the host, if the rank sits there.
  caf::actor core_group_of(int rank);
  caf::actor mpe_of(int server, int card);

  /// A transfer passes the element at that place of its way: noted if routes are traced.
  void pass(transfer_message& what, std::size_t at);
  void pass(transfer_message& what) { pass(what, what.at); }
  /// The same of bytes that a DMA engine copies within its core group's memory.
  void copied(element_id dma, std::size_t bytes) {
    if (trace_) count(dma, bytes);
  }
  /// An element has ended, on whose turn this is: what is sent to it is lost from now on. It is told to all
  /// (tell_of_ends()), unless they all end.
  void ended(element_id which);
  /// `tell` is called after an element has ended, by the thread that ended it. Before any element is made.
  void tell_of_ends(std::function<void()> tell) { tell_ = std::move(tell); }
  bool any_ended() const noexcept { return ended_.any(); }
  /// Why nothing comes through on that way, or from that core group; null: nothing on it has ended. No lock: from then on every operation asks
  /// this of all that it passes.
  failure_ptr obstacle(const path& way) const;
  failure_ptr obstacle_at(int rank) const;

  /// Sends a transfer to its next hop, or the chunk to its destination. Called by elements, on their turn.
  void forward(transfer_message&& what);
  /// The same of a transfer that has come to the element where its way ends.
  void arrived(transfer_message& what);

  /// Each way once, by its ranks; empty unless routes are traced.
  std::vector<std::string> traced();
  /// Of every element that something passed, in the order of their ids; empty unless routes are traced.
  std::vector<element_traffic> traffic();
  /// Null, and an entry in the log, when there is none.
  std::shared_ptr<scratch_block> buffer(std::size_t bytes) override;
  const machine& hardware() const { return machine_; }
  const card_sizes& sizes() const { return card_sizes_; }
  /// Ends all elements.
  void close();

private:
  caf::actor element_actor(element_id id);
  failure_ptr obstacle(element_id which) const;
  void count(element_id element, std::size_t bytes);

  caf::actor_system& system_;
  machine machine_;
  arena& memory_;
  bool trace_;
  std::shared_ptr<spdlog::logger> log_;
  std::mutex mutex_;  // when a pair first talks, and when an element ends; paths are cached by the channels
  std::unordered_map<element_id, caf::actor> elements_;
  std::mutex traced_mutex_;  // once a hop, when routes are traced
  struct traced_way {
    int from, to;
    std::vector<element_id> passed;
    auto operator<=>(const traced_way&) const = default;
  };
  std::set<traced_way> traced_;
  std::map<element_id, element_traffic> traffic_;
  bool closed_ = false;
  ended_elements ended_;
  std::function<void()> tell_;
  const card_sizes card_sizes_;
  std::map<std::pair<int, int>, caf::actor> mpes_;  ///< by server and card
};

class tier_keeper;
/// What the owner of a tier answers.
region_message granted(tier_keeper& by, const region_order_message& what);
/// Why there is no L2, or L0, any more. @param of the core group or host, or any of the card
failure_ptr mpe_has_ended(const machine_element& of);
failure_ptr core_group_has_ended(const machine_element& of);

/// A core group: L0, and the DMA engine, which reads the sender's memory into a buffer that travels (out), hands what arrives to
/// the channel (in), and performs dma_get and dma_put, also for other core groups that read or write its share of L2. One
/// request after the other, as the engine is shared by everything on its core group. A host is the same for its own memory; in the
/// place of L0 it has a staging memory of that size, from which PCIe is fed.
caf::actor spawn_core_group(caf::actor_system& system, fabric& ways, element_id self);
/// The management core of the card that `of` is on, which has so many core groups.
caf::actor spawn_mpe(caf::actor_system& system, const card_sizes& sizes, int core_groups, machine_element of);
/// Calls back, on `self`'s turn, when nothing that the channels of `rank` have handed to their DMA engine refers to the rank's memory
/// any more, wherever it is on its way; at once if the ranks hand over references directly. @param which of that operation; none: of any
template <class Self, class Callback>
void after_transfers(Self& self, const communicator_actors& members, rank_t rank,
                     const std::optional<operation_key>& which, Callback callback) {
  if (members.ways == nullptr) return callback();
  ask(self, members.ways->core_group_of(members.machine_rank[static_cast<std::size_t>(rank)]), caf::infinite,
      flush_message{&members, rank, which})
      .then([callback](const flushed_message&) mutable { callback(); },
            [callback](const caf::error&) mutable { callback(); });  // an engine that is gone refers to nothing either
}

/// One direction of a ring-bus segment, a card link, PCIe, or the switch: passes on in order.
caf::actor spawn_ring_segment(caf::actor_system& system, fabric& ways, element_id self);
/// One port of a server: cuts what leaves into packets, and puts together what arrives.
caf::actor spawn_nic(caf::actor_system& system, fabric& ways, element_id self);

}  // namespace troupe::actors

TROUPE_BEGIN_MESSAGES(troupe_fabric, 60)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::transfer_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::packet_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::copy_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::shared_copy_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::flush_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::flushed_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::region_order_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::region_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::l0_order_message)
TROUPE_LOCAL_MESSAGE(troupe_fabric, troupe::actors::l0_message)
TROUPE_END_MESSAGES(troupe_fabric)
