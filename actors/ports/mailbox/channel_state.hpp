// SPDX-License-Identifier: Apache-2.0
#pragma once
// One channel of one rank: performs its part of every operation under way, with chunk and credit messages (the mailbox port).
// No CAF in here, so that every transition can be tested alone, and under ThreadSanitizer.
//
// Here a *message* is a chunk: a reference to the sender's bytes, with its name (epoch, source, lane, sequence). Its *credit* says
// that it was consumed, and gives those bytes back to the sender. The *epoch* tells the operations of a communicator apart. A chunk that was
// *settled* on its way needs no credit, since others keep its bytes and bound their number.
//
// Owner: rank_state, on the rank's turn; nobody else touches it. What may arrive, in any order:
//   start(assignment)          begins an operation
//   chunk                      from a peer     readable until we answer with a credit; one that is only `announced` cannot be read yet:
//                                              when a step waits for it and for nothing else, we say `clear`, and it comes once more
//   credit                     from a peer     our chunk has been consumed
//   announced(epoch)           from a caller   pieces of a partitioned operation's input are ready (assignment::parts)
//   transferred(epoch, lane)   from a DMA engine; in virtual time also when the work of a lane's step has ended
//   stop(operation)            drops the operation, and what came of it; afterwards nothing here refers to its buffers
// A chunk that comes before its operation waits in `early_`, named by (epoch, source, lane, sequence) and taken in the order of
// the program, whatever order it came in (spec 3: order-preserving trigger). Its number is bounded by the credits granted,
// and of settled chunks between processes by the window.
// Chunks that come twice are dropped. Which operations are over, the rank knows: it passes on no chunk of those.

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "memory/arena.hpp"
#include "memory/packet_buffer.hpp"
#include "protocols/agreement/agreement.hpp"
#include "protocols/chunk.hpp"
#include "protocols/perform/assignment.hpp"
#include "protocols/perform/performer.hpp"
#include "protocols/program/shared_pieces.hpp"

namespace troupe::actors {

/// Names an operation at one rank: collectives by epoch, sends and receives by epoch, peer and direction.
struct operation_key {
  epoch_t epoch = 0;
  rank_t peer = -1;
  bool sending = false;
  bool operator==(const operation_key&) const = default;
};
constexpr operation_key collective_key(epoch_t epoch) { return {epoch, -1, false}; }
struct operation_key_hash {
  std::size_t operator()(const operation_key& k) const noexcept {
    const std::uint64_t row = std::uint64_t{static_cast<std::uint32_t>(k.peer)} << 1 | (k.sending ? 1u : 0u);
    const std::uint64_t word = (k.epoch << 32 | k.epoch >> 32) ^ row;
    return static_cast<std::size_t>(word * 0x9e3779b97f4a7c15u >> 17);
  }
};

/// The row of sends or receives that the operation belongs to. @pre a send or receive
inline std::uint64_t pair_name(const operation_key& key) {
  return tag_of(key.epoch) << 33 | std::uint64_t{static_cast<std::uint32_t>(key.peer)} << 1 | (key.sending ? 1u : 0u);
}

/// Where a channel's messages go. Calls happen on the channel's own turn.
class channel_outbox {
public:
  virtual ~channel_outbox() = default;
  /// To the channel of the same number at rank `to`. True: it is settled (chunk::settled), and no credit will come back for it.
  virtual bool deliver(rank_t to, chunk&& what) = 0;
  virtual void give_back(rank_t to, const credit& what) = 0;
  /// A step waits for that long chunk, or will after others (early_receives.hpp), and its place is free. True: it may be received there from now on, until withdraw_place(), or until it
  /// comes. False: it never is.
  virtual bool offer_place(const expected_chunk&) { return false; }
  /// Nothing is received there any more, even if something had begun to be.
  virtual void withdraw_place(const expected_chunk&) {}
  /// The chunk that `to` has announced may come. The names are those that its credit will have.
  virtual void clear(rank_t /*to*/, const credit&) {}
  /// All lanes are performed and all credits have come back, of what was not settled: nobody reads the operation's buffers on our behalf any more.
  virtual void performed(const operation_key& which) = 0;
  /// Of a partitioned operation: a piece of the output has arrived.
  virtual void arrived(const operation_key& /*which*/) {}
  /// A chunk of `from` carries another fingerprint or size: that rank called something else.
  virtual void mismatch(const operation_key& which, rank_t from) = 0;
  /// Performing threw: a user's reduction, or no memory for a slot. The operation waits to be stopped.
  virtual void failed(const operation_key& which, failure_ptr why) = 0;
  /// True: copied at once. False: a DMA engine copies and transferred() will be called.
  virtual bool transfer(const operation_key& which, int lane, std::byte* target, const std::byte* source,
                        std::size_t bytes) = 0;
  /// The same from or to L2, for those to whom it matters where that lies.
  virtual bool transfer_shared(const operation_key& which, int lane, const shared_transfer& what) {
    return transfer(which, lane, what.target, what.source, what.bytes);
  }
  /// Only of operations whose work takes time (step_work): a lane begins `i`, which lacks nothing. `lacked`: what the lane waited for
  /// last. True: no time passes. False: transferred() will be called when the work has ended; only then `i` consumes and sends.
  virtual bool begin_work(const operation_key&, int, const instruction&, lane_wait::reason) { return true; }
};

/// Shorter chunks are not worth a place of their own.
inline constexpr std::size_t least_placed = 16 * 1024;

class channel_state {
public:
  /// @param least see least_placed
  channel_state(rank_t rank, int channel, arena& slots, std::size_t least = least_placed)
      : rank_(rank), channel_(channel), slots_(&slots), least_placed_(least) {}

  void start(std::shared_ptr<const assignment> what, channel_outbox& out);
  void on_chunk(chunk&& what, channel_outbox& out);
  void on_credit(const credit& what, channel_outbox& out);
  void announced(const operation_key& which, channel_outbox& out);
  void transferred(const operation_key& which, int lane, channel_outbox& out);
  /// Drops the operation, also one that has not started here, with every chunk that waits for it. Returns what its lanes
  /// waited for.
  std::vector<lane_wait> stop(const operation_key& which);
  /// What the lanes of an operation wait for now; empty if it is not under way.
  std::vector<lane_wait> waits(const operation_key& which) const;

  /// Chunks and credits that have moved an operation so far; 0 if it is not under way. For those who suspect that nothing moves.
  std::uint64_t moves(const operation_key& which) const;

  std::size_t under_way() const { return active_.size(); }
  /// Those of the operations under way. Allocates.
  std::vector<std::shared_ptr<const assignment>> assignments() const;
  std::size_t early_chunks() const;

private:
  struct link {
    std::uint64_t name = 0;       ///< lane << 32 | peer
    std::uint32_t next = 0;       ///< sequence of the next chunk to send or to consume
    std::uint32_t returned = 0;   ///< out links: credits that came back
    std::uint64_t came_back = 0;  ///< out links: which of the 64 after `returned` came back out of order
    std::byte* slots = nullptr;   ///< out links: memory of recv_reduce_send's results, one per credit
    std::byte* place = nullptr;   ///< in links: where chunk `next` may be received, if it is not there yet
    bool offered = false;         ///< in links: a place for it
    bool cleared = false;         ///< in links: chunk `next`, which was announced
    std::optional<chunk> here;    ///< in links: chunk `next`, if it came when the operation had begun
  };
  struct active {
    std::shared_ptr<const assignment> what;
    performer lanes;
    std::vector<link> in, out;      ///< sorted by name
    std::uint32_t outstanding = 0;  ///< chunks sent and not given back
    bool mismatched = false;
    void begin(std::shared_ptr<const assignment> next, int channel);
    void let_go();
  };
  struct port;
  struct port_in_time;
  friend struct port;

  using active_map = std::unordered_map<operation_key, active, operation_key_hash>;

  /// Links beyond these are made anew by the next operation.
  static constexpr std::size_t most_kept_links = 64;

  static link& find_link(std::vector<link>& links, int lane, rank_t peer);
  active_map::iterator find(const operation_key& key);
  void advance(active_map::iterator at, channel_outbox& out);
  void keep(chunk&& what);
  chunk* find_early(const packet_key& key);
  static void came_back(active& a, link& l, std::uint32_t ahead);
  bool drop_early(const packet_key& key);
  void keep_next(link& l, chunk&& what);
  void drop_job(const operation_key& key);
  std::uint32_t lanes_of(const active& a) const { return static_cast<std::uint32_t>(a.what->code->lanes_per_channel); }

  rank_t rank_;
  int channel_;
  arena* slots_;
  std::size_t least_placed_;
  active_map active_;
  active_map::node_type spare_;  ///< of the last that was performed, for the next, which allocates nothing then
  std::vector<std::unique_ptr<packet_buffer<chunk>>>
      early_;  ///< one in normal times; larger ones are added under pressure
};

}  // namespace troupe::actors
