#include "actors/rank/rank_state.hpp"

#include <algorithm>
#include <utility>

#include "memory/error.hpp"

namespace troupe::actors {

namespace {
operation_key collective_key(epoch_t epoch) { return {epoch, -1, false}; }
}  // namespace

rank_state::rank_state(rank_t rank, int ranks, int channels, arena& memory, shared_spaces& spaces,
                       std::string communicator)
    : rank_(rank),
      ranks_(ranks),
      channels_(channels),
      memory_(&memory),
      spaces_(&spaces),
      communicator_(std::move(communicator)),
      left_peers_(static_cast<std::size_t>(ranks)),
      lost_peers_(static_cast<std::size_t>(ranks)) {}

rank_state::~rank_state() {
  // Only when the actor ends with operations under way: the engine closes, or the actor was killed.
  const failure_ptr why =
      broken_
          ? broken_
          : make_failure(errc::engine_closed, communicator_ + ": the engine was closed with this operation under way");
  for (auto* all : {&under_way_, &waiting_})
    for (auto& [epoch, op] : *all) op->done->complete(why);
  for (auto& [key, op] : pairs_) op->done->complete(why);
}

// -- collectives ------------------------------------------------------------------------------------------------------

void rank_state::submit(operation_ptr op, rank_outbox& out) {
  if (op->deadline) {
    const steady_time now = out.now();
    op->expires = *op->deadline < no_deadline - now ? now + *op->deadline : no_deadline;
    if (op->expires < alarm_at_) set_alarm(op->expires, out);
  }
  if (op->peer >= 0) return submit_pair(std::move(op), out);
  const epoch_t follows = op->follows == operation::unset ? op->epoch : op->follows;
  waiting_.emplace(follows, std::move(op));
  pump(out);
}

void rank_state::pump(rank_outbox& out) {
  while (under_way_.size() < most_under_way) {
    auto first = waiting_.extract(called_);  // strictly in order, also when two threads submitted at once
    if (!first) break;
    operation& op = *first.mapped();
    const epoch_t epoch = op.epoch;
    called_ = epoch + 1;
    if (broken_) {
      op.done->complete(broken_);
      continue;
    }
    if (const failure_ptr why = failed_.take(epoch)) {
      out.skip(collective_key(epoch), launched(epoch));
      op.done->complete(why);
      continue;
    }
    failed_.forget_before(epoch);                    // they went over slots
    const bool stopped = stopping_.contains(epoch);  // `failed` will come
    under_way_.emplace(epoch, std::move(first.mapped()));
    to_launch_.push_back(epoch);
    if (stopped) continue;
    out.called(epoch, op.what);
  }
  launch_in_order(out);
  when_idle(out);
}

/// Channels begin operations in the order of their epochs, and drop what comes for one that was overtaken. So an operation whose
/// plan is not known yet holds up those behind it, which are called already.
void rank_state::launch_in_order(rank_outbox& out) {
  for (; !to_launch_.empty(); to_launch_.pop_front()) {
    const auto at = under_way_.find(to_launch_.front());
    if (at == under_way_.end() || stopping_.contains(to_launch_.front())) continue;  // it failed before it began
    if (!at->second->plan) return;
    launch(*at->second, out);
  }
}

void rank_state::launch(operation& op, rank_outbox& out) {
  try {
    auto what = prepare(op, rank_, *memory_, *spaces_);
    if (what->code->channels > channels_)
      throw error(errc::unsupported, "the plan has " + std::to_string(what->code->channels) +
                                         " channels but the communicator only " + std::to_string(channels_));
    op.launched = true;
    op.channels = what->code->channels;
    const int channels = op.channels;
    out.start(channels, std::move(what));
  } catch (const error& e) {
    out.fail(op.epoch, op.title(),
             make_failure(e.code_value(), "rank " + std::to_string(rank_) + " cannot begin it: " + e.what()));
  } catch (const std::exception& e) {
    out.fail(op.epoch, op.title(),
             make_failure(errc::out_of_memory, "rank " + std::to_string(rank_) + " cannot begin it: " + e.what()));
  }
}

void rank_state::agreed(epoch_t epoch, const counts_ptr& counts, rank_outbox& out) {
  const auto at = under_way_.find(epoch);
  if (at == under_way_.end()) return;
  operation& op = *at->second;
  op.agreed = true;
  if (op.launched) {
    if (op.channels == 0) finish(epoch, out);
    return;
  }
  if (op.plan || !op.make_plan) return;  // could not begin: failing already
  try {
    op.plan = op.make_plan(counts);
  } catch (const error& e) {
    return out.fail(epoch, op.title(), make_failure(e.code_value(), e.what()));
  } catch (const std::exception& e) {
    return out.fail(epoch, op.title(), make_failure(errc::out_of_memory, e.what()));
  }
  launch_in_order(out);
}

void rank_state::performed(const operation_key& which, rank_outbox& out) {
  if (which.peer >= 0) {
    const auto at = pairs_.find(which);
    if (at == pairs_.end()) return;
    const operation_ptr op = std::move(at->second);
    pairs_.erase(at);  // a stop that is under way goes on: the other end may wait for its answer
    complete_pair(*op, nullptr);
    return when_idle(out);
  }
  const auto at = under_way_.find(which.epoch);
  if (at == under_way_.end() || --at->second->channels > 0) return;
  if (at->second->agreed) finish(which.epoch, out);
}

/// Performed and agreed. A stop that comes now finds nothing to stop.
void rank_state::finish(epoch_t epoch, rank_outbox& out) {
  const auto at = under_way_.find(epoch);
  const operation_ptr op = std::move(at->second);
  under_way_.erase(at);
  failure_ptr why;
  try {
    conclude(*op, rank_, ranks_);
  } catch (const error& e) {
    why = make_failure(e.code_value(), e.what());
  }
  op->done->complete(std::move(why));
  pump(out);
}

void rank_state::mismatch(const operation_key& which, rank_t from, rank_outbox& out) {
  // Collectives: the membership has seen, or will see, all calls and tells every rank the same table.
  if (which.peer < 0) return;
  const auto at = pairs_.find(which);
  if (at == pairs_.end()) return;
  stop_pair(which,
            make_failure(errc::mismatch, communicator_ + ", " + at->second->title() + " on rank " +
                                             std::to_string(rank_) + ": the message from rank " + std::to_string(from) +
                                             " has another count or type; both must be the same"),
            out);
}

void rank_state::channel_failed(const operation_key& which, const failure_ptr& why, rank_outbox& out) {
  end(which, make_failure(why->code, "on rank " + std::to_string(rank_) + ": " + why->text), out);
}

void rank_state::stop(epoch_t epoch, rank_outbox& out) {
  stopping& s = stopping_[epoch];
  s.answers = out.stop_channels(collective_key(epoch));
  if (s.answers == 0) answer_stop(epoch, out);
}

void rank_state::channel_stopped(const operation_key& which, const std::vector<lane_wait>& waits, rank_outbox& out) {
  if (which.peer >= 0) {
    const auto at = pair_stops_.find(which);
    if (at == pair_stops_.end()) return;
    --at->second.answers;
    return end_pair_if_stopped(which, out);
  }
  const auto at = stopping_.find(which.epoch);
  if (at == stopping_.end()) return;
  for (const lane_wait& wait : waits) at->second.waits.push_back(to_string(wait));
  if (--at->second.answers == 0) answer_stop(which.epoch, out);
}

void rank_state::answer_stop(epoch_t epoch, rank_outbox& out) { out.stopped(epoch, std::move(stopping_[epoch].waits)); }

void rank_state::failed(epoch_t epoch, const failure_ptr& why, rank_outbox& out) {
  stopping_.erase(epoch);
  // Not before: until all ranks have stopped, one that has not may enter, and must find the others' buffers there.
  spaces_->forget(epoch);
  const auto at = under_way_.find(epoch);
  if (at == under_way_.end()) {
    // Over already, or over slots, whose desk knows it; or not called yet: then whoever calls it gets this, the first of several
    // failures.
    const epoch_t settled = out.settled(called_);
    failed_.forget_before(settled);
    if (!before(epoch, settled)) failed_.add(epoch, why);
    out.skip(collective_key(epoch), launched(settled));
    // It waits for its turn, which may be far off; nobody refers to its buffers, so its caller need not.
    if (const operation_ptr* early = find_waiting(epoch)) (*early)->done->complete(why);
    return;
  }
  const operation_ptr op = std::move(at->second);
  under_way_.erase(at);
  out.skip(collective_key(epoch), launched(called_));
  op->done->complete(why);
  pump(out);
}

void rank_state::broken(const failure_ptr& why, rank_outbox& out) {
  if (broken_) return;
  broken_ = why;
  for (auto& [epoch, op] : under_way_) out.fail(epoch, op->title(), why);
  std::vector<operation_key> pairs;
  for (auto& [key, op] : pairs_) pairs.push_back(key);
  for (const operation_key& key : pairs) stop_pair(key, why, out);
  pump(out);
}

void rank_state::end(const operation_key& which, failure_ptr why, rank_outbox& out) {
  if (which.peer >= 0) return stop_pair(which, std::move(why), out);
  const auto at = under_way_.find(which.epoch);
  const operation_ptr* op = at != under_way_.end() ? &at->second : find_waiting(which.epoch);
  if (op != nullptr) out.fail(which.epoch, (*op)->title(), std::move(why));
}

operation_ptr* rank_state::find_waiting(epoch_t epoch) {
  for (auto& [follows, op] : waiting_)
    if (op->epoch == epoch) return &op;
  return nullptr;
}

operation& rank_state::collective_at(epoch_t epoch) {
  const auto at = under_way_.find(epoch);
  return at != under_way_.end() ? *at->second : **find_waiting(epoch);
}

void rank_state::set_alarm(steady_time at, rank_outbox& out) {
  alarm_at_ = at;
  out.alarm(++alarms_, at - out.now());
}

void rank_state::expire(std::uint64_t alarm, rank_outbox& out) {
  if (alarm != alarms_) return;  // an earlier one was set after it
  const steady_time now = out.now();
  std::vector<operation_key> due;
  steady_time next = no_deadline;
  const auto look = [&](operation& op) {
    if (op.expires > now) next = std::min(next, op.expires);
    else due.push_back({op.epoch, op.peer, op.sending}), op.expires = no_deadline;
  };
  for (auto* all : {&under_way_, &waiting_})
    for (auto& [key, op] : *all) look(*op);
  for (auto& [key, op] : pairs_) look(*op);
  alarm_at_ = no_deadline;
  if (next != no_deadline) set_alarm(next, out);
  for (const operation_key& which : due) {
    const operation& op = which.peer >= 0 ? *pairs_.at(which) : collective_at(which.epoch);
    end(which, deadline_passed(op, rank_), out);
  }
}

void rank_state::stuck(look_t look, look_t latest, bool nobody_else, rank_outbox& out) {
  const auto why =
      make_failure(errc::message_lost, "nothing moves any more although every rank has come: a message was lost");
  for (auto& [epoch, op] : under_way_)
    if (op->agreed && !stopping_.contains(epoch) && confirm(op->suspected, look, latest))
      out.fail(epoch, op->title(), why);
  for (auto& [key, op] : pairs_)
    if (!pair_stops_.contains(key) && confirm(op->suspected, look, latest))
      out.inquire(key.peer, key.epoch, !key.sending, look, nobody_else);
}

void rank_state::leave(rank_outbox& out, std::optional<epoch_t> operations) {
  leaving_ = true;
  operations_ = operations;
  when_idle(out);
}

void rank_state::when_idle(rank_outbox& out) {
  if (!idle()) return;
  if (broken_ && !quiet_) {
    quiet_ = true;
    out.quiet();
  }
  if (leaving_ && !left_) {
    left_ = true;
    out.left(operations_.value_or(called_));
  }
}

// -- sends and receives -----------------------------------------------------------------------------------------------

void rank_state::submit_pair(operation_ptr op, rank_outbox& out) {
  const operation_key key{op->epoch, op->peer, op->sending};
  next_pair_[pair_name(key)] = (key.epoch + 1) | point_to_point;
  failure_ptr why = broken_;
  if (const auto ended = ended_pairs_.find(pair_name(key)); ended != ended_pairs_.end())
    if (const failure_ptr early = ended->second.take(key.epoch); early && !why) why = early;
  if (why) {
    out.skip(key, 0);
    complete_pair(*op, why);
    return when_idle(out);
  }
  operation& entered = *(pairs_[key] = std::move(op));
  if (pair_stops_.contains(key)) return;  // revoked a moment ago: over as soon as the channels have stopped
  out.start(1, prepare_pair(entered));
  if (left_peers_[static_cast<std::size_t>(key.peer)]) stop_pair(key, left_without(key), out);
}

bool rank_state::pair_is_over(const operation_key& which) const {
  const auto next = next_pair_.find(pair_name(which));
  return next != next_pair_.end() && before(which.epoch, next->second) && !pairs_.contains(which);
}

failure_ptr rank_state::left_without(const operation_key& which) const {
  return make_failure(errc::rank_missing, communicator_ + ", " + pairs_.at(which)->title() + " on rank " +
                                              std::to_string(rank_) + ": rank " + std::to_string(which.peer) +
                                              " left the communicator without the matching call");
}

void rank_state::peer_left(rank_t peer, rank_outbox& out) {
  left_peers_[static_cast<std::size_t>(peer)] = true;
  std::vector<operation_key> with_peer;
  for (auto& [key, op] : pairs_)
    if (key.peer == peer) with_peer.push_back(key);
  for (const operation_key& key : with_peer) stop_pair(key, left_without(key), out);
}

void rank_state::peer_lost(rank_t peer, rank_outbox& out) {
  lost_peers_[static_cast<std::size_t>(peer)] = true;
  std::vector<operation_key> revoking;
  for (auto& [key, stop] : pair_stops_)
    if (key.peer == peer && stop.revoking) revoking.push_back(key);
  for (const operation_key& key : revoking) revoked(peer, key.epoch, out);
}

/// Ends one of ours. Its other end hears of it, or has told us.
void rank_state::stop_pair(const operation_key& which, failure_ptr why, rank_outbox& out) {
  if (!pairs_.contains(which) || pair_stops_.contains(which)) return;
  pair_stop& s = pair_stops_[which];
  s.why = std::move(why);
  if (!which.sending) {
    out.refuse(which.peer, which.epoch, true, s.why);
  } else if (!lost_peers_[static_cast<std::size_t>(which.peer)]) {
    s.revoking = true;
    out.revoke(which.peer, which.epoch, s.why);
  }
  s.answers = out.stop_channels(which);
  end_pair_if_stopped(which, out);
}

void rank_state::revoke(rank_t sender, epoch_t epoch, const failure_ptr& why, rank_outbox& out) {
  const operation_key key{epoch, sender, false};
  const auto [at, fresh] = pair_stops_.try_emplace(key);
  at->second.answer_sender = true;
  if (!fresh) return;  // stopping already
  at->second.why = why;
  at->second.answers = out.stop_channels(key);
  end_pair_if_stopped(key, out);
}

void rank_state::revoked(rank_t receiver, epoch_t epoch, rank_outbox& out) {
  const operation_key key{epoch, receiver, true};
  const auto at = pair_stops_.find(key);
  if (at == pair_stops_.end()) return;
  at->second.revoking = false;
  end_pair_if_stopped(key, out);
}

void rank_state::refused(rank_t peer, epoch_t epoch, bool sending, failure_ptr why, rank_outbox& out) {
  const operation_key key{epoch, peer, sending};
  if (pairs_.contains(key)) return stop_pair(key, std::move(why), out);
  end_early(key, why);
}

/// The other end has ended what was not called here yet.
void rank_state::end_early(const operation_key& which, const failure_ptr& why) {
  if (!pair_is_over(which)) ended_pairs_[pair_name(which)].add(which.epoch, why);
}

void rank_state::complete_pair(operation& op, const failure_ptr& why) {
  if (const auto open = std::move(op.open_pairs)) open->fetch_sub(1);
  op.done->complete(why);
}

void rank_state::inquired(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else, rank_outbox& out) {
  const operation_key key{epoch, peer, sending};
  const std::string title = communicator_ + ", " + (sending ? "send from rank " : "recv on rank ") +
                            std::to_string(rank_) + (sending ? " to rank " : " from rank ") + std::to_string(peer) +
                            ": ";
  if (const auto at = pairs_.find(key); at != pairs_.end()) {
    // Both ends were there, and everything was idle.
    if (at->second->suspected != 0 && look > at->second->suspected)
      stop_pair(key,
                make_failure(errc::message_lost,
                             title + "nothing moves any more although both ranks have come: a message was lost"),
                out);
  } else if (nobody_else && !pair_is_over(key)) {
    out.refuse(
        peer, epoch, !sending,
        make_failure(errc::rank_missing, title + "it was never called, and every rank waits, so it never will be"));
  }
}

void rank_state::end_pair_if_stopped(const operation_key& which, rank_outbox& out) {
  const auto at = pair_stops_.find(which);
  if (at == pair_stops_.end() || at->second.answers > 0 || at->second.revoking) return;
  const pair_stop stop = std::move(at->second);
  pair_stops_.erase(at);
  if (stop.answer_sender) out.revoked(which.peer, which.epoch);
  if (const auto op = pairs_.extract(which)) {
    out.skip(which, 0);
    complete_pair(*op.mapped(), stop.why);
    return when_idle(out);
  }
  end_early(which, stop.why);
}

}  // namespace troupe::actors
