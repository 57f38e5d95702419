// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a rank's messages go. The only way from a rank's state to the world: threads, CAF, virtual time and simulation each bring
// their own. Calls happen on the rank's own turn, must not block, and must not call the rank back.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/ports/mailbox/channel_state.hpp"
#include "actors/ports/nic/nic_driver.hpp"
#include "actors/waiting/parking.hpp"
#include "memory/error.hpp"
#include "protocols/agreement/agreement.hpp"
#include "protocols/call.hpp"
#include "protocols/chunk.hpp"

namespace troupe::actors {

class doorbell;
class operation_parts;

class rank_outbox {
public:
  virtual ~rank_outbox() = default;

  // -- to the membership --
  /// The rank performs this, and it takes long, or needs everybody's counts.
  virtual void called(epoch_t epoch, const call& what) = 0;
  /// The operation has met a message of another call: ask the others what they have called.
  virtual void differs(epoch_t epoch) = 0;
  /// It was performed, or has failed, after all. @param ahead what was called, if it may have been performed here before the others were
  /// known to call the same; else null
  virtual void withdraw(epoch_t epoch, const call* ahead) = 0;
  virtual void fail(epoch_t epoch, const std::string& title, failure_ptr why) = 0;
  /// Nothing here refers to a peer's buffers any more. @param came what the rank called, see agreement::stopped
  virtual void stopped(epoch_t epoch, std::vector<std::string> waits, presence came) = 0;
  /// @param last only its history and earlier calls count @param sent to ranks of other processes; null: nothing
  virtual void left(epoch_t operations, call last, sends_ptr sent) = 0;
  /// The communicator is broken and nothing of ours is under way any more: we refer to nobody's buffers.
  virtual void quiet() = 0;
  /// The rank cannot go on, so nobody can: end the communicator on every rank.
  virtual void abort(const failure_ptr& why) = 0;
  /// The actor is gone, and nothing here touches a peer's memory any more, nor will.
  virtual void perished() = 0;

  // -- to other ranks --
  /// To the channel of that number at rank `to`. True: settled, as channel_outbox's.
  virtual bool deliver(rank_t to, int channel, chunk&& what) = 0;
  virtual void give_back(rank_t to, int channel, const credit& what) = 0;
  /// As channel_outbox's. Only between processes.
  virtual bool offer_place(int /*channel*/, const expected_chunk&) { return false; }
  virtual void withdraw_place(int /*channel*/, const expected_chunk&) {}
  virtual void clear(rank_t /*to*/, int /*channel*/, const credit&) {}
  /// Nothing is between the communicator's ranks but memory, of this process or of several of a host: parts go over a board, or through part_areas. The
  /// same at all ranks, always.
  virtual bool shares_parts() const { return false; }
  /// To a rank that has come to a partitioned operation on a board: rank_state::announced(). @pre shares_parts(), and all ranks are in this process
  virtual void news_of_parts(rank_t /*to*/, const std::shared_ptr<operation_parts>&) {}
  /// To the receiving rank of a send: end the receive, and answer.
  virtual void revoke(rank_t receiver, epoch_t epoch, const failure_ptr& why) = 0;
  /// @param received the receive had been performed before
  virtual void revoked(rank_t sender, epoch_t epoch, bool received) = 0;
  /// To the other rank of a send or receive: yours (`sending`: your send) cannot be performed.
  virtual void refuse(rank_t peer, epoch_t epoch, bool sending, const failure_ptr& why) = 0;
  /// To the other rank of one that does not move: is the other end with you?
  virtual void inquire(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else) = 0;
  /// To the other rank of one that has waited for long: if you have not called it, your log is to say `text`. Where there is no log
  /// nobody is asked.
  virtual void ask_for(rank_t /*peer*/, epoch_t, bool /*sending*/, const std::string& /*text*/) {}

  /// To the other rank of messages on the pair board: look at your receives from me (`sending`: sends to me) once more.
  virtual void look_again(rank_t peer, bool sending) = 0;

  // -- to the log --
  virtual void warn(const std::string& /*text*/) {}

  // -- to the rank's DMA engine --
  /// True: copied at once. False: a DMA engine copies, and rank_state::transferred() will be called.
  virtual bool transfer(const operation_key& which, int channel, int lane, std::byte* target, const std::byte* source,
                        std::size_t bytes) = 0;
  /// As channel_outbox::transfer_shared().
  virtual bool transfer_shared(const operation_key& which, int channel, int lane, const shared_transfer& what) {
    return transfer(which, channel, lane, what.target, what.source, what.bytes);
  }
  /// True: transfers of the rank may be under way; rank_state::flushed() will be called when they have ended.
  virtual bool flush(const operation_key& which) = 0;

  /// Why what a program sends, receives or has copied does not come through on the modelled machine any more; null: nothing
  /// that it needs has ended.
  virtual failure_ptr obstacle(const program&) { return nullptr; }

  // -- to the card that the rank sits on (card_tiers.hpp) --
  /// To the owner of L0 of the rank's core group, or of L2 (`of`: card_tiers::shared): a block of it for that operation.
  /// rank_state::room_came() or no_room() will be called.
  virtual void ask_room(epoch_t, rank_t /*of*/, std::size_t /*bytes*/) {}
  /// To another rank: L2 is there, for which we have asked: rank_state::hear_of_room().
  virtual void tell_of_room(rank_t /*to*/, epoch_t) {}

  // -- to the process's NIC --
  /// rank_state::offloaded() or nic_differs() will be called, once the NIC is awake. Throws error where there is none; its queue has room for all
  /// that a rank has under way. `communicator` is set on the way.
  virtual void post_to_nic(nic_posting&&) {
    throw error(errc::unsupported, "there is no NIC here that performs descriptors");
  }
  /// rank_state::nic_let_go() will be called. @pre posted, and not over
  virtual void recall_from_nic(epoch_t) {}
  /// The NIC's thread to wake when the turn was given back, for what was posted in it: it may run at once on the poster's core, and should find
  /// the turn free then. Null: nobody.
  virtual doorbell* take_nic_to_wake() noexcept { return nullptr; }

  // -- to the clock, in virtual time --
  /// As channel_outbox::begin_work(); rank_state::transferred() will be called.
  virtual bool begin_work(const operation_key&, int /*channel*/, int /*lane*/, const instruction&, lane_wait::reason) {
    return true;
  }

  virtual steady_time now() const = 0;
};

}  // namespace troupe::actors
