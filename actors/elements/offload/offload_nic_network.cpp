// SPDX-License-Identifier: Apache-2.0
// What comes from other NICs and goes to them; offload_nic.cpp has the other half.
#include <algorithm>
#include <utility>

#include "actors/elements/offload/offload_nic.hpp"

namespace troupe::actors {

packet_key offload_nic::key_of(std::uint8_t job, std::uint32_t node, std::uint16_t from, std::uint16_t to,
                               std::uint8_t seq_id, std::size_t index) {
  // The source's key has one port. Several processes behind a NIC need both, and a message of several packets says which one it is.
  return {job, node, static_cast<std::uint32_t>(from) << offload::port_bits | to,
          static_cast<std::uint32_t>(seq_id) << index_bits | static_cast<std::uint32_t>(index)};
}

offload_nic::run* offload_nic::find(std::uint8_t job, std::uint16_t port) {
  const auto found = runs_.find(name_of(job, port));
  return found == runs_.end() ? nullptr : found->second.get();
}

// -- in ---------------------------------------------------------------------------------------------------------------

void offload_nic::arrive(offload_packet&& came, picoseconds now) {
  if (came.on.dest_port >= offload::most_ports) return;                                         // another's
  if (came.seq_id >= offload::seq_ids || came.index >= std::uint32_t{1} << index_bits) return;  // nobody's key
  run* const r = find(came.job.id, came.on.dest_port);
  if (config_.node && came.on.dest_node != *config_.node) return;  // another's
  if (r == nullptr || r->job() != came.job) return early(came);
  if (came.on.dest_node != r->program().at.node) return;
  incoming* const c = channel_of(*r, came);
  if (c == nullptr) return;                                  // nobody waits for anything from there
  if (came.number < c->taken) return answer(*r, *c, false);  // the response was lost
  if (came.number - c->taken >= config_.window) return;      // no sender of ours has so many under way
  unit& u = units_[static_cast<std::size_t>(r->unit)];
  const packet_key key =
      key_of(came.job.id, came.on.source_node, came.on.source_port, came.on.dest_port, came.seq_id, came.index);
  const bool needed = needs_now(*r, *c, came);
  if (u.buffer.contains(key) || (needed && r->landed)) return;
  stored kept{came.bytes, came.has_data, came.has_address, std::move(came.data), came.lies_at, std::move(came.keep)};
  note_fill(u, now);
  if (!u.buffer.put(key, std::move(kept))) {
    ++refused_;
    if (needed) r->landed = std::move(kept);  // NOLINT(bugprone-use-after-move): what is refused was not taken
    else c->first_refused = std::min(c->first_refused, came.number);
  }
  if (needed) wake(*r);
}

/// For a port that nobody has posted, or not yet, or not any more.
void offload_nic::early(const offload_packet& p) {
  const std::uint32_t name = name_of(p.job.id, p.on.dest_port);
  const auto before = ended_.find(name);
  if (before != ended_.end() && p.job.epoch <= before->second.epoch) {
    // An operation that has ended has taken everything, unless it has failed: then the sender's host hears of it.
    const bool failed = p.job.epoch == before->second.epoch && !before->second.well;
    if (!failed) responses_.push_back({p.job, p.on, p.number + 1, false});
    return;
  }
  ++early_;
  came_early_.set(name);
}

offload_nic::incoming* offload_nic::channel_of(run& r, const offload_packet& p) {
  const auto found = std::find_if(r.in.begin(), r.in.end(), [&](const incoming& c) {
    return c.node == p.on.source_node && c.port == p.on.source_port;
  });
  return found == r.in.end() ? nullptr : &*found;
}

/// It is the packet that the sequence takes next.
bool offload_nic::needs_now(const run& r, const incoming& c, const offload_packet& p) const {
  const offload::descriptor& d = r.now();
  if (d.count == 0 || p.number != c.taken) return false;
  const std::size_t next = d.awaited + (r.begun ? r.source : 0);
  if (&r.in[r.in_of[next - r.awaited]] != &c) return false;
  return p.seq_id == r.program().awaited[next].seq_id && p.index == (r.begun ? r.piece : 0);
}

/// The packet that the sequence takes next, if it is there; if it was refused, it is asked for.
std::optional<offload_nic::stored> offload_nic::fetch(run& r, picoseconds now) {
  if (r.landed) return std::exchange(r.landed, std::nullopt);
  const offload::descriptor& d = r.now();
  const offload::awaited_message& m = r.program().awaited[d.awaited + r.source];
  unit& u = units_[static_cast<std::size_t>(r.unit)];
  note_fill(u, now);
  if (auto there = u.buffer.begin_reading(key_of(r.job().id, m.node, m.port, r.code->port, m.seq_id, r.piece))) {
    u.reads = true;
    return there;
  }
  incoming& c = r.in[r.in_of[d.awaited + r.source - r.awaited]];
  if (c.first_refused <= c.taken) {
    c.first_refused = none_refused;
    answer(r, c, true);
  }
  return std::nullopt;
}

void offload_nic::answer(const run& r, const incoming& c, bool again) {
  const offload_channel_name on{c.node, r.program().at.node, c.port, r.code->port};
  if (!responses_.empty() && responses_.back().on == on && responses_.back().job == r.job()) {
    responses_.back().taken = c.taken;
    responses_.back().again = responses_.back().again || again;
    return;
  }
  responses_.push_back({r.job(), on, c.taken, again});
}

void offload_nic::respond(const offload_response& came, picoseconds now) {
  run* const r = find(came.job.id, came.on.source_port);
  if (r == nullptr || r->job() != came.job) return;
  const auto found =
      std::find_if(r->out.begin(), r->out.end(), [&](const outgoing_channel& c) { return c.name() == came.on; });
  if (found == r->out.end()) return;
  const out_ref c{r, static_cast<std::size_t>(found - r->out.begin())};
  const std::uint64_t before = c->taken();
  const int back = released(c, c->responded(came.taken));
  pulses_[c.of->job().id] += static_cast<std::uint64_t>(back);
  give_back(back, now);
  if (came.again && came.taken >= before) {
    ++again_;
    c->wants_since = now;
    give_back(released(c, c->rewind()), now);
  }
  if (c->taken() > before) {
    counters_moved_ = now;
    c->silence = config_.resend;
    wake(*r);  // a credit, or its end
  }
  c->deadline = c->waits_for_response() ? now + c->silence : picoseconds{0};
  // The channel has nothing left to send for now; its counters go to others that wait for one.
  if (!c->waits_for_response() && c->what_next(config_.window, config_.pulses) == outgoing_channel::next::nothing)
    give_back(released(c, c->let_go()), now);
  activate(c);
}

// -- out --------------------------------------------------------------------------------------------------------------

void offload_nic::activate(const out_ref& c) {
  if (c->queued || c->wants) return;
  if (c->what_next(config_.window, config_.pulses) == outgoing_channel::next::nothing) return;
  c->queued = true;
  active_.push_back(c);
}

std::optional<offload_packet> offload_nic::next_packet(picoseconds now) {
  while (!active_.empty()) {
    const out_ref c = active_.front();
    active_.pop_front();
    c->queued = false;
    auto next = c->what_next(config_.window, config_.pulses);
    if (next == outgoing_channel::next::counter) {
      if (!may_have_another(*c)) continue;  // what it has under way looks after it
      if (counters_ == config_.counters) {
        ask_for_counter(c, now);
        watch(c, now);
        continue;
      }
      most_counters_ = std::max(most_counters_, ++counters_);
      begin_pulse(c);
      next = outgoing_channel::next::packet;
    }
    if (next == outgoing_channel::next::nothing) continue;
    offload_packet p = packet_of(c);
    watch(c, now);
    activate(c);
    return p;
  }
  return std::nullopt;
}

offload_packet offload_nic::packet_of(const out_ref& c) {
  std::uint64_t number = 0;
  const outgoing_message& m = c->send(number);
  offload_packet p;
  p.job = c.of->job();
  p.on = c->name();
  p.rank = c.of->program().rank;
  p.seq_id = m.seq_id;
  p.has_data = m.has_data;
  p.has_address = m.has_address;
  p.number = number;
  p.index = static_cast<std::uint32_t>(number - m.first);
  const std::size_t each = packet_elements(c.of->program()) * c.of->program().element_size, begin = p.index * each;
  p.bytes = std::min(each, m.bytes - begin);
  if (config_.refers) p.lies_at = m.data + begin;
  else if (config_.carries && p.bytes > 0) p.data.assign(m.data + begin, m.data + begin + p.bytes);
  return p;
}

std::optional<offload_response> offload_nic::next_response() {
  if (responses_.empty()) return std::nullopt;
  const offload_response first = responses_.front();
  responses_.pop_front();
  return first;
}

std::optional<offload_completion> offload_nic::next_completion() {
  if (completions_.empty()) return std::nullopt;
  offload_completion first = std::move(completions_.front());
  completions_.pop_front();
  return first;
}

/// A quarter of the counters, and all that others wait for, is for channels that have none.
bool offload_nic::may_have_another(const outgoing_channel& c) const {
  return c.counters() == 0 || (want_.empty() && counters_ < config_.counters - config_.counters / 4);
}

void offload_nic::ask_for_counter(const out_ref& c, picoseconds now) {
  if (want_.empty()) counters_moved_ = now;
  c->wants = true;
  c->wants_since = now;
  const std::uint64_t ahead = most_ahead * static_cast<std::uint64_t>(config_.counters);
  const std::uint8_t job = c.of->job().id;
  std::uint64_t& pulses = pulses_[job];
  pulses = std::clamp(pulses, served_ - std::min(served_, ahead), served_ + ahead);
  want_.emplace(turn{pulses, job, ++asks_}, c);
}

void offload_nic::begin_pulse(const out_ref& c) {
  if (c->counters() == 0) {
    c->held_at = holders_.size();
    holders_.push_back(c);
  }
  c->begin_pulse();
}

/// Of the counters of this channel so many have come back, which is returned.
int offload_nic::released(const out_ref& c, int back) {
  if (back == 0 || c->counters() > 0) return back;
  holders_[c->held_at] = holders_.back();
  holders_[c->held_at]->held_at = c->held_at;
  holders_.pop_back();
  return back;
}

/// Channels that wait for a counter get those that have come back.
void offload_nic::give_back(int counters, picoseconds now) {
  if (counters == 0) return;
  counters_ -= counters;
  counters_moved_ = now;
  while (counters_ < config_.counters && !want_.empty()) {
    const out_ref c = want_.begin()->second;
    served_ = std::max(served_, want_.begin()->first.pulses);
    want_.erase(want_.begin());
    c->wants = false;
    if (c->what_next(config_.window, config_.pulses) == outgoing_channel::next::counter) {
      ++counters_;
      begin_pulse(c);
    }
    activate(c);
  }
}

/// Those who had them need new ones for what they send next, behind those who wait. Nothing is sent again: a link may still refer to it.
void offload_nic::take_counters_back(picoseconds now) {
  std::vector<out_ref> had = std::exchange(holders_, {});
  int back = 0;
  std::sort(had.begin(), had.end(), [](const out_ref& a, const out_ref& b) {
    return std::pair{a.of->serial, a.channel} < std::pair{b.of->serial, b.channel};
  });
  for (const out_ref& c : had) back += c->let_go();
  give_back(back, now);
  for (const out_ref& c : had) activate(c);
}

// -- time -------------------------------------------------------------------------------------------------------------

/// Sees to it that there is a timer. It need not be at the deadline, which moves with every response: only not after it. (How long a
/// channel may wait for a counter is looked at then, too, and so perhaps late.)
void offload_nic::watch(const out_ref& c, picoseconds now) {
  if (c->silence.count() == 0) c->silence = config_.resend;
  if (c->deadline.count() == 0) c->deadline = now + c->silence;
  if (std::exchange(c->timed, true)) return;
  ++timed_;
  if (timers_.size() > 2 * timed_ + 64) drop_old_timers();
  const auto name = name_of(c.of->job().id, c.of->code->port);
  timers_.push({now + std::min(config_.resend, config_.longest_counter_wait), name, c.of->serial, c.channel});
}

std::optional<picoseconds> offload_nic::next_deadline() const {
  std::optional<picoseconds> next;
  if (!timers_.empty()) next = timers_.top().at;
  if (!want_.empty()) next = std::min(next.value_or(picoseconds::max()), counters_moved_ + config_.counter_retry);
  return next;
}

/// Those of sequences that have ended: else, until their time had come, there would be one for each operation of the last milliseconds.
void offload_nic::drop_old_timers() {
  decltype(timers_) left;
  for (; !timers_.empty(); timers_.pop()) {
    const timer& t = timers_.top();
    if (const auto found = runs_.find(t.name); found != runs_.end() && found->second->serial == t.serial) left.push(t);
  }
  timers_ = std::move(left);
}

void offload_nic::elapse(picoseconds now) {
  if (!want_.empty() && now - counters_moved_ >= config_.counter_retry) {
    counters_moved_ = now;
    take_counters_back(now);
  }
  while (!timers_.empty() && timers_.top().at <= now) {
    const timer t = timers_.top();
    timers_.pop();
    const auto found = runs_.find(t.name);
    if (found == runs_.end() || found->second->serial != t.serial) continue;
    const out_ref c{found->second.get(), t.channel};
    bool failed = false;
    look_after(c, now, failed);
    if (failed) continue;
    picoseconds next = c->deadline;
    if (c->wants_first()) next = std::min(next, c->wants_since + config_.longest_counter_wait);
    c->timed = next.count() > 0;
    timed_ -= !c->timed;
    if (c->timed) timers_.push({std::max(next, now + picoseconds{1}), t.name, t.serial, t.channel});
  }
}

void offload_nic::look_after(const out_ref& c, picoseconds now, bool& failed) {
  if (c->wants_first() && now - c->wants_since >= config_.longest_counter_wait) {
    failed = true;
    return fail(c.of->job(),
                "rank " + std::to_string(c.of->program().rank) + " found none of the NIC's " +
                    std::to_string(config_.counters) +
                    " pulse counters free for as long as it may wait; others hold them",
                now);
  }
  if (c->deadline.count() == 0 || now < c->deadline) return;
  if (!c->waits_for_response()) {
    c->deadline = c->wants ? now + config_.resend : picoseconds{0};
    return;
  }
  ++again_;
  c->silence = std::min(2 * c->silence, config_.longest_resend);
  c->deadline = now + c->silence;
  const int back = released(c, c->rewind());
  c->wants_since = now;
  // Counters that it held go to those that wait before it gets one again.
  give_back(back, now);
  activate(c);
}

void offload_nic::forget(run& r, picoseconds now) {
  std::erase_if(active_, [&](const out_ref& c) { return c.of == &r; });
  std::erase_if(want_, [&](const auto& asked) { return asked.second.of == &r; });
  int back = 0;
  for (std::size_t i = 0; i < r.out.size(); ++i) {
    const out_ref c{&r, i};
    back += released(c, c->let_go());
    timed_ -= c->timed;
  }
  give_back(back, now);
}

}  // namespace troupe::actors
