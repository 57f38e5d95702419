#pragma once
// The sends and receives of one rank: numbered per peer and direction, independent of the collectives and of each other.
//
// They need no agreement. One ends (a) performed, or (b) stopped at both ends: whoever ends one takes the other end with it, also
// before that was called. A sender revokes and waits for the answer, because the receiver reads the sender's buffer; a receiver
// refuses, and the sender then revokes. A send that the
// receiver had received before it heard of that is performed at both ends.
//
// Owner: rank_state. Memory: what is under way, and one number for each peer and direction that ever was; what the other end has
// ended before it was called here waits until it is called.

#include <string>
#include <unordered_map>
#include <vector>

#include "actors/ports/mailbox/channel_state.hpp"
#include "actors/rank/operation.hpp"
#include "actors/rank/rank_outbox.hpp"
#include "protocols/agreement/ended_epochs.hpp"

namespace troupe::actors {

/// What sends and receives need of their rank.
class pair_keeper {
public:
  virtual ~pair_keeper() = default;
  virtual void start_pair(std::shared_ptr<const assignment> what) = 0;
  /// Drops what came for it, and what is under way of it. Its peers' memory may be referred to until flush() has ended.
  virtual void drop_pair(const operation_key& which) = 0;
  virtual void end_pair(operation_ptr what, failure_ptr why) = 0;
};

class pairs {
public:
  /// @param first number of the first send or receive with each peer
  pairs(rank_t rank, int ranks, const std::string& communicator, epoch_t first, pair_keeper& keeper);

  void submit(operation_ptr op, const failure_ptr& broken, rank_outbox& out);
  void performed(const operation_key& which);
  /// Cancel, deadline, mismatch: ends one of ours, unless it is over.
  void stop(const operation_key& which, failure_ptr why, rank_outbox& out);
  void stop_all(const failure_ptr& why, rank_outbox& out);
  void mismatch(const operation_key& which, rank_t from, rank_outbox& out);
  void peer_left(rank_t peer, rank_outbox& out);
  void peer_lost(rank_t peer, rank_outbox& out);
  /// A peer ends its send.
  void revoke(rank_t sender, epoch_t epoch, const failure_ptr& why, rank_outbox& out);
  void revoked(rank_t receiver, epoch_t epoch, bool received, rank_outbox& out);
  void refused(rank_t peer, epoch_t epoch, bool sending, failure_ptr why, rank_outbox& out);
  void inquired(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else, rank_outbox& out);
  void stuck(look_t look, look_t latest, bool nobody_else, rank_outbox& out);
  void flushed(const operation_key& which, rank_outbox& out);
  /// Those whose time is up end. Returns when the next one's is.
  steady_time expire(steady_time now, rank_outbox& out);
  /// Everything is dropped: the rank is gone, and nobody refers to its buffers.
  void drop_all(const failure_ptr& why);

  /// A chunk or credit of it is nobody's any more.
  bool is_over(const operation_key& which) const;
  bool idle() const { return under_way_.empty(); }
  std::size_t stopping_count() const { return stopping_.size(); }

private:
  struct stopping {
    failure_ptr why;
    bool flushing = false;       ///< the DMA engine still owes an answer
    bool revoking = false;       ///< the receiver owes one
    bool answer_sender = false;  ///< we owe the sender one
    bool received = false;  ///< at the receiver, before that: the send was performed, though its credit has not come
    bool refused = false;   ///< by the receiver
  };
  using key_map_of_operations = std::unordered_map<operation_key, operation_ptr, operation_key_hash>;

  failure_ptr left_without(const operation_key& which) const;
  void drop(const operation_key& which, stopping& s, rank_outbox& out);
  void end_if_stopped(const operation_key& which, rank_outbox& out);
  void settle(operation_ptr op, failure_ptr why);
  void end_early(const operation_key& which, const failure_ptr& why);

  rank_t rank_;
  const std::string& communicator_;
  pair_keeper* keeper_;
  epoch_t first_;  ///< number of the first with each peer and direction
  key_map_of_operations under_way_;
  std::unordered_map<operation_key, stopping, operation_key_hash> stopping_;
  std::unordered_map<std::uint64_t, ended_epochs> ended_;  ///< by pair_name: by the other end, before we called them
  std::unordered_map<std::uint64_t, epoch_t> next_;        ///< by pair_name: first not called yet
  std::vector<bool> left_, lost_;
  bool broken_ = false;
};

}  // namespace troupe::actors
