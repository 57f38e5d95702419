// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/simulate/world.hpp"
#include "engine/tools/simulate/world_outbox.hpp"

#include <algorithm>
#include <cstring>

#include "memory/error.hpp"

namespace troupe::simulate {

using actors::operation;
using actors::operation_ptr;
using actors::rank_outbox;
using actors::rank_state;

namespace {

constexpr nanoseconds_t patience_of_callers = 50 * ms;
constexpr std::byte blank{0xcc}, unwritten{0x5b};
constexpr std::uint64_t clock_begin = 3'600'000'000'000;  ///< of the outboxes' clock, in nanoseconds

std::size_t rounded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

std::string caller_operation::title() const {
  const std::string on = " on rank " + std::to_string(rank);
  if (peer < 0) return "collective " + std::to_string(sequence) + ' ' + troupe::to_string(what) + on;
  const std::uint64_t tag = tag_of(sequence), number = sequence - (tag << bits_below_tag);
  return std::string{sending ? "send " : "recv "} + std::to_string(number) +
         (tag != 0 ? " of tag " + std::to_string(tag) : "") + (sending ? " to rank " : " from rank ") +
         std::to_string(peer) + on;
}

// -- programs ---------------------------------------------------------------------------------------------------------------

void simulation::world::write_programs() {
  for (rank_t r = 0; r < what_.ranks; ++r) write_program(r);
}

/// What a rank's thread does, in order. Items are called in the same order everywhere, so no program waits for itself.
void simulation::world::write_program(rank_t rank) {
  using kind = caller_step::kind;
  member& m = at_rank(rank);
  bool gathering = false;
  const auto end_gathering = [&] {
    if (std::exchange(gathering, false)) m.steps.push_back({kind::begin, 0});
  };
  std::vector<std::pair<std::size_t, int>> waits,
      ends;  // after which item; for a call, and for what is called in the part
  for (std::size_t i = 0; i < what_.items.size(); ++i) {
    const item& it = what_.items[i];
    if (disturbed(disturbance::kind::leave, rank, it.id) != nullptr) {
      end_gathering();
      m.waits_after_leave = mix(what_.seed ^ static_cast<std::uint64_t>(it.id)) % 2 == 0;
      if (m.waits_after_leave) m.steps.push_back({kind::wait_all, 0});
      return;
    }
    if (disturbed(disturbance::kind::skip, rank, it.id) != nullptr) continue;
    if (it.pair && it.from != rank && it.to != rank) continue;
    dice d(what_.seed, {0x40, static_cast<std::uint64_t>(it.id), static_cast<std::uint64_t>(rank)});
    const int index = static_cast<int>(i);
    const int how = static_cast<int>(d.below(10));
    const bool blocks = how < 5 && !what_.all_async;
    if (how < 8 || blocks || it.what.outcome_of) end_gathering();
    if (it.what.outcome_of)
      if (const int about = index_of(it.asks_about); about >= 0) m.steps.push_back({kind::wait, about});
    if (how >= 8 && !blocks) gathering = true;
    if (blocks && m.steps.size() > 1 && may_join(rank, m.steps[m.steps.size() - 2], it) && d.one_in(2))
      m.steps[m.steps.size() - 2].with = index;
    else m.steps.push_back({gathering ? kind::queue : blocks ? kind::block : kind::call, index});
    if (blocks) m.steps.push_back({kind::wait, index});
    else if (d.one_in(2)) waits.emplace_back(i + d.below(4), index);
    if (it.splits() && d.one_in(2)) ends.emplace_back(i + d.below(4), index);
    for (const auto& [after, which] : waits)
      if (after == i) end_gathering(), m.steps.push_back({kind::wait, which});
    for (const auto& [after, which] : ends) {
      if (after != i) continue;
      end_gathering();
      m.steps.push_back({kind::wait, which});
      m.steps.push_back({kind::wait_part, which});
    }
  }
  end_gathering();
  m.steps.push_back({kind::wait_all, 0});
}

/// A send and a receive can be one call.
bool simulation::world::may_join(rank_t rank, const caller_step& before, const item& it) const {
  if (before.what != caller_step::kind::block || before.with >= 0 || !it.pair || it.from == it.to) return false;
  const item& first = what_.items[static_cast<std::size_t>(before.item)];
  return first.pair && first.from != first.to && (first.from == rank) != (it.from == rank);
}

/// Of the item of that id; −1: it was taken out.
int simulation::world::index_of(int id) const {
  const auto at = std::find_if(what_.items.begin(), what_.items.end(), [&](const item& it) { return it.id == id; });
  return at == what_.items.end() ? -1 : static_cast<int>(at - what_.items.begin());
}

const disturbance* simulation::world::disturbed(disturbance::kind what, rank_t rank, int item) const {
  for (const disturbance& x : what_.disturbances)
    if (x.what == what && x.rank == rank && x.item == item) return &x;
  return nullptr;
}

// -- the caller's thread ------------------------------------------------------------------------------------------------------

bool simulation::world::blocked(member& m) const {
  std::erase_if(m.blocked_on, [](const caller_operation* o) { return o->over; });
  return !m.blocked_on.empty() || m.awaits.in != nullptr;
}

void simulation::world::act(rank_t rank) {
  using kind = caller_step::kind;
  member& m = at_rank(rank);
  if (m.finished || m.lost || caller_performs(m) || blocked(m)) return;
  last_progress_ = now_;
  if (m.next_step == m.steps.size()) return finish(rank);
  const caller_step s = m.steps[m.next_step++];
  switch (s.what) {
    case kind::begin: turn(rank, [](rank_state& state, rank_outbox& o) { state.begin(o); }); break;
    case kind::wait: m.blocked_on = m.by_item[static_cast<std::size_t>(s.item)]; break;
    case kind::wait_all: m.blocked_on = m.mine; break;
    case kind::wait_part:
      if (const auto made = m.places.find(s.item); made != m.places.end())
        if (const place_in_part& mine = made->second; !mine.in->at_rank(mine.rank).finished) m.awaits = mine;
      break;
    default: call_item(rank, s); break;
  }
  m.blocked_since = now_;
  go_on(rank);
}

/// The next step, unless it waits.
void simulation::world::go_on(rank_t rank) {
  member& m = at_rank(rank);
  if (m.finished || caller_performs(m) || blocked(m)) return;
  nanoseconds_t think = static_cast<nanoseconds_t>(m.thinks.below(2 * us));
  if (what_.calm == 0) {
    if (m.thinks.one_in(12)) think = static_cast<nanoseconds_t>(m.thinks.below(100 * us));
    if (m.thinks.one_in(40)) think = static_cast<nanoseconds_t>(m.thinks.below(30 * ms));
    if (m.thinks.one_in(300)) think = static_cast<nanoseconds_t>(m.thinks.below(250 * ms));
  }
  at(now_ + think, [this, rank] { act(rank); });
}

void simulation::world::finish(rank_t rank) {
  member& m = at_rank(rank);
  m.finished = true;
  ++finished_;
  tell([&] { return "the thread of rank " + std::to_string(rank) + " has ended"; });
  if (whole_ != nullptr) whole_->program_ended(this, rank);
  if (!what_.leave_late) return leave(rank);
  if (finished_ == members_.size()) leave_all();
}

/// A split that is under way keeps its rank.
void simulation::world::leave(rank_t rank) {
  member& m = at_rank(rank);
  m.leaves = true;
  if (m.open_splits > 0 || std::exchange(m.left, true)) return;
  post_to_rank(message_kind::order, of_handle, rank, [](rank_state& s, rank_outbox& o) { s.leave(o); });
}

/// Handles live until everything is over; then nothing must be left of it.
void simulation::world::leave_all() {
  const bool over = in_flight_ == 0 && std::none_of(members_.begin(), members_.end(), [this](const member& m) {
                      return !m.lost && (m.state->pending() || waits_for_nic(m));
                    });
  if (!over) return at(now_ + ms, [this] { leave_all(); });
  check_rest();
  for (rank_t r = 0; r < what_.ranks; ++r) leave(r);
}

/// Threads count as waiting when they have waited for a while (runtime.cpp), which is longer than a rank takes to tell that an operation
/// takes long.
bool simulation::world::all_wait() const {
  if (what_.strangers) return false;
  return std::all_of(members_.begin(), members_.end(),
                     [this](const member& m) {
                       const bool waits =
                           m.awaits.in != nullptr || std::any_of(m.blocked_on.begin(), m.blocked_on.end(),
                                                                 [](const auto* o) { return !o->over; });
                       return m.finished || !m.comes || (waits && now_ - m.blocked_since >= patience_of_callers);
                     }) &&
         std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->all_wait(); });
}

// -- calls ----------------------------------------------------------------------------------------------------------------------

void simulation::world::make_calls(rank_t rank, int index, std::vector<caller_operation*>& fresh) {
  member& m = at_rank(rank);
  const std::size_t known = fresh.size();
  const item* it = &what_.items[static_cast<std::size_t>(index)];
  if (const disturbance* x = disturbed(disturbance::kind::other_call, rank, it->id)) it = &x->instead.front();
  if (it->pair) {
    if (it->from == rank) fresh.push_back(&make_pair(rank, *it, index, true));
    if (it->to == rank) fresh.push_back(&make_pair(rank, *it, index, false));
  } else {
    fresh.push_back(&make_collective(rank, *it, index));
  }
  for (std::size_t i = known; i < fresh.size(); ++i) {
    tell([&] { return fresh[i]->title() + " is called"; });
    m.mine.push_back(fresh[i]);
    m.by_item[static_cast<std::size_t>(index)].push_back(fresh[i]);
    disturb_later(*fresh[i]);
    fresh[i]->refused = fresh[i]->peer < 0 && disturbed(disturbance::kind::refuse, rank, it->id) != nullptr;
    if (it->splits() && !fresh[i]->refused) ++m.open_splits;
  }
}

void simulation::world::call_item(rank_t rank, const caller_step& step) {
  member& m = at_rank(rank);
  const caller_step::kind how = step.what;
  std::vector<caller_operation*> fresh;
  make_calls(rank, step.item, fresh);
  if (step.with >= 0) {
    make_calls(rank, step.with, fresh);
    // One call has one deadline.
    for (const caller_operation* o : fresh)
      if (o->expires >= 0) fresh.front()->expires = o->expires;
    for (caller_operation* o : fresh) o->expires = fresh.front()->expires;
  }
  if (how == caller_step::kind::block && fresh.front()->peer >= 0 && begin_pairs_inline(rank, fresh)) return;
  for (caller_operation* o : fresh) {
    if (how == caller_step::kind::block && !o->refused && begin_inline(*o)) return;
    const operation_ptr op = make_operation(*o);
    if (o->refused) {
      op->plan = nullptr;
      op->refusal = make_failure(errc::null_buffer, "rank " + std::to_string(rank) + ": its buffer is null");
    }
    turn(rank, [op, how](rank_state& s, rank_outbox& out) {
      if (how == caller_step::kind::queue) s.enqueue(op, out);
      else s.submit(op, out);
    });
    if (o->expires >= 0) tick_at(rank, o->expires);
    tick_at(rank,
            now_ + static_cast<nanoseconds_t>(m.thinks.below(2 * ms)));  // as the attendant, for what is left to it
  }
}

caller_operation& simulation::world::make_collective(rank_t rank, const item& it, int index) {
  member& m = at_rank(rank);
  caller_operation& o = operations_.emplace_back();
  o.it = &it;
  o.rank = rank;
  o.sequence = m.next_collective++;
  o.key = {o.sequence, -1, false};
  o.what = call_of(it, what_.ranks, rank);
  if (o.what.outcome_of) say_ending(o);
  o.salt = mix(what_.seed ^ o.sequence * 0x51ed);
  if (o.what.reduction.kind == op_kind::user) {
    o.what.reduction.function = user_sum;
    if (const disturbance* x =
            disturbed(disturbance::kind::raise, rank, what_.items[static_cast<std::size_t>(index)].id)) {
      o.throws = true;
      o.thrower.left = x->number;
      o.what.reduction.context = &o.thrower;
    }
  }
  if (it.what.uniform) o.plan = plans_->plan_for(o.what, what_.ranks, it.how);
  else if (it.how.port != port_kind::mailbox || it.how.own_blocks)
    o.plan = plans_->plan_for(o.what, what_.ranks, it.how, &it.counts);
  parts_of(o.sequence)[static_cast<std::size_t>(rank)] = &o;
  lay_out(o);
  if (const disturbance* x =
          disturbed(disturbance::kind::deadline, rank, what_.items[static_cast<std::size_t>(index)].id))
    o.expires = now_ + x->after_ns;
  return o;
}

/// What the caller says of its part in the item that it asks about.
void simulation::world::say_ending(caller_operation& o) {
  o.told.assign(static_cast<std::size_t>(what_.ranks), errc::ok);
  const int about = index_of(o.it->asks_about);
  if (about < 0) return;
  for (const caller_operation* part : at_rank(o.rank).by_item[static_cast<std::size_t>(about)]) {
    if (part->peer < 0) o.what.outcome_of->sequence = part->sequence;
    if (part->why) o.what.outcome_of->result = part->why->code;
  }
}

caller_operation& simulation::world::make_pair(rank_t rank, const item& it, int index, bool sending) {
  member& m = at_rank(rank);
  caller_operation& o = operations_.emplace_back();
  o.it = &it;
  o.rank = rank;
  o.peer = sending ? it.to : it.from;
  o.sending = sending;
  o.sequence = m.pair_numbers[{o.peer, sending, it.tag}]++ | (first_with_tag(it.tag) & ~point_to_point);
  o.key = {(what_.first + o.sequence) | point_to_point, o.peer, sending};
  o.what = it.what;
  o.salt = mix(what_.seed ^ (static_cast<std::uint64_t>(it.from) << 48) ^ (static_cast<std::uint64_t>(it.to) << 32) ^
               o.sequence);
  auto& ends = pairs_[{it.from, it.to, o.sequence}];
  (sending ? ends.first : ends.second) = &o;
  lay_out(o);
  if (const disturbance* x =
          disturbed(disturbance::kind::deadline, rank, what_.items[static_cast<std::size_t>(index)].id))
    o.expires = now_ + x->after_ns;
  return o;
}

/// The caller's memory: what is given, room for what is got, and guards around both.
void simulation::world::lay_out(caller_operation& o) {
  o.called_at = now_;
  const bool gives = o.peer < 0 || o.sending, gets = o.peer < 0 || !o.sending;
  if (o.what.outcome_of) return o.memory.clear();
  if (gives) o.given = input_of(*o.it, o.salt, what_.ranks, o.rank);
  if (gets) o.expected = output_of(*o.it, o.salt, what_.ranks, o.rank);
  const bool reduce_in_place = o.peer < 0 && o.what.what == collective::reduce && o.what.root == o.rank &&
                               !o.given.empty() && mix(o.salt) % 3 == 0 &&
                               o.what.pieces == 0;  // refused there: the input would be copied aside at once
  o.in_place = o.what.in_place || reduce_in_place;
  const std::size_t in_bytes = rounded(o.given.size()), out_bytes = rounded(o.expected.size());
  o.memory.assign(3 * guard_bytes + in_bytes + out_bytes, guard);
  std::byte* const first = o.memory.data() + guard_bytes;
  o.in = first;
  o.out = first + in_bytes + guard_bytes;
  if (o.in_place) {
    const std::size_t place = place_in_place(*o.it, o.rank);
    o.out = o.in;
    if (o.what.what == collective::all_gather) o.in = first + place;
    if (o.what.what == collective::reduce_scatter) o.out = first + place;
  }
  std::memset(o.out, static_cast<int>(blank), o.expected.size());
  if (o.what.pieces > 0) {  // nothing of the input is there yet
    o.complete = o.given;
    std::fill(o.given.begin(), o.given.end(), unwritten);
  }
  if (!o.given.empty()) std::memcpy(o.in, o.given.data(), o.given.size());
}

operation_ptr simulation::world::make_operation(caller_operation& o) {
  auto op = std::make_shared<operation>();
  op->what = said(o);
  op->plan = o.plan;
  op->peer = o.peer;
  op->sending = o.sending;
  op->tag = o.it->tag;
  op->input = o.in;
  op->output = o.what.outcome_of ? static_cast<void*>(o.told.data()) : o.out;
  if (o.expires >= 0) op->deadline = std::chrono::nanoseconds{o.expires - now_};
  if (o.peer < 0 && !o.plan && !o.what.uniform && !o.what.outcome_of)
    op->make_plan = [this, &o](const counts_ptr& counts) {
      auto made = counts ? plans_->plan_for(o.what, what_.ranks, o.it->how, counts.get()) : nullptr;
      if (!made) throw error(errc::unsupported, "there is no plan for these counts");
      return made;
    };
  known_[op.get()] = &o;
  if (o.it->splits() && !o.refused)
    op->last_step = [this, &o](const operation& done, failure_ptr why) {
      return conclude_split(o, done.epoch, std::move(why));
    };
  if (o.what.pieces > 0 && o.plan && !o.refused) partition(o, *op);
  if (std::any_of(what_.disturbances.begin(), what_.disturbances.end(),
                  [](const disturbance& x) { return x.what == disturbance::kind::cancel; }))
    o.held = op;
  return op;
}

void simulation::world::disturb_later(caller_operation& o) {
  for (const disturbance& x : what_.disturbances) {
    if (x.rank != o.rank || x.item != o.it->id) continue;
    if (x.what == disturbance::kind::kill) at(now_ + x.after_ns, [this, r = o.rank] { kill(r); });
    if (x.what == disturbance::kind::abort) at(now_ + x.after_ns, [this] { abort(); });
    if (x.what != disturbance::kind::cancel) continue;
    at(now_ + x.after_ns, [this, &o] {
      if (o.over || !o.held) return;
      o.cancelled = true;
      last_progress_ = now_;
      tell([&] { return o.title() + " is cancelled by its caller"; });
      turn(o.rank, [op = o.held, rank = o.rank](rank_state& s, rank_outbox& out) {
        s.end(op, make_failure(errc::cancelled, "rank " + std::to_string(rank) + " cancelled it"), out);
      });
    });
  }
}

// -- blocking calls on the boards, as rank_cell performs them ------------------------------------------------------------------

bool simulation::world::begin_inline(caller_operation& o) {
  member& m = at_rank(o.rank);
  if (o.peer >= 0 || !o.plan || !o.plan->on_board() || !m.state->may_begin_at_once()) return false;
  actors::board_port& port = *m.state->port();
  const call what = said(o);
  if (!port.recall(what)) port.remember(what, o.plan);
  port.last().what.reduction = what.reduction;
  m.state->begin_inline({o.in, o.out});
  m.inline_op = &o;
  m.inline_since = now_;
  m.blocked_on = {&o};
  m.blocked_since = now_;
  poll_soon(o.rank);
  const nanoseconds_t patience = now_ + 5 * ms;
  at(o.expires >= 0 ? std::min(patience, o.expires) : patience, [this, rank = o.rank, op = &o] {
    if (at_rank(rank).inline_op == op) poll_soon(rank);
  });
  return true;
}

void simulation::world::poll_inline(rank_t rank) {
  member& m = at_rank(rank);
  caller_operation& o = *m.inline_op;
  const bool may_adopt = !breaks(mutant::inline_goes_on_unread, 100);
  const bool tired = now_ - m.inline_since >= 5 * ms || (o.expires >= 0 && now_ >= o.expires);
  if (may_adopt && (tired || (!m.inbox.empty() && m.thinks.one_in(2)))) return adopt(rank, "");
  auto status = board_performer::status::waiting;
  try {
    status = m.state->port()->advance();
  } catch (const std::exception& e) {
    return adopt(rank, e.what());
  }
  if (status == board_performer::status::performed) {
    m.state->end_inline(o.out);
    m.inline_op = nullptr;
    o.performed_inline = true;
    ended(o, o.it->splits() ? conclude_split(o, static_cast<epoch_t>(o.sequence), nullptr) : nullptr);
    leave_inline(rank);
  } else if (status == board_performer::status::mismatch && may_adopt) {
    adopt(rank, "");
  } else if (may_adopt && !m.inbox.empty()) {
    poll_soon(rank);
  }
}

void simulation::world::adopt(rank_t rank, const std::string& problem) {
  member& m = at_rank(rank);
  caller_operation& o = *std::exchange(m.inline_op, nullptr);
  tell([&] { return o.title() + " takes long"; });
  std::optional<std::chrono::nanoseconds> deadline;
  if (o.expires >= 0) deadline = std::chrono::nanoseconds{o.expires - o.called_at};
  const steady_time begun =
      steady_time{} + std::chrono::nanoseconds{static_cast<nanoseconds_t>(clock_begin) + m.inline_since};
  const operation_ptr op = m.state->adopt_inline({o.in, o.out}, deadline, begun);
  known_[op.get()] = &o;
  if (o.it->splits())
    op->last_step = [this, &o](const operation& done, failure_ptr why) {
      return conclude_split(o, done.epoch, std::move(why));
    };
  if (!problem.empty()) m.state->stall_on_board(problem, *m.out);
  leave_inline(rank);
}

/// A blocking send, receive, or send and receive.
bool simulation::world::begin_pairs_inline(rank_t rank, const std::vector<caller_operation*>& fresh) {
  member& m = at_rank(rank);
  std::vector<actors::pair_call> calls;
  for (const caller_operation* o : fresh) {
    if (o->it->tag != 0 || !m.state->may_begin_pair_at_once(o->peer, o->sending)) return false;
    const bool left = what_.sends_are_left && o->what.count * size_of(o->what.type) <= pair_lane::left_bytes;
    calls.push_back(
        {o->what.count, o->what.type, o->peer, o->sending, o->in, o->out, left ? sent_when::copied : sent_when::taken});
  }
  if (calls.empty() || caller_performs(m)) return false;
  for (std::size_t i = 0; i < fresh.size(); ++i)
    fresh[i]->may_be_left = fresh[i]->sending && calls[i].over == sent_when::copied;
  m.inline_pairs = fresh;
  m.inline_since = now_;
  m.inline_looks = 0;
  m.blocked_on = fresh;
  m.blocked_since = now_;
  m.state->begin_pairs_inline(calls);
  poll_pairs_soon(rank);
  return true;
}

/// As rank_cell does: looks, offers, looks, and gives up.
void simulation::world::poll_pairs(rank_t rank) {
  member& m = at_rank(rank);
  if (m.inline_pairs.empty()) return;
  for (const caller_operation* o : m.inline_pairs) {
    if (!o->sending) continue;
    const std::uint64_t number = what_.first + o->sequence;
    pair_lane& lane = board_of(rank).pairs().lane(rank, o->peer);
    pair_slot& slot = lane.at(number);
    if (breaks(mutant::taken_early, 20)) lane.finished_at(number) = number + 1;
    if (breaks(mutant::shape_forged, 20)) slot.head.shape = slot.answer.shape;
  }
  const nanoseconds_t expires = m.inline_pairs.front()->expires;
  const int looks = m.inline_looks++;
  if (looks == 2) m.state->offer_pairs();
  const pair_status status = m.state->look_at_pairs(*m.out, looks % 2 == 1);
  if (status == pair_status::performed) {
    m.state->end_pairs_inline();
    for (caller_operation* o : std::exchange(m.inline_pairs, {})) o->performed_inline = true, ended(*o, nullptr);
    return leave_inline(rank);
  }
  const bool may_adopt = !breaks(mutant::inline_goes_on_unread, 100);
  const bool tired = looks > 8 || now_ - m.inline_since >= ms || (expires >= 0 && now_ >= expires);
  if (may_adopt && (status == pair_status::mismatch || tired || (!m.inbox.empty() && looks > 3)))
    return adopt_pairs(rank);
  poll_pairs_soon(rank);
}

void simulation::world::poll_pairs_soon(rank_t rank) {
  const nanoseconds_t wait = what_.calm != 0 ? 500 : static_cast<nanoseconds_t>(at_rank(rank).thinks.below(2 * us));
  at(now_ + wait, [this, rank] { poll_pairs(rank); });
}

void simulation::world::adopt_pairs(rank_t rank) {
  member& m = at_rank(rank);
  const auto callers = std::exchange(m.inline_pairs, {});
  std::optional<std::chrono::nanoseconds> deadline;
  if (callers.front()->expires >= 0)
    deadline = std::chrono::nanoseconds{callers.front()->expires - callers.front()->called_at};
  const steady_time begun =
      steady_time{} + std::chrono::nanoseconds{static_cast<nanoseconds_t>(clock_begin) + m.inline_since};
  const auto made = m.state->adopt_pairs_inline(deadline, begun, *m.out);
  for (std::size_t i = 0; i < callers.size(); ++i) {
    caller_operation& o = *callers[i];
    tell([&] { return o.title() + (made[i] ? " takes long" : " is performed by its caller"); });
    if (!made[i]) o.performed_inline = true, ended(o, nullptr);
    else known_[made[i].get()] = &o;
    if (o.expires >= 0) tick_at(rank, o.expires);
  }
  leave_inline(rank);
}

/// Reads what came meanwhile.
void simulation::world::leave_inline(rank_t rank) {
  member& m = at_rank(rank);
  while (!m.inbox.empty() && result_.ok()) {
    const auto next = std::move(m.inbox.front());
    m.inbox.pop_front();
    next(*m.state, *m.out);
  }
  after(rank);
  go_on(rank);
}

// -- a rank's turn --------------------------------------------------------------------------------------------------------------

void simulation::world::turn(rank_t rank, const actors::rank_order& what) {
  member& m = at_rank(rank);
  if (m.lost) return;
  if (caller_performs(m)) {
    m.inbox.push_back(what);
    return poll_soon(rank);
  }
  what(*m.state, *m.out);
  after(rank);
}

bool simulation::world::on_board(const member& m) const {
  return m.inline_op != nullptr || (m.state->on_board() != nullptr && !m.state->on_board()->stalled);
}

/// Tells callers what has ended, and sees to it that somebody comes back for the rest.
void simulation::world::after(rank_t rank) {
  member& m = at_rank(rank);
  if (m.lost) return;
  if (m.state->has_arrivals()) take_arrivals(rank);
  if (m.state->has_ended()) {
    const bool was_blocked = !caller_performs(m) && !m.blocked_on.empty();
    actors::ended_operations over = m.state->take_ended();
    while (const operation_ptr op = over.take()) {
      const auto at = known_.find(op.get());
      if (at == known_.end()) return fault("rank " + std::to_string(rank) + " ended an operation that nobody called");
      caller_operation& o = *at->second;
      known_.erase(at);
      op->end(std::move(op->why_ended));
      ended(o, op->done->why());
    }
    if (was_blocked && !blocked(m)) go_on(rank);
  }
  if (!result_.ok()) return;
  if (slot_port_changed(rank))
    for (rank_t r = 0; r < what_.ranks; ++r) poll_soon(r);
  if (on_board(m)) poll_soon(rank);
  // As the attendant, which is told of a rank whenever its turn is given back with something under way: what has begun just now may
  // have to be told to the membership long before what waited already has its time.
  if (m.state->pending() && (m.next_tick < 0 || m.next_tick > now_ + actors::long_wait.count()))
    tick_at(rank, now_ + static_cast<nanoseconds_t>(mix(what_.seed ^ orders_) % (2 * ms)));
  check_bounds(rank);
}

/// The rank has written something, or given slots back, since this was asked last.
bool simulation::world::slot_port_changed(rank_t rank) {
  member& m = at_rank(rank);
  const board_performer& p = m.state->port()->performer();
  slot_board& board = board_of(rank);
  const rank_t place = place_on_board(rank);
  const std::uint64_t now = mix(board.done(place)) ^ p.steps_taken() ^ (p.idle() ? 1u << 20 : 0u) ^
                            mix(board.direct().at(place).here.load()) ^ mix(p.sequence());
  return std::exchange(m.signature, now) != now;
}

void simulation::world::poll_soon(rank_t rank) {
  member& m = at_rank(rank);
  if (m.polled || !on_board(m)) return;
  m.polled = true;
  const nanoseconds_t wait =
      what_.calm != 0 ? 500 : static_cast<nanoseconds_t>(m.thinks.below(m.thinks.one_in(10) ? 200 * us : 2 * us));
  at(now_ + wait, [this, rank] { poll(rank); });
}

void simulation::world::poll(rank_t rank) {
  member& m = at_rank(rank);
  m.polled = false;
  if (m.lost || !on_board(m) || breaks(mutant::no_advance, 30)) return;
  const board_performer& p = m.state->port()->performer();
  if (!p.idle() && breaks(mutant::slots_given_back_early, 20))
    board_of(rank).finish(place_on_board(rank), p.sequence());
  if (m.inline_op != nullptr) {
    poll_inline(rank);
    if (m.inline_op != nullptr && slot_port_changed(rank))
      for (rank_t r = 0; r < what_.ranks; ++r) poll_soon(r);
    return;
  }
  // An operation that has not moved is looked at again when a rank has written something.
  const bool rests = !m.state->advance(*m.out) && on_board(m);
  if (rests) m.polled = true;
  after(rank);
  if (rests) m.polled = false;
}

void simulation::world::tick_at(rank_t rank, nanoseconds_t when) {
  member& m = at_rank(rank);
  if (breaks(mutant::no_tick, 100) || (m.next_tick >= 0 && m.next_tick <= when)) return;
  m.next_tick = when;
  at(when, [this, rank, when] {
    if (at_rank(rank).next_tick == when) tick(rank);
  });
}

void simulation::world::tick(rank_t rank) {
  member& m = at_rank(rank);
  m.next_tick = -1;
  if (m.lost) return;
  if (caller_performs(m)) return tick_at(rank, now_ + ms);
  const steady_time next = m.state->tick(*m.out);
  if (next != no_deadline) {
    const nanoseconds_t when = (next - (steady_time{} + std::chrono::hours{1})).count();
    tick_at(rank, std::max(now_ + us, when));
  }
  after(rank);
}

}  // namespace troupe::simulate
