// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/pairs.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "memory/error.hpp"

namespace troupe::actors {

namespace {

/// The values that must be equal at both ends. No address space holds 2⁵⁸ elements, so the count loses no bit.
std::uint64_t shape_of(const pair_call& what) { return what.count << 6 | static_cast<std::uint64_t>(what.type); }
static_assert(all_datatypes.size() <= 64);

std::uint64_t number_of(epoch_t epoch) { return epoch & ~point_to_point; }

/// All tags together: pair_name() of the operations without one.
std::uint64_t direction_name(const operation_key& key) { return pair_name({point_to_point, key.peer, key.sending}); }

}  // namespace

pairs::pairs(rank_t rank, int ranks, const std::string& communicator, epoch_t first, pair_keeper& keeper,
             slot_board* board, process_memory* others)
    : rank_(rank),
      communicator_(communicator),
      keeper_(&keeper),
      first_(first | point_to_point),
      gone_(static_cast<std::size_t>(ranks)),
      board_(board),
      others_(others),
      staging_(others, ranks) {}

// -- rows ---------------------------------------------------------------------------------------------------------------

pairs::row& pairs::row_of(rank_t peer, bool sending) {
  auto& rows = rows_[sending ? 1 : 0];
  if (!rows.empty()) [[likely]]
    if (row* const known = rows[static_cast<std::size_t>(peer)].get(); known != nullptr && known->lane != nullptr)
      return *known;
  if (rows.empty()) rows.resize(gone_.size());
  std::unique_ptr<row>& at = rows[static_cast<std::size_t>(peer)];
  if (!at) at = std::make_unique<row>(row{first_, first_, nullptr, {}});
  if (board_ != nullptr && at->lane == nullptr)
    at->lane = sending ? &board_->pairs().lane(rank_, peer) : &board_->pairs().lane(peer, rank_);
  return *at;
}

pairs::row* pairs::find_row(rank_t peer, bool sending) const {
  const auto& rows = rows_[sending ? 1 : 0];
  return rows.empty() ? nullptr : rows[static_cast<std::size_t>(peer)].get();
}

/// The first number that was not called yet.
epoch_t pairs::next_of(const operation_key& which) const {
  if (tag_of(which.epoch) != 0) {
    const auto at = tagged_.find(pair_name(which));
    return at != tagged_.end() ? at->second : first_ | first_with_tag(static_cast<int>(tag_of(which.epoch)));
  }
  const row* const found = find_row(which.peer, which.sending);
  return found != nullptr ? found->next : first_;
}

/// Throws error and std::bad_alloc; then nothing was taken.
epoch_t pairs::take_number(const operation& op) {
  if (op.tag == 0) return row_of(op.peer, op.sending).next++;
  const epoch_t first = first_ | first_with_tag(op.tag);
  return tagged_.try_emplace(pair_name({first, op.peer, op.sending}), first).first->second++;
}

/// The other end has ended the next one of the row already.
bool pairs::ended_before(const operation_key& row_of) const {
  const auto ended = ended_.find(direction_name(row_of));
  return ended != ended_.end() && ended->second.contains(next_of(row_of));
}

// -- an operation begins --------------------------------------------------------------------------------------------------

void pairs::submit(operation_ptr op, const failure_ptr& broken, rank_outbox& out) {
  try {
    op->epoch = take_number(*op);
  } catch (const std::exception& e) {  // no call: the next one has this number
    return settle(std::move(op), make_failure(errc::out_of_memory, e.what()));
  }
  const operation_key key{op->epoch, op->peer, op->sending};
  failure_ptr why = broken;
  broken_ = broken_ || broken;
  if (const auto ended = ended_.find(direction_name(key)); ended != ended_.end()) {
    if (failure_ptr early = ended->second.take(key.epoch); early && !why) why = std::move(early);
    if (ended->second.empty()) ended_.erase(ended);
  }
  if (why) {
    if (!on_board(key)) keeper_->drop_pair(key);
    return settle(std::move(op), std::move(why));
  }
  operation& entered = *(under_way_[key] = std::move(op));
  if (stopping_.contains(key)) return;  // revoked a moment ago: over as soon as it has stopped
  if (entered.stalled) return;          // cancelled before it was launched
  if (on_board(key)) fill(row_of(key.peer, key.sending), key.peer, key.sending, out);
  else keeper_->start_pair(prepare_pair(entered));
  if (under_way_.contains(key) && never_comes(key)) stop(key, left_without(key), out);
}

void pairs::performed(const operation_key& which) {
  if (const auto op = under_way_.extract(which)) settle(std::move(op.mapped()), nullptr);
  // A stop that is under way goes on: the other end may wait for its answer.
}

void pairs::settle(operation_ptr op, failure_ptr why) {
  if (place* const at = place_of({op->epoch, op->peer, op->sending})) {
    if (at->end.left()) find_row(op->peer, true)->left_in(op->epoch) = at->end.mark();
    *at = {};
  }
  keeper_->end_pair(std::move(op), std::move(why));
}

bool pairs::is_over(const operation_key& which) const {
  if (stopping_.contains(which)) return true;
  if (const auto ended = ended_.find(direction_name(which));
      ended != ended_.end() && ended->second.contains(which.epoch))
    return true;
  return before(which.epoch, next_of(which)) && !under_way_.contains(which);
}

/// The other end has left without having called it. @pre under way
bool pairs::never_comes(const operation_key& which) const {
  if (!has_left(which.peer)) return false;
  const auto sent = which.sending ? sent_by_gone_.end() : sent_by_gone_.find(pair_name(which));
  return sent == sent_by_gone_.end() || !before(which.epoch, sent->second);
}

sends_ptr pairs::sent() const {
  if (rows_[1].empty() && tagged_.empty()) return nullptr;
  auto all = std::make_shared<std::vector<sends_made>>();
  for (std::size_t to = 0; to < rows_[1].size(); ++to)
    if (const row* const in = rows_[1][to].get(); in != nullptr && in->lane == nullptr && in->next != first_)
      all->push_back({static_cast<rank_t>(to), in->next});
  for (const auto& [name, next] : tagged_)
    if ((name & 1u) != 0) all->push_back({static_cast<rank_t>(static_cast<std::uint32_t>(name >> 1)), next});
  return all->empty() ? nullptr : all;
}

failure_ptr pairs::left_without(const operation_key& which) const {
  return make_failure(errc::rank_missing, communicator_ + ", " + under_way_.at(which)->title() + " on rank " +
                                              std::to_string(rank_) + ": rank " + std::to_string(which.peer) +
                                              " left the communicator without the matching call");
}

// -- the end of a peer --------------------------------------------------------------------------------------------------

void pairs::peer_left(rank_t peer, const sends_ptr& sent, rank_outbox& out) {
  gone_[static_cast<std::size_t>(peer)].left = true;
  if (sent)
    for (const sends_made& row : *sent)
      if (row.to == rank_) sent_by_gone_[pair_name({row.next, peer, false})] = row.next;
  look_again(peer, false, out);  // what it has left for us
  std::vector<operation_key> with_peer;
  for (auto& [key, op] : under_way_)
    if (key.peer == peer) with_peer.push_back(key);
  for (const operation_key& key : with_peer)
    if (under_way_.contains(key) && never_comes(key)) stop(key, left_without(key), out);
}

void pairs::peer_lost(rank_t peer, rank_outbox& out) {
  gone_[static_cast<std::size_t>(peer)].lost = true;
  std::vector<operation_key> revoking;
  for (auto& [key, s] : stopping_)
    if (key.peer == peer && s.revoking) revoking.push_back(key);
  for (const operation_key& key : revoking) {
    withdraw(key);
    revoked(peer, key.epoch, false, out);
  }
}

/// Of one that counts as lost it is not known that it does not read any more.
void pairs::withdraw(const operation_key& send) {
  if (place* const at = place_of(send)) at->end.withdraw();
}

// -- the end of an operation ----------------------------------------------------------------------------------------------

void pairs::drop(const operation_key& which, stopping& s, rank_outbox& out) {
  if (on_board(which)) return;  // performed_after_all() has closed it
  keeper_->drop_pair(which);
  s.flushing = out.flush(which);
}

void pairs::stop(const operation_key& which, failure_ptr why, rank_outbox& out) {
  if (!under_way_.contains(which) || stopping_.contains(which)) return;
  if (performed_after_all(which)) return fill(row_of(which.peer, which.sending), which.peer, which.sending, out);
  stopping& s = stopping_[which];
  s.why = std::move(why);
  if (!which.sending) {
    out.refuse(which.peer, which.epoch, true, s.why);
  } else if (!gone_[static_cast<std::size_t>(which.peer)].lost) {
    s.revoking = true;
    out.revoke(which.peer, which.epoch, s.why);
  } else {
    withdraw(which);
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

void pairs::failed(const operation_key& which, rank_outbox& out) {
  const auto at = under_way_.find(which);
  if (at == under_way_.end()) return;
  stop(which,
       make_failure(errc::io, communicator_ + ", " + at->second->title() + " on rank " + std::to_string(rank_) + ": " +
                                  others_->why_refused(which.peer)),
       out);
}

void pairs::revoke(rank_t sender, epoch_t epoch, const failure_ptr& why, rank_outbox& out) {
  const operation_key key{epoch, sender, false};
  performed_after_all(key);
  const bool over = before(epoch, next_of(key)) && !under_way_.contains(key);
  const auto [at, fresh] = stopping_.try_emplace(key);
  at->second.answer_sender = true;
  if (!fresh) return;  // stopping already
  // A failure here would have been told to the sender before; the end of the communicator every rank hears for itself.
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
  if (!left_is_refused(key, out)) end_early(key, why);
}

/// True: it is a send that was left. The receiver does not look at it any more, so the slot is free.
bool pairs::left_is_refused(const operation_key& which, rank_outbox& out) {
  row* const in = which.sending && on_board(which) ? find_row(which.peer, true) : nullptr;
  if (in == nullptr || !before(which.epoch, in->next)) return false;
  const std::uint64_t mark = number_of(which.epoch) + 1;
  std::uint64_t& left = in->left_in(which.epoch);
  if (left != mark) return false;
  left = 0;
  for (place& at : in->places) at.end.release_slot(mark);
  for (std::size_t i = 0; i < inline_count_; ++i)
    if (inline_[i].in == in) inline_[i].end.release_slot(mark);
  look_again(which.peer, true, out);
  return true;
}

/// The other end has ended what was not called here yet.
void pairs::end_early(const operation_key& which, const failure_ptr& why) {
  if (!is_over(which)) ended_[direction_name(which)].add(which.epoch, why);
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
  if (const auto op = under_way_.extract(which)) {
    settle(std::move(op.mapped()), which.sending && s.received ? nullptr : s.why);
    if (on_board(which)) fill(row_of(which.peer, which.sending), which.peer, which.sending, out);
    return;
  }
  end_early(which, s.why);
}

steady_time pairs::expire(steady_time now, rank_outbox& out) {
  steady_time next = no_deadline;
  bool any_late = !waiting_.empty();
  std::vector<operation_key> due;
  for (auto& [key, op] : under_way_) {
    if (op->expires > now) next = std::min(next, op->expires);
    else due.push_back(key), op->expires = no_deadline;
    if (op->begun == steady_time{}) op->begun = now;
    if (now < op->begun + pair_look) next = std::min(next, op->begun + pair_look);
    else any_late = true;
  }
  for (const operation_key& key : due)
    if (const auto at = under_way_.find(key); at != under_way_.end())
      stop(key, deadline_passed(*at->second, rank_), out);
  return any_late ? std::min(next, ask_for_missing(now, out)) : next;
}

/// Only the first of several that wait for the same is asked for, once: the others come after it.
steady_time pairs::ask_for_missing(steady_time now, rank_outbox& out) {
  std::unordered_map<std::uint64_t, waiting_first> first;  // allocates, every few seconds at most
  for (auto& [key, op] : under_way_) {
    if (now < op->begun + pair_look || stopping_.contains(key)) continue;
    const auto [at, fresh] = first.try_emplace(pair_name(key), waiting_first{key.epoch, now});
    if (!fresh && before(key.epoch, at->second.epoch)) at->second.epoch = key.epoch;
  }
  steady_time next = no_deadline;
  for (auto& [key, op] : under_way_) {
    const auto at = first.find(pair_name(key));
    if (at == first.end() || at->second.epoch != key.epoch) continue;
    waiting_first& mine = at->second;
    if (const auto known = waiting_.find(at->first); known != waiting_.end() && known->second.epoch == key.epoch)
      mine = known->second;
    if (mine.asked) continue;
    if (now < mine.since + pair_look) {
      next = std::min(next, mine.since + pair_look);
      continue;
    }
    mine.asked = true;
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(2 * pair_look).count();
    out.ask_for(key.peer, key.epoch, !key.sending,
                "waiting for more than " + std::to_string(waited) + " s: " + communicator_ + ", " + op->title() +
                    ": rank " + std::to_string(rank_) + " waits; rank " + std::to_string(key.peer) +
                    " has not called the matching " + (key.sending ? "recv" : "send"));
  }
  waiting_ = std::move(first);
  return next;
}

void pairs::asked_for(const operation_key& which, const std::string& text, rank_outbox& out) const {
  if (!under_way_.contains(which) && !is_over(which)) out.warn(text);
}

void pairs::close() {
  if (board_ == nullptr) return;
  std::vector<operation_key> all;
  for (auto& [key, op] : under_way_) all.push_back(key);
  for (const operation_key& key : all)
    if (!stopping_.contains(key)) performed_after_all(key);
}

void pairs::drop_all(const failure_ptr& why) {
  close();
  key_map_of_operations all;
  all.swap(under_way_);
  for (auto& [key, op] : all) settle(std::move(op), why);
}

// -- on the board -----------------------------------------------------------------------------------------------------------

pair_end pairs::make_end(row& in, const operation_key& key, const pair_call& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const std::uint64_t number = number_of(key.epoch), shape = shape_of(what);
  const bool far = others_ != nullptr && !others_->is_here(key.peer);
  pair_far_end peer{far ? others_ : nullptr, key.peer};
  if (!key.sending) return pair_end::of_receiver(*in.lane, number, shape, what.output, bytes, peer);
  sent_when over = what.over;
  if (over == sent_when::copied && bytes > pair_slot::inline_bytes && !board_->pairs().make_room(*in.lane))
    over = sent_when::taken;
  const std::uint64_t left_before = in.still_left_in(key.epoch);
  // A staging buffer is the message's only once that has its slot.
  if (far && over == sent_when::taken && left_before == 0) {
    stage(peer, key, *in.lane, what.input, bytes);
  }
  return pair_end::of_sender(*in.lane, number, shape, what.input, bytes, peer, over, left_before);
}

std::uint64_t pairs::row::still_left_in(epoch_t epoch) {
  std::uint64_t& mine = left_in(epoch);
  if (mine != 0)
    for (std::size_t slot = 0; slot < left.size(); ++slot)
      if (pair_end::was_taken(*lane, slot, left[slot])) left[slot] = 0;
  return mine;
}

/// Gives the message a staging buffer, if it needs one and there is one.
void pairs::stage(pair_far_end& to, const operation_key& key, pair_lane& lane, const void* data, std::size_t bytes) {
  // Copying less is no more work than asking whether that is needed.
  constexpr std::size_t worth_asking = 2048;
  if (bytes <= pair_slot::inline_bytes) return;
  if (bytes > worth_asking && others_->shares(static_cast<const std::byte*>(data))) return;
  const copy_costs::use use{.bytes = std::min(bytes, pair_end::far_unit_bytes),
                            .beside = bytes >= 2 * pair_end::far_unit_bytes};
  const copy_costs& costs = others_->costs();
  bool stages = costs.worth_staging(use, 2);
  if (costs.tries && staging_trials::tries(bytes)) {
    to.trials = &staging_.trials().of(bytes);
    stages = to.trials->takes_second(stages);
  }
  if (!stages) return;
  to.staging = staging_.place(key.peer, lane, number_of(key.epoch), bytes);
  to.copier = &staging_.copier();
}

/// Where an operation that has its slot stands; null if it has none.
pairs::place* pairs::place_of(const operation_key& which) {
  row* const in = on_board(which) ? find_row(which.peer, which.sending) : nullptr;
  if (in == nullptr) return nullptr;
  place& at = in->places[number_of(which.epoch) % pair_lane::depth];
  return at.what != nullptr && at.what->epoch == which.epoch ? &at : nullptr;
}

/// Gives slots to those whose turn it is, as long as there are any. A message that is performed at once makes room for the next.
void pairs::fill(row& in, rank_t peer, bool sending, rank_outbox& out) {
  while (before(in.unplaced, in.next)) {
    const operation_key key{in.unplaced, peer, sending};
    const auto found = under_way_.find(key);
    if (found != under_way_.end() && !stopping_.contains(key)) {
      place& at = in.places[number_of(key.epoch) % pair_lane::depth];
      if (at.what != nullptr) return;
      operation& op = *found->second;
      const pair_call what{op.what.count, op.what.type, peer, sending, op.input, op.output, op.sent};
      at = {&op, make_end(in, key, what), false};
      if (sending) at.end.post();
      pair_status now = at.end.look();
      if (now == pair_status::waiting && !(watches_ && add_watched(in, key))) {
        at.end.go_away();
        now = at.end.look();
      }
      ++in.unplaced;
      tell(at.end, key, out);
      take_status(key, now, out);
    } else {
      ++in.unplaced;  // it has ended before its turn came
    }
  }
}

void pairs::take_status(const operation_key& key, pair_status status, rank_outbox& out) {
  if (status == pair_status::performed) performed(key);
  else if (status == pair_status::mismatch) mismatch(key, key.peer, out);
  else if (status == pair_status::failed) failed(key, out);
}

void pairs::look_again(rank_t peer, bool sending, rank_outbox& out) {
  row* const in = board_ == nullptr ? nullptr : find_row(peer, sending);
  if (in == nullptr) return;
  for (place& at : in->places) {
    if (at.what == nullptr || at.stopped) continue;
    const operation_key key{at.what->epoch, peer, sending};
    const pair_status now = at.end.look();
    tell(at.end, key, out);
    take_status(key, now, out);
  }
  fill(*in, peer, sending, out);
}

// -- watched ----------------------------------------------------------------------------------------------------------------

/// False: there is no memory for it.
bool pairs::add_watched(row& in, const operation_key& key) noexcept {
  try {
    watched_.push_back({&in, key});
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

/// Null: it has ended or stopped.
pairs::place* pairs::place_of(const watched& which) {
  place& at = which.in->places[number_of(which.key.epoch) % pair_lane::depth];
  return at.what != nullptr && at.what->epoch == which.key.epoch && !at.stopped ? &at : nullptr;
}

bool pairs::look_at_watched(rank_outbox& out) {
  bool ended = false;
  for (std::size_t i = 0; i < watched_.size();) {
    const watched which = watched_[i];
    place* const at = place_of(which);
    pair_status now = pair_status::waiting;
    if (at != nullptr) {
      now = at->end.look();
      tell(at->end, which.key, out);
      if (now == pair_status::waiting) {
        ++i;
        continue;
      }
    }
    watched_[i] = watched_.back();
    watched_.pop_back();
    ended = true;
    take_status(which.key, now, out);
    fill(*which.in, which.key.peer, which.key.sending, out);  // which may add some
  }
  return ended;
}

void pairs::offer_watched() {
  for (const watched& which : watched_)
    if (place* const at = which.key.sending ? nullptr : place_of(which); at != nullptr && !at->end.is_far())
      at->end.offer();
}

void pairs::leave_watched(rank_outbox& out) {
  watches_ = false;
  while (!watched_.empty()) {
    const watched which = watched_.back();
    watched_.pop_back();
    place* const at = place_of(which);
    if (at == nullptr) continue;
    at->end.go_away();
    const pair_status now = at->end.look();
    tell(at->end, which.key, out);
    take_status(which.key, now, out);
    fill(*which.in, which.key.peer, which.key.sending, out);
  }
}

/// Ends it well if it was performed. Else it will not be, as far as this end goes: nobody writes to a receiver's buffer any more.
bool pairs::performed_after_all(const operation_key& which) {
  place* const at = place_of(which);
  if (at == nullptr || at->stopped) return false;
  if (which.sending ? at->end.sent() : at->end.close()) {
    performed(which);
    return true;
  }
  at->stopped = true;
  return false;
}

// -- a blocking caller ------------------------------------------------------------------------------------------------------

void pairs::make_spare(std::size_t i) {
  // Room for the inline calls that become operations, so that they allocate nothing then.
  constexpr std::size_t first_buckets = 16;
  if (under_way_.bucket_count() < first_buckets) under_way_.reserve(first_buckets);
  key_map_of_operations one;
  one.emplace(operation_key{}, std::make_shared<operation>());
  spare_[i] = one.extract(one.begin());
}

void pairs::begin_inline(std::span<const pair_call> calls) {
  std::array<row*, most_inline> rows{};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    rows[i] = &row_of(calls[i].peer, calls[i].sending);
    if (spare_[i].empty()) [[unlikely]]
      make_spare(i);
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const pair_call& c = calls[i];
    row& in = *rows[i];
    inline_call& mine = inline_[inline_count_++];
    mine.key = {in.next++, c.peer, c.sending};
    in.unplaced = in.next;
    mine.from = c;
    mine.in = &in;
    std::destroy_at(&mine.end);
    ::new (&mine.end) pair_end(make_end(in, mine.key, c));  // where it is made, it stays
    mine.performed = false;
    if (c.sending) mine.end.post();
    else mine.end.prepare_answer();
  }
}

void pairs::offer_inline() {
  for (std::size_t i = 0; i < inline_count_; ++i)
    if (!inline_[i].from.sending && !inline_[i].performed) inline_[i].end.offer();
}

bool pairs::inline_is_far() const {
  const auto begin = inline_.begin();
  return std::any_of(begin, begin + static_cast<std::ptrdiff_t>(inline_count_),
                     [](const inline_call& c) { return !c.performed && c.end.is_far(); });
}

void pairs::go_away_inline() {
  for (std::size_t i = 0; i < inline_count_; ++i)
    if (!inline_[i].performed) inline_[i].end.go_away();
}

std::array<operation_ptr, pairs::most_inline> pairs::adopt_inline(time_limit deadline, steady_time begun,
                                                                  rank_outbox& out) {
  std::array<operation_ptr, most_inline> made;
  const std::size_t count = std::exchange(inline_count_, 0);
  for (std::size_t i = 0; i < count; ++i) {
    inline_call& mine = inline_[i];
    if (mine.performed) continue;
    key_map_of_operations::node_type node = std::move(spare_[i]);
    operation& op = *node.mapped();
    op.epoch = mine.key.epoch;
    op.peer = mine.key.peer;
    op.sending = mine.key.sending;
    op.what.what = collective::broadcast;  // as calls::send() and calls::recv() have it
    op.what.type = mine.from.type;
    op.what.count = mine.from.count;
    op.input = mine.from.input;
    op.output = mine.from.output;
    op.deadline = deadline.optional();
    op.begun = begun;
    op.expires = deadline.after(begun);
    made[i] = node.mapped();
    node.key() = mine.key;
    under_way_.insert(std::move(node));
    place& at = row_of(op.peer, op.sending).places[number_of(op.epoch) % pair_lane::depth];
    at = {&op, mine.end, false};
    at.end.go_away();
  }
  for (const operation_ptr& op : made)
    if (op) look_again(op->peer, op->sending, out);
  return made;
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
