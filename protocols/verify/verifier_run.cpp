// SPDX-License-Identifier: Apache-2.0
#include "protocols/verify/verifier_run.hpp"

#include <algorithm>
#include <utility>

#include "memory/kernels/kernels.hpp"

namespace troupe::verifying {

clock_pool::handle clock_pool::take() {
  if (free_.empty()) {
    free_.push_back(static_cast<handle>(clocks_.size()));
    clocks_.push_back(static_cast<ticks*>(memory_.allocate(lanes_ * sizeof(ticks), 64)));  // the caller fills it
    users_.push_back(0);
  }
  const handle h = free_.back();
  free_.pop_back();
  users_[static_cast<std::size_t>(h)] = 1;
  return h;
}

clock_pool::handle clock_pool::zero() {
  const handle h = take();
  std::fill_n(at(h).data(), lanes_, ticks{0});
  return h;
}

clock_pool::handle clock_pool::keep(clock_view clock) {
  const handle h = take();
  std::copy(clock.begin(), clock.end(), at(h).begin());
  return h;
}

namespace {
/// The library's own loop over vectors: a maximum of unsigned words is no instruction of every processor that we compile for.
void join_to(clock_view a, clock_view b, ticks* into) {
  static const reduce_kernel larger = find_reduce(datatype::u32, op_kind::max);
  larger(a.data(), b.data(), into, a.size());
}
}  // namespace

void join(std::span<ticks> into, clock_view from) { join_to(into, from, into.data()); }

std::span<ticks> clock_pool::own(handle& h) {
  if (is_shared(h)) {
    const handle copied = keep((*this)[h]);
    release(std::exchange(h, copied));
  }
  return at(h);
}

std::span<ticks> clock_pool::join(handle& h, handle other) {
  if (!is_shared(h)) {
    join_to(at(h), (*this)[other], at(h).data());
  } else if (h != other) {
    const handle both = take();
    join_to((*this)[h], (*this)[other], at(both).data());
    release(std::exchange(h, both));
  } else {
    return own(h);
  }
  return at(h);
}

namespace {
std::size_t lane_total(const score& s) {
  std::size_t total = 0;
  for (const part& p : s.players) total += p.lanes.size() + static_cast<std::size_t>(s.partitions);
  return total;
}
}  // namespace

symbolic_run::symbolic_run(const score& s, const performing_limits& limits)
    : score_(s),
      limits_(limits),
      table_(s, limits.slices),
      memory_(table_.locations()),
      forest_(std::make_shared<reduction_forest>(s.ranks)),
      pool_(lane_total(s)),
      ends_matter_(traits_of(s.what).synchronizes || names_foreign_memory()) {
  list_players();
  for (player& p : players_) wire(p);
  if (ends_matter_) ends_.assign(index(s.ranks), std::vector<ticks>(players_.size(), 0));
  fill_inputs();
}

bool symbolic_run::names_foreign_memory() const {
  const auto foreign = [](const step& at) {
    return (at.source.count > 0 && at.source.owner != self) || (at.target.count > 0 && at.target.owner != self);
  };
  for (const part& p : score_.players)
    for (const troupe::lane& l : p.lanes)
      if (std::any_of(l.begin(), l.end(), foreign)) return true;
  return false;
}

void symbolic_run::list_players() {
  std::size_t steps = 0;
  for (rank_t r = 0; r < score_.ranks; ++r) {
    first_player_.push_back(static_cast<std::int32_t>(players_.size()));
    const auto& lanes = score_.players[index(r)].lanes;
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      player p;
      p.rank = r;
      p.lane = static_cast<int>(l);
      p.number = static_cast<std::int32_t>(players_.size());
      p.steps = &lanes[l];
      p.first_wire = steps;
      steps += lanes[l].size();
      if (is_reduction(score_.what))
        for (auto* v : {&p.combined, &p.completes}) v->assign(lanes[l].size(), false);
      players_.push_back(std::move(p));
    }
  }
  wires_.resize(steps);
  first_player_.push_back(static_cast<std::int32_t>(players_.size()));
  for (const part& p : score_.players) most_lanes_ = std::max(most_lanes_, p.lanes.size());
  channel_numbers_ = numbering{index(score_.ranks) * index(score_.ranks) * most_lanes_};
  foreign_numbers_ = numbering{ends_matter_ ? index(score_.ranks) * players_.size() : 0};
}

/// −1 if the rank has no such lane.
std::int32_t symbolic_run::lane_number(rank_t rank, int lane) const {
  const std::int32_t at = first_player_[index(rank)] + lane;
  return at < first_player_[index(rank) + 1] ? at : -1;
}

std::int32_t symbolic_run::channel_number(rank_t from, rank_t to, int lane) {
  const std::size_t key = (index(from) * index(score_.ranks) + index(to)) * most_lanes_ + index(lane);
  std::int32_t& number = channel_numbers_.at(key);
  if (number < 0) {
    number = static_cast<std::int32_t>(channels_.size());
    channels_.push_back({lane_number(from, lane), lane_number(to, lane)});
  }
  return number;
}

/// Makes the clock of a step known to other lanes of its rank.
std::int32_t symbolic_run::publish(player& p, std::int32_t step) {
  std::int32_t& published = wires_of(p, index(step)).publishes;
  if (published < 0) {
    published = static_cast<std::int32_t>(awaited_.size() / index(limits_.slices));
    awaited_.resize(awaited_.size() + index(limits_.slices));
  }
  for (int k = 0; k < limits_.slices; ++k) ++awaited_at(published, k).waiting;
  return published;
}

void symbolic_run::wire(player& p) {
  for (std::size_t i = 0; i < p.steps->size(); ++i) {
    const step& s = (*p.steps)[i];
    wires& w = wires_of(p, i);
    if (receives(s.kind)) w.in = channel_number(s.from, p.rank, p.lane);
    if (sends(s.kind)) {
      w.out = channel_number(p.rank, s.to, p.lane);
      channel_at(w.out).to_send += limits_.slices;
    }
    if (s.after.lane >= 0 && s.after.lane != p.lane)
      w.after = publish(player_at(lane_number(p.rank, s.after.lane)), s.after.step);
  }
}

void symbolic_run::make_room() {
  std::size_t leaves = 0, inner = 0;
  for (rank_t r = 0; r < score_.ranks; ++r) leaves += index(cell_count(score_, r, buffer_kind::input));
  for (const player& p : players_)
    for (const step& s : *p.steps)
      if (reduces(s.kind)) inner += index(received_into(s).count);
  // Equal trees are one, so there may be far fewer.
  constexpr std::size_t most = std::size_t{1} << 18;
  forest_->reserve(std::min(leaves * index(limits_.slices), most), std::min(inner * index(limits_.slices), most));
}

void symbolic_run::fill_inputs() {
  make_room();
  for (rank_t r = 0; r < score_.ranks; ++r)
    for (std::int32_t c = 0, n = cell_count(score_, r, buffer_kind::input); c < n; ++c) {
      const std::size_t cell = table_.number(r, {buffer_kind::input, r, c, 1});
      const epoch by =
          score_.partitions == 0 ? epoch{} : epoch{announcement(r, partition_of(score_, c % score_.parts)), 1};
      for (int k = 0; k < limits_.slices; ++k)
        memory_.fill(table_.location(cell, k), forest_->new_leaf(r, table_.chunk(cell, k)), by);
    }
}

bool symbolic_run::still_awaits(const player& me) const {
  const std::int32_t which = wired(me).after;
  return which >= 0 && !awaited_[index(which) * index(limits_.slices) + index(me.slice)].performed;
}

bool symbolic_run::ready(const player& me) const {
  if (still_awaits(me) || lacks_message(me)) return false;
  return wired(me).out < 0 || !credit_lacks(channel_at(wired(me).out));
}

void symbolic_run::wake(std::int32_t lane) {
  if (lane < 0) return;
  player& p = player_at(lane);
  if (p.queued || p.done()) return;
  p.queued = true;
  queue_.push_back(lane);
}

/// Lanes that were woken go first, so that messages are short-lived and their clocks soon free for others.
void symbolic_run::run_awake() {
  while (!queue_.empty()) {
    player& me = player_at(queue_.back());
    queue_.pop_back();
    me.queued = false;
    while (!me.done() && ready(me))
      if (!perform(me)) return;
  }
}

std::optional<fault> symbolic_run::run() {
  for (std::size_t i = 0; i < players_.size() && !found_; ++i) {
    wake(static_cast<std::int32_t>(i));
    run_awake();
  }
  return found_ ? found_ : at_end();
}

void symbolic_run::begin_fan(player& me) {
  const step& s = me.now();
  in_fan_ = s.fan != 0 && limits_.slices_per_step == 1;  // else compile() knows no fans
  if (!in_fan_) return;
  auto& base = fan_bases_[me.number];
  if (me.at == 0 || (*me.steps)[me.at - 1].fan != s.fan) {
    const clock_view before = pool_[me.clock];
    base.assign(before.begin(), before.end());
    base[index(me.number)] = me.time - 1;
  }
  fan_time_ = me.time + static_cast<ticks>(end_of_fan(*me.steps, me.at) - me.at - 1);
  fan_clock_ = base;
}

void symbolic_run::begin_step(player& me) {
  if (me.clock < 0) me.clock = pool_.zero();
  ++me.time;
  begin_fan(me);
  if (const std::int32_t piece = me.now().ready_part; piece >= 0)
    pool_.own(me.clock)[index(announcement(me.rank, piece))] = 1;
  const std::int32_t after = wired(me).after;
  if (after < 0) return;
  awaited& earlier = awaited_at(after, me.slice);
  learn(me, earlier.clock, earlier.lane, earlier.time);
  if (--earlier.waiting == 0) pool_.release(earlier.clock);
}

/// The caller fills it. A reference until the next push.
symbolic_run::message& symbolic_run::push(channel& c) {
  std::int32_t at = free_message_;
  if (at < 0) {
    at = static_cast<std::int32_t>(messages_.size());
    messages_.emplace_back();
  } else {
    free_message_ = messages_[index(at)].next;
  }
  (c.under_way++ == 0 ? c.first : messages_[index(c.last)].next) = at;
  c.last = at;
  messages_[index(at)].next = -1;
  return messages_[index(at)];
}

/// It can be read until the next push.
std::int32_t symbolic_run::pop(channel& c) {
  const std::int32_t at = c.first;
  message& m = messages_[index(at)];
  c.first = m.next;
  --c.under_way;
  m.next = std::exchange(free_message_, at);
  return at;
}

/// What lane `lane` knew at its time `time`.
void symbolic_run::learn(player& me, clock_pool::handle from, std::int32_t lane, ticks time) {
  ticks& of_lane = pool_.join(me.clock, from)[index(lane)];
  of_lane = std::max(of_lane, time);
}

/// `rank` ends only after what `me` has done until now.
void symbolic_run::join_end(rank_t rank, const player& me) {
  std::vector<ticks>& end = ends_[index(rank)];
  join(end, known(me));
  if (in_fan_) return;  // the steps of a fan know of each other only what was before it
  end[index(me.number)] = std::max(end[index(me.number)], me.time);
}

bool symbolic_run::perform(player& me) {
  const step& s = me.now();
  const std::int32_t in = wired(me).in, out = wired(me).out;
  begin_step(me);
  if (in >= 0) {
    message& m = messages_[index(pop(channel_at(in)))];
    const std::int32_t sender = channel_at(in).sender;
    learn(me, m.clock, sender, m.time);
    if (in_fan_) {
      join(fan_clock_, pool_[m.clock]);
      fan_clock_[index(sender)] = std::max(fan_clock_[index(sender)], m.time);
    }
    pool_.release(m.clock);
    if (!receive(me, m)) return false;
  }
  const bool plain_send = s.kind == step_kind::send;
  if (!plain_send && !work(me)) return false;
  if (in >= 0) give_credit(me, channel_at(in));
  if (out >= 0) {
    take_credit(me, channel_at(out));
    if (plain_send && !load(me, s.source, local_)) return false;
    send(me);
  }
  finish_step(me);
  return true;
}

void symbolic_run::take_credit(player& me, channel& c) {
  if (c.sent < limits_.credits) return;
  const std::int32_t at = c.first_credit;
  const credit paid = credits_[index(at)];
  c.first_credit = paid.next;
  credits_[index(at)].next = std::exchange(free_credit_, at);
  learn(me, paid.clock, c.receiver, paid.time);
  pool_.release(paid.clock);
}

/// The receive of message i pays for send i + credits. The last credits pay for nothing but the end of the operation.
void symbolic_run::give_credit(player& me, channel& c) {
  if (c.to_send - ++c.credits_given >= limits_.credits) {
    std::int32_t at = free_credit_;
    if (at < 0) {
      at = static_cast<std::int32_t>(credits_.size());
      credits_.push_back({});
    } else {
      free_credit_ = credits_[index(at)].next;
    }
    if (in_fan_) credits_[index(at)] = {pool_.keep(fan_clock_), fan_clock_[index(me.number)], -1};
    else credits_[index(at)] = {pool_.share(me.clock), me.time, -1};
    (c.first_credit < 0 ? c.first_credit : credits_[index(c.last_credit)].next) = at;
    c.last_credit = at;
  } else if (ends_matter_) join_end(player_at(c.sender).rank, me);
  wake(c.sender);
}

void symbolic_run::finish_step(player& me) {
  ++steps_done_;
  in_fan_ = false;
  if (const std::int32_t a = wired(me).publishes; a >= 0) {
    awaited& mine = awaited_at(a, me.slice);
    mine.performed = true;
    mine.clock = pool_.share(me.clock);
    mine.lane = me.number;
    mine.time = me.time;
    const auto rank = index(me.rank);
    for (std::int32_t l = first_player_[rank]; l < first_player_[rank + 1]; ++l)
      if (l != me.number) wake(l);
  }
  const auto [at, slice] = limits_.order().next(me.steps->size(), {me.at, me.slice});
  me.at = at;
  me.slice = slice;
  if (!me.done()) return;
  if (ends_matter_) join_end(me.rank, me);
  pool_.release(me.clock);
}

std::vector<step_marks> symbolic_run::completing() const {
  if (completes_in_part_) return {};
  std::vector<step_marks> all(index(score_.ranks));
  for (const player& p : players_) all[index(p.rank)].push_back(p.completes);
  return all;
}

// -- the end ----------------------------------------------------------------------------------------------------------

std::optional<fault> symbolic_run::at_end() {
  for (const player& p : players_)
    if (!p.done()) return stuck_fault(p);
  if (auto f = unread_messages()) return f;
  return operation_ends();
}

/// Why `me` does not go on, and which lane could help (−1: none will).
std::string symbolic_run::waits_for(const player& me, std::int32_t& next) const {
  const step& s = me.now();
  const auto lane_name = [](rank_t rank, int lane) {
    return "rank " + std::to_string(rank) + " lane " + std::to_string(lane);
  };
  std::string text = lane_name(me.rank, me.lane) + " step " + std::to_string(me.at);
  if (limits_.slices > 1) text += " (slice " + std::to_string(me.slice) + ')';
  text += " waits for ";
  if (still_awaits(me)) {
    next = first_player_[index(me.rank)] + s.after.lane;
    return text + "step " + std::to_string(s.after.step) + " of its lane " + std::to_string(s.after.lane);
  }
  if (lacks_message(me)) {
    next = channel_at(wired(me).in).sender;
    return text + "a message from rank " + std::to_string(s.from);
  }
  next = channel_at(wired(me).out).receiver;
  return text + "a credit from rank " + std::to_string(s.to);
}

fault symbolic_run::stuck_fault(const player& first) const {
  fault f{first.rank, first.lane, static_cast<int>(first.at), first.slice, "gets stuck: "};
  std::vector<std::int32_t> seen;
  constexpr std::size_t most_told = 6;  // of a circle that may have all ranks
  for (const player* me = &first;;) {
    seen.push_back(me->number);
    std::int32_t next = -1;
    const std::string text = waits_for(*me, next);
    if (seen.size() <= most_told) f.what += text;
    else if (seen.size() == most_told + 1) f.what += "… ";
    if (next < 0) {
      f.what += ", which has no lane " + std::to_string(me->lane);
      return f;
    }
    const player& other = player_at(next);
    if (other.done()) {
      f.what += ", which has performed all its steps";
      return f;
    }
    if (const auto found = std::find(seen.begin(), seen.end(), next); found != seen.end()) {
      f.what += ", which closes the circle";
      return f;
    }
    if (seen.size() <= most_told) f.what += "; ";
    me = &other;
  }
}

std::optional<fault> symbolic_run::unread_messages() const {
  for (const channel& c : channels_) {
    if (c.under_way == 0) continue;
    const message& m = messages_[index(c.first)];
    const player& from = player_at(c.sender);
    const step& s = (*from.steps)[index(m.sender_step)];
    return fault{from.rank, from.lane, m.sender_step, m.slice,
                 "sends a message to rank " + std::to_string(s.to) + " that is never received"};
  }
  return std::nullopt;
}

/// An operation has ended at a rank when its lanes are through and all its credits have come back. Others must be through
/// with its buffers by then, and must not have begun with them before it came.
std::optional<fault> symbolic_run::operation_ends() {
  const foreign_access* first = nullptr;  // of several that with the smallest key
  for (const foreign_access& access : foreign_) {
    const std::size_t lane = access.key % players_.size();
    if (ends_[access.key / players_.size()][lane] >= access.time) continue;
    if (first == nullptr || access.key < first->key) first = &access;
  }
  if (first != nullptr) return foreign_fault(static_cast<rank_t>(first->key / players_.size()), *first);
  return traits_of(score_.what).synchronizes ? barrier_holds() : std::nullopt;
}

std::optional<fault> symbolic_run::barrier_holds() const {
  for (rank_t r = 0; r < score_.ranks; ++r)
    for (rank_t q = 0; q < score_.ranks; ++q) {
      if (q == r) continue;
      const auto& end = ends_[index(r)];
      const auto from = end.begin() + first_player_[index(q)];
      const auto to = end.begin() + first_player_[index(q) + 1];
      if (std::any_of(from, to, [](ticks t) { return t > 0; })) continue;
      return fault{r, -1, -1, 0, "can leave the barrier before rank " + std::to_string(q) + " has come"};
    }
  return std::nullopt;
}

}  // namespace troupe::verifying
