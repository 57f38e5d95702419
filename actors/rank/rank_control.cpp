// SPDX-License-Identifier: Apache-2.0
// What a rank hears besides chunks and credits: from the membership, the clock and its callers about operations that are to stop, have failed, or take long;
// and from other ranks about sends and receives.

#include <algorithm>

#include "actors/rank/operation_parts.hpp"
#include "actors/rank/rank_state.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

// -- an operation ends badly ------------------------------------------------------------------------------------------------

void rank_state::stop(epoch_t epoch, rank_outbox& out) {
  if (dead_) return;
  std::vector<std::string> waits;
  const operation* const known = find(epoch);
  if (known != nullptr && known->parts) waits = unready_pieces(*known->parts);
  const bool unready = !waits.empty();
  if (known != nullptr && known->parts) {
    if (!unready && known->launched)
      for (const lane_wait& wait : known->parts->waits()) waits.push_back(to_string(wait));
    known->parts->leave();
  }
  // Lanes that lack no piece of this rank's input wait for what follows from that, or for what the other ranks say.
  for (const lane_wait& wait : drop(collective_key(epoch)))
    if (!unready) waits.push_back(to_string(wait));
  stopping_[epoch] = std::move(waits);
  if (operation* const op = find(epoch)) op->stalled = true;  // it must not succeed any more, whatever still comes
  if (recall_from_nic(epoch, out)) return;
  if (!out.flush(collective_key(epoch))) answer_stop(epoch, out);
}

void rank_state::flushed(const operation_key& which, rank_outbox& out) {
  if (dead_) return;
  if (which.peer >= 0) {
    pairs_.flushed(which, out);
    return when_idle(out);
  }
  if (stopping_.contains(which.epoch)) answer_stop(which.epoch, out);
}

void rank_state::answer_stop(epoch_t epoch, rank_outbox& out) {
  presence came;
  if (const operation* op = find(epoch)) {
    came.what = described(op->what, op->plan, epoch, op->what.history, op->ahead);
  } else if (inline_ && next_ - 1 == epoch) {
    came.what = described(port_->last().what, port_->last().how, epoch, inline_history_, inline_ahead_);
  } else {
    came.performed = before(epoch, next_);
    came.what = ahead_.unconfirmed(epoch);
    came.ahead = came.what.has_value();
  }
  out.stopped(epoch, std::move(stopping_[epoch]), std::move(came));
}

void rank_state::failed(epoch_t epoch, const failure_ptr& why, rank_outbox& out) {
  stopping_.erase(epoch);
  asked_.erase(epoch);
  // Not before: until all ranks have stopped, one that has not may enter, and must find the others' buffers there.
  spaces_->forget(epoch);
  if (dead_) return;
  if (on_board_ && on_board_->epoch == epoch) {
    finish_on_board(why, out);
    return begin_queued(out);
  }
  if (under_way_.contains(epoch)) return finish(epoch, why, out);
  if (operation* queued = find(epoch)) {
    // It waits for its turn, which may be far off; nobody refers to its buffers, so its caller need not.
    if (std::exchange(queued->over, true)) return;
    const auto at = std::find_if(queue_.begin(), queue_.end(), [&](const auto& op) { return op.get() == queued; });
    ended_.append(*at, why);
    return when_idle(out);
  }
  // A later call of this number gets this, the first of several failures; or the operation is over.
  if (!before(epoch, next_)) failed_.add(epoch, why);
}

/// A rank that has performed a call may end the communicator at once, and this rank may hear of that before it has looked at the board a last time.
void rank_state::look_once_more(rank_outbox& out) {
  if (!on_board_ || on_board_->stalled) return;
  try {
    if (port_->advance() == board_performer::status::performed) finish_on_board(nullptr, out);
  } catch (...) {}  // it ends by what has broken
}

void rank_state::broken(const failure_ptr& why, rank_outbox& out) {
  if (broken_ || dead_) return;
  look_once_more(out);
  broken_ = why;
  end_all(out);
}

/// It has lost ranks, so it says `broken` in any case; but what the old one has broken already waits for what the old one will not say.
void rank_state::rehomed(rank_outbox& out) {
  if (dead_ || !broken_) return;
  quiet_ = false;
  end_all(out);
}

/// Broken: what can end at once does, the rest once all ranks have let go of it. May be repeated.
void rank_state::end_all(rank_outbox& out) {
  if (on_board_) finish_on_board(broken_, out);
  for (auto& [epoch, op] : under_way_) out.fail(epoch, op->title(), broken_);
  begun_ = next_;
  for (; !queue_.empty(); queue_.pop_front()) {
    drop(collective_key(queue_.front()->epoch));  // what came early
    if (operation_ptr& op = queue_.front(); !op->over) ended_.append(std::move(op), broken_);
  }
  speaking_ = &out;
  pairs_.stop_all(broken_, out);
  speaking_ = nullptr;
  when_idle(out);
}

void rank_state::break_down(const failure_ptr& why, rank_outbox& out) {
  if (dead_) return;
  beginning_ = false;
  speaking_ = nullptr;
  if (!broken_) broken_ = why;
  out.abort(broken_);
  end_all(out);
}

void rank_state::end(const operation_ptr& op, failure_ptr why, rank_outbox& out) {
  if (dead_ || op->over) return;
  if (op->peer >= 0) {
    pairs_.stop({op->epoch, op->peer, op->sending}, std::move(why), out);
    return when_idle(out);
  }
  if (find(op->epoch) == op.get()) out.fail(op->epoch, op->title(), std::move(why));
}

// -- the membership -------------------------------------------------------------------------------------------------------

/// The membership compares the calls, and says what becomes of it.
void rank_state::enroll(operation& op, rank_outbox& out) {
  // Never after `stopped`: the membership may have closed the record.
  if (stopping_.contains(op.epoch) || std::exchange(op.registered, true)) return;
  out.called(op.epoch, described(op.what, op.plan, op.epoch, op.what.history, op.ahead));
}

void rank_state::asked(epoch_t epoch, rank_outbox& out) {
  if (dead_) return;
  begin_queued(out);  // somebody waits for it, so it waits for a group no longer
  if (operation* const op = find(epoch); op != nullptr && !op->over) return enroll(*op, out);
  if (!before(epoch, next_)) return void(asked_.insert(epoch));
  const auto unconfirmed = ahead_.unconfirmed(epoch);
  out.withdraw(epoch, unconfirmed ? &*unconfirmed : nullptr);
}

void rank_state::agreed(epoch_t epoch, const counts_ptr& counts, rank_outbox& out) {
  if (dead_) return;
  operation* const op = find(epoch);
  if (op == nullptr) return;
  op->agreed = true;
  op->registered = true;
  if (op->unlike >= 0) return sizes_differ(*op, out);
  if (op->what.outcome_of) return tell_outcome(*op, counts, out);
  if (op->launched && op->channels == 0 && op != in_tiers_) return finish(epoch, nullptr, out);
  if (op->plan || !op->make_plan || stopping_.contains(epoch)) return;
  try {
    op->counts = counts;
    op->plan = op->make_plan(counts);
  } catch (const error& e) {
    return out.fail(epoch, op->title(), make_failure(e.code_value(), e.what()));
  } catch (const std::exception& e) {
    return out.fail(epoch, op->title(), make_failure(errc::out_of_memory, e.what()));
  }
  if (under_way_.contains(epoch)) launch(*op, out);  // else in its turn
}

/// All have called it alike, as far as anybody can compare, or have performed it; so it is the sizes that only two ranks know.
void rank_state::sizes_differ(const operation& op, rank_outbox& out) {
  const std::string us = std::to_string(options_.rank), them = std::to_string(op.unlike);
  out.fail(op.epoch, op.title(),
           make_failure(errc::mismatch, options_.communicator + ", operation #" + std::to_string(op.epoch) + " " +
                                            op.title() + " on rank " + us + ": what rank " + them +
                                            " sends has another size than rank " + us +
                                            " expects; the counts of the one and the other must be equal"));
}

/// Every rank gets the membership's one decision: this, or `failed`.
void rank_state::tell_outcome(operation& op, const counts_ptr& results, rank_outbox& out) {
  if (op.over || stopping_.contains(op.epoch)) return;
  if (!results)
    return out.fail(op.epoch, op.title(), make_failure(errc::mismatch, "a rank has performed something else instead"));
  for (std::size_t r = 0; r < results->size(); ++r) static_cast<errc*>(op.output)[r] = static_cast<errc>((*results)[r]);
  if (under_way_.contains(op.epoch)) return finish(op.epoch, nullptr, out);
  // It waits for its turn, before which it could still fail here alone.
  op.over = true;
  const auto at = std::find_if(queue_.begin(), queue_.end(), [&](const auto& queued) { return queued.get() == &op; });
  ended_.append(*at, nullptr);
  when_idle(out);
}

void rank_state::peer_left(rank_t peer, const sends_ptr& sent, rank_outbox& out) {
  if (dead_) return;
  pairs_.peer_left(peer, sent, out);
  when_idle(out);
}

void rank_state::peer_lost(rank_t peer, rank_outbox& out) {
  if (dead_) return;
  pairs_.peer_lost(peer, out);
  when_idle(out);
}

steady_time rank_state::tick(rank_outbox& out) {
  if (dead_ || !pending()) return no_deadline;
  const steady_time now = out.now();
  steady_time next = no_deadline;
  std::vector<operation*> late;
  const auto look = [&](operation& op, bool begun) {
    if (op.over) return;
    if (op.expires <= now) late.push_back(&op), op.expires = no_deadline;
    next = std::min(next, op.expires);
    if (op.begun == steady_time{}) op.begun = now;
    if (begun && op.parts) next = std::min(next, look_for_late_pieces(op, now, out));
    if (!begun || op.registered) return;
    if (now >= op.begun + options_.patience) enroll(op, out);
    else next = std::min(next, op.begun + options_.patience);
  };
  if (on_board_) look(*on_board_, true);
  for (auto& [epoch, op] : under_way_) look(*op, true);
  for (operation_ptr& op : queue_) look(*op, false);
  for (operation* op : late) out.fail(op->epoch, op->title(), deadline_passed(*op, options_.rank));
  next = std::min(next, pairs_.expire(now, out));
  when_idle(out);
  return next;
}

/// Since it was suspected. If so, the suspicion was wrong, and begins anew.
bool rank_state::has_moved(operation& op) const {
  std::uint64_t moved = op.parts && op.parts->performer ? op.parts->performer->moves() : 0;
  for (const channel_state& c : channels_) moved += c.moves(collective_key(op.epoch));
  if (std::exchange(op.moved, moved) == moved || op.suspected == 0) return false;
  op.suspected = 0;
  return true;
}

void rank_state::stuck(look_t look, look_t latest, bool nobody_else, rank_outbox& out) {
  if (dead_) return;
  const auto why =
      make_failure(errc::message_lost, "nothing moves any more although every rank has come: a message was lost");
  for (auto& [epoch, op] : under_way_)
    // Whether the NIC moves, or another host, nobody sees from here; they lose nothing.
    if (op->agreed && !op->on_nic && op.get() != in_tiers_ && !(op->parts && spaces_->awaits_pieces(epoch)) &&
        !stopping_.contains(epoch) && !has_moved(*op) && confirm(op->suspected, look, latest))
      out.fail(epoch, op->title(), why);
  pairs_.stuck(look, latest, nobody_else, out);
}

// -- sends and receives -----------------------------------------------------------------------------------------------

void rank_state::revoke(rank_t sender, epoch_t epoch, const failure_ptr& why, rank_outbox& out) {
  if (dead_) return;
  pairs_.revoke(sender, epoch, why, out);
  when_idle(out);
}

void rank_state::revoked(rank_t receiver, epoch_t epoch, bool received, rank_outbox& out) {
  if (dead_) return;
  pairs_.revoked(receiver, epoch, received, out);
  when_idle(out);
}

void rank_state::refused(rank_t peer, epoch_t epoch, bool sending, failure_ptr why, rank_outbox& out) {
  if (dead_) return;
  pairs_.refused(peer, epoch, sending, std::move(why), out);
  when_idle(out);
}

void rank_state::inquired(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else, rank_outbox& out) {
  if (dead_) return;
  pairs_.inquired(peer, epoch, sending, look, nobody_else, out);
  when_idle(out);
}

void rank_state::asked_for(rank_t peer, epoch_t epoch, bool sending, const std::string& text, rank_outbox& out) {
  if (!dead_) pairs_.asked_for({epoch, peer, sending}, text, out);
}

void rank_state::look_again(rank_t peer, bool sending, rank_outbox& out) {
  if (dead_) return;
  pairs_.look_again(peer, sending, out);
  when_idle(out);
}

bool rank_state::look_at_watched(rank_outbox& out) {
  if (dead_ || !pairs_.look_at_watched(out)) return false;
  when_idle(out);
  return true;
}

void rank_state::leave_watched(rank_outbox& out) {
  pairs_.leave_watched(out);
  if (!dead_) when_idle(out);
}

}  // namespace troupe::actors
