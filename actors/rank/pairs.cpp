#include "actors/rank/pairs.hpp"

#include <algorithm>
#include <utility>

#include "memory/error.hpp"

namespace troupe::actors {

pairs::pairs(rank_t rank, int ranks, const std::string& communicator, epoch_t first, pair_keeper& keeper)
    : rank_(rank),
      communicator_(communicator),
      keeper_(&keeper),
      first_(first | point_to_point),
      left_(static_cast<std::size_t>(ranks)),
      lost_(static_cast<std::size_t>(ranks)) {}

void pairs::submit(operation_ptr op, const failure_ptr& broken, rank_outbox& out) {
  const auto [next, fresh] = next_.try_emplace(pair_name({0, op->peer, op->sending}), first_);
  op->epoch = next->second++;
  const operation_key key{op->epoch, op->peer, op->sending};
  failure_ptr why = broken;
  broken_ = broken_ || broken;
  if (const auto ended = ended_.find(pair_name(key)); ended != ended_.end())
    if (failure_ptr early = ended->second.take(key.epoch); early && !why) why = std::move(early);
  if (why) {
    keeper_->drop_pair(key);
    return settle(std::move(op), std::move(why));
  }
  operation& entered = *(under_way_[key] = std::move(op));
  if (stopping_.contains(key)) return;  // revoked a moment ago: over as soon as it has stopped
  if (entered.stalled) return;          // cancelled before it was launched
  keeper_->start_pair(prepare_pair(entered));
  if (left_[static_cast<std::size_t>(key.peer)] && under_way_.contains(key)) stop(key, left_without(key), out);
}

void pairs::performed(const operation_key& which) {
  if (const auto op = under_way_.extract(which)) settle(std::move(op.mapped()), nullptr);
  // A stop that is under way goes on: the other end may wait for its answer.
}

void pairs::settle(operation_ptr op, failure_ptr why) { keeper_->end_pair(std::move(op), std::move(why)); }

bool pairs::is_over(const operation_key& which) const {
  if (stopping_.contains(which)) return true;
  if (const auto ended = ended_.find(pair_name(which)); ended != ended_.end() && ended->second.contains(which.epoch))
    return true;
  const auto next = next_.find(pair_name(which));
  return next != next_.end() && before(which.epoch, next->second) && !under_way_.contains(which);
}

failure_ptr pairs::left_without(const operation_key& which) const {
  return make_failure(errc::rank_missing, communicator_ + ", " + under_way_.at(which)->title() + " on rank " +
                                              std::to_string(rank_) + ": rank " + std::to_string(which.peer) +
                                              " left the communicator without the matching call");
}

// -- the end of a peer --------------------------------------------------------------------------------------------------

void pairs::peer_left(rank_t peer, rank_outbox& out) {
  left_[static_cast<std::size_t>(peer)] = true;
  std::vector<operation_key> with_peer;
  for (auto& [key, op] : under_way_)
    if (key.peer == peer) with_peer.push_back(key);
  for (const operation_key& key : with_peer) stop(key, left_without(key), out);
}

void pairs::peer_lost(rank_t peer, rank_outbox& out) {
  lost_[static_cast<std::size_t>(peer)] = true;
  std::vector<operation_key> revoking;
  for (auto& [key, s] : stopping_)
    if (key.peer == peer && s.revoking) revoking.push_back(key);
  for (const operation_key& key : revoking) revoked(peer, key.epoch, false, out);
}

// -- the end of an operation ----------------------------------------------------------------------------------------------

void pairs::drop(const operation_key& which, stopping& s, rank_outbox& out) {
  keeper_->drop_pair(which);
  s.flushing = out.flush(which);
}

void pairs::stop(const operation_key& which, failure_ptr why, rank_outbox& out) {
  if (!under_way_.contains(which) || stopping_.contains(which)) return;
  stopping& s = stopping_[which];
  s.why = std::move(why);
  if (!which.sending) {
    out.refuse(which.peer, which.epoch, true, s.why);
  } else if (!lost_[static_cast<std::size_t>(which.peer)]) {
    s.revoking = true;
    out.revoke(which.peer, which.epoch, s.why);
  }
  drop(which, s, out);
  end_if_stopped(which, out);
}

void pairs::stop_all(const failure_ptr& why, rank_outbox& out) {
  broken_ = true;
  std::vector<operation_key> all;
  for (auto& [key, op] : under_way_) all.push_back(key);
  for (const operation_key& key : all) stop(key, why, out);
}

void pairs::mismatch(const operation_key& which, rank_t from, rank_outbox& out) {
  const auto at = under_way_.find(which);
  if (at == under_way_.end()) return;
  stop(which,
       make_failure(errc::mismatch, communicator_ + ", " + at->second->title() + " on rank " + std::to_string(rank_) +
                                        ": the message from rank " + std::to_string(from) +
                                        " has another count or type; both must be the same"),
       out);
}

void pairs::revoke(rank_t sender, epoch_t epoch, const failure_ptr& why, rank_outbox& out) {
  const operation_key key{epoch, sender, false};
  const auto next = next_.find(pair_name(key));
  const bool over = next != next_.end() && before(epoch, next->second) && !under_way_.contains(key);
  const auto [at, fresh] = stopping_.try_emplace(key);
  at->second.answer_sender = true;
  if (!fresh) return;  // stopping already
  // Had it failed here, the sender would have been told so before; but of the end of the communicator everybody hears for itself.
  at->second.received = over && !broken_;
  at->second.why = why;
  drop(key, at->second, out);
  end_if_stopped(key, out);
}

void pairs::revoked(rank_t receiver, epoch_t epoch, bool received, rank_outbox& out) {
  const operation_key key{epoch, receiver, true};
  const auto at = stopping_.find(key);
  if (at == stopping_.end()) return;
  at->second.revoking = false;
  at->second.received = received && !at->second.refused;
  end_if_stopped(key, out);
}

void pairs::refused(rank_t peer, epoch_t epoch, bool sending, failure_ptr why, rank_outbox& out) {
  const operation_key key{epoch, peer, sending};
  if (under_way_.contains(key)) {
    stop(key, std::move(why), out);
    if (const auto at = stopping_.find(key); at != stopping_.end()) at->second.refused = true;
    return;
  }
  end_early(key, why);
}

/// The other end has ended what was not called here yet.
void pairs::end_early(const operation_key& which, const failure_ptr& why) {
  if (!is_over(which)) ended_[pair_name(which)].add(which.epoch, why);
}

void pairs::flushed(const operation_key& which, rank_outbox& out) {
  const auto at = stopping_.find(which);
  if (at == stopping_.end()) return;
  at->second.flushing = false;
  end_if_stopped(which, out);
}

void pairs::end_if_stopped(const operation_key& which, rank_outbox& out) {
  const auto at = stopping_.find(which);
  if (at == stopping_.end() || at->second.flushing || at->second.revoking) return;
  const stopping s = std::move(at->second);
  stopping_.erase(at);
  if (s.answer_sender) out.revoked(which.peer, which.epoch, s.received);
  if (const auto op = under_way_.extract(which))
    return settle(std::move(op.mapped()), which.sending && s.received ? nullptr : s.why);
  end_early(which, s.why);
}

steady_time pairs::expire(steady_time now, rank_outbox& out) {
  steady_time next = no_deadline;
  std::vector<operation_key> due;
  for (auto& [key, op] : under_way_) {
    if (op->expires > now) next = std::min(next, op->expires);
    else due.push_back(key), op->expires = no_deadline;
  }
  for (const operation_key& key : due) stop(key, deadline_passed(*under_way_.at(key), rank_), out);
  return next;
}

void pairs::drop_all(const failure_ptr& why) {
  key_map_of_operations all;
  all.swap(under_way_);
  for (auto& [key, op] : all) settle(std::move(op), why);
}

// -- nothing moves ----------------------------------------------------------------------------------------------------------

void pairs::stuck(look_t look, look_t latest, bool nobody_else, rank_outbox& out) {
  for (auto& [key, op] : under_way_)
    if (!stopping_.contains(key) && confirm(op->suspected, look, latest))
      out.inquire(key.peer, key.epoch, !key.sending, look, nobody_else);
}

void pairs::inquired(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else, rank_outbox& out) {
  const operation_key key{epoch, peer, sending};
  const std::string title = communicator_ + ", " + (sending ? "send from rank " : "recv on rank ") +
                            std::to_string(rank_) + (sending ? " to rank " : " from rank ") + std::to_string(peer) +
                            ": ";
  if (const auto at = under_way_.find(key); at != under_way_.end()) {
    // Both ends were there, and everything was idle.
    if (at->second->suspected != 0 && look > at->second->suspected)
      stop(key,
           make_failure(errc::message_lost,
                        title + "nothing moves any more although both ranks have come: a message was lost"),
           out);
  } else if (nobody_else && !is_over(key)) {
    out.refuse(
        peer, epoch, !sending,
        make_failure(errc::rank_missing, title + "it was never called, and every rank waits, so it never will be"));
  }
}

}  // namespace troupe::actors
