// SPDX-License-Identifier: Apache-2.0
// What happens to messages while the clock runs; what is found before it does, is in traffic_set_up.cpp.
#include "actors/virtual/traffic.hpp"

#include <algorithm>
#include <limits>

#include "actors/virtual/recorder.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

// -- ranks ----------------------------------------------------------------------------------------------------------

std::uint32_t traffic::find(const part& of, const peer_table& in, rank_t rank, int channel, int lane, rank_t peer,
                            std::uint32_t& hint) {
  const std::size_t row =
      static_cast<std::size_t>(rank) * static_cast<std::size_t>(of.lanes) + static_cast<std::size_t>(lane);
  const std::uint32_t begin = in.begins[row], end = in.begins[row + 1];
  const std::uint32_t offset = static_cast<std::uint32_t>(channel) * of.per_channel;
  // Mostly the same as before, or the next one round or back: where everybody sends to everybody, a rank goes through them in turn.
  const std::uint32_t count = end - begin;
  for (const std::uint32_t near : {hint, hint + 1 < count ? hint + 1 : 0, hint > 0 ? hint - 1 : count - 1})
    if (near < count && in.entries[begin + near].peer == peer) {
      hint = near;
      return in.entries[begin + near].connection + offset;
    }
  const auto first = in.entries.begin() + begin, last = in.entries.begin() + end;
  const auto at =
      std::lower_bound(first, last, peer, [](const peer_entry& e, rank_t wanted) { return e.peer < wanted; });
  if (at == last || at->peer != peer) return no_connection;
  hint = static_cast<std::uint32_t>(at - first);
  return at->connection + offset;
}

std::uint32_t traffic::new_message() {
  if (free_message_ == no_message) {
    messages_.emplace_back();
    if (!choices_.empty()) taken_.emplace_back();
    return static_cast<std::uint32_t>(messages_.size() - 1);
  }
  const std::uint32_t at = free_message_;
  free_message_ = messages_[at].next;
  return at;
}

std::uint32_t traffic::send(std::uint32_t at, std::uint64_t bytes) {
  connection& c = connections_[at];
  const std::uint32_t index = new_message();
  virtual_message& m = messages_[index];
  m = {};
  m.sent = time_.now();
  m.flow = static_cast<std::int64_t>(sent_++);
  m.payload = bytes;
  const part& p = parts_[c.part];
  m.wire = p.wire == p.payload ? bytes : bytes_on_wire(bytes, p.wire, p.payload);
  m.connection = at;
  if (!choices_.empty()) taken_[index] = fixed_way;
  m.number = c.sent++;
  payload_sent_ += bytes;
  if (record_) record_->sent(c.from, c.to, c.lane, m.flow, m.sent, bytes);
  if (c.window != 0) {
    if (c.under_way == c.window) {
      std::uint32_t* last = &c.held;
      while (*last != no_message) last = &messages_[*last].next;
      *last = index;
      return index;
    }
    ++c.under_way;
  }
  enter(index);
  return index;
}

void traffic::consume(std::uint32_t at) {
  connection& c = connections_[at];
  const std::uint32_t index = c.arrived;
  c.arrived = messages_[index].next;
  messages_[index].next = free_message_;
  free_message_ = index;
  ++c.consumed;
}

std::uint32_t traffic::arrived(std::uint32_t index) {
  virtual_message& m = messages_[index];
  connection& c = connections_[m.connection];
  // Messages may overtake each other on fair elements and several units; the receiver takes them in the order in which they were
  // sent.
  std::uint32_t* at = &c.arrived;
  while (*at != no_message && messages_[*at].number - c.consumed < m.number - c.consumed) at = &messages_[*at].next;
  m.next = *at;
  *at = index;
  if (record_) record_->arrived(m.flow, time_.now());
  if (c.window != 0) {
    --c.under_way;
    if (const std::uint32_t held = c.held; held != no_message) {
      c.held = messages_[held].next;
      messages_[held].next = no_message;
      ++c.under_way;
      enter(held);
    }
  }
  return m.connection;
}

std::uint32_t traffic::access_way(std::uint32_t part_number, rank_t rank, memory_place place, bool writes) {
  const part& p = parts_[part_number];
  const rank_t owner = place.owner;
  const std::uint64_t key = (p.first_rank + static_cast<std::uint64_t>(rank)) << 33 |
                            (place.in_segment ? std::uint64_t{1} << 32 : 0) | static_cast<std::uint64_t>(owner) << 1 |
                            (writes ? 1u : 0u);
  if (!p.on->memory_way)
    throw error(errc::unsupported,
                "the score reads or writes memory of other ranks, which ranks of " + on_.name + " do not share");
  const auto [at, fresh] = access_ways_.try_emplace(key, static_cast<std::uint32_t>(connections_.size()));
  if (!fresh) return at->second;
  std::vector<element_index> way;
  p.on->access(rank, place, writes, way);
  connection c;
  c.part = part_number;
  c.from = writes ? rank : owner;
  c.to = writes ? owner : rank;
  add_hops(c, way, 0, 0);
  connections_.push_back(c);
  if (!choices_.empty()) choices_.emplace_back();
  return at->second;
}

void traffic::access(std::uint32_t part_number, rank_t rank, std::int32_t lane, memory_place at, bool writes,
                     std::uint64_t bytes) {
  begin_access(part_number, rank, lane, access_way(part_number, rank, at, writes), bytes);
}

std::uint32_t traffic::exchange_way(std::uint32_t part_number, rank_t rank, int which, bool towards) {
  const part& p = parts_[part_number];
  // Behind the ranks, which are owners of memory, as if they were owners, too.
  const auto owner = static_cast<std::uint64_t>(p.on->ranks) + static_cast<std::uint64_t>(which);
  const std::uint64_t key = (p.first_rank + static_cast<std::uint64_t>(rank)) << 33 | owner << 1 | (towards ? 1u : 0u);
  const auto [at, fresh] = access_ways_.try_emplace(key, static_cast<std::uint32_t>(connections_.size()));
  if (!fresh) return at->second;
  std::vector<element_index> way;
  p.on->switch_route(rank, which, towards, way);
  connection c;
  c.part = part_number;
  c.from = c.to = rank;
  add_hops(c, way, towards ? 0 : p.latency, 0);
  connections_.push_back(c);
  if (!choices_.empty()) choices_.emplace_back();
  return at->second;
}

void traffic::exchange(std::uint32_t part_number, rank_t rank, std::int32_t lane, std::int32_t which, bool towards,
                       std::uint64_t bytes, std::int64_t since) {
  const part& p = parts_[part_number];
  const std::uint64_t wire = bytes_on_wire(bytes, p.wire, p.payload);
  begin_access(part_number, rank, lane, exchange_way(part_number, rank, switch_of(part_number, which), towards), wire,
               towards ? 0 : std::min(time_.now() - since, p.latency));
}

void traffic::begin_access(std::uint32_t part_number, rank_t rank, std::int32_t lane, std::uint32_t by,
                           std::uint64_t bytes, std::int64_t passed) {
  const std::uint32_t index = new_message();
  virtual_message& m = messages_[index];
  m = {};
  m.sent = m.arrival = time_.now();
  m.flow = -1;
  m.payload = m.wire = bytes;
  m.connection = by;
  if (!choices_.empty()) taken_[index] = fixed_way;
  m.access = lane;
  // The owner's number: L2 has no rank, and an end of the connection may be L2.
  m.number = static_cast<std::uint32_t>(parts_[part_number].first_rank) + static_cast<std::uint32_t>(rank);
  m.behind = delays_of(connections_[by]).latency - passed;
  if (connections_[by].hops == 0) arrive(m, index);
  else pass(index, m.sent);
}

std::int64_t traffic::work(element_index element, std::int64_t alone, std::uint64_t bytes) {
  const std::int64_t now = time_.now();
  if (element == no_element) return now + alone;
  element_data& e = elements_[static_cast<std::size_t>(element)];
  const auto served = reserve(e, now, alone);
  e.use.busy_ps += served.end - served.start;
  e.use.bytes += bytes;
  ++e.use.messages;
  e.use.queued_ps += served.start - now;
  if (noted_) note_occupied(element, nullptr, nullptr, served.start, served.end, bytes, served.start - now);
  return served.end;
}

void traffic::note_occupied(element_index element, const connection* c, const virtual_message* m, std::int64_t begin,
                            std::int64_t end, std::uint64_t bytes, std::int64_t queued) {
  const rank_t from = c != nullptr ? c->from : -1, to = c != nullptr ? c->to : -1;
  if (record_) record_->occupied(element, from, to, m != nullptr ? m->flow : -1, begin, end, bytes, queued);
  else if (c != nullptr) watcher_->occupied(element, c->part, from, to, begin, end, bytes);
  else watcher_->occupied(element, std::nullopt, from, to, begin, end, bytes);
}

// -- elements ---------------------------------------------------------------------------------------------------------

std::int64_t traffic::occupancy(element_data& e, std::uint64_t bytes) {
  if (e.memo_bytes == bytes) return e.memo_time;
  if (e.time_per_byte != 0 && bytes < std::uint64_t{1} << 32) return static_cast<std::int64_t>(bytes * e.time_per_byte);
  __extension__ using wide = unsigned __int128;
  std::int64_t time = 0;
  if (e.rate != 0) {
    const std::uint64_t factor = e.a_byte();
    if (bytes < std::numeric_limits<std::uint64_t>::max() / 2 / factor) {
      time = static_cast<std::int64_t>((bytes * factor + e.rate - 1) / e.rate);
    } else {
      const wide exact = (wide{bytes} * factor + e.rate - 1) / e.rate;
      constexpr auto most = static_cast<wide>(std::numeric_limits<std::int64_t>::max() / 4);
      time = static_cast<std::int64_t>(std::min(exact, most));
    }
  }
  e.memo_bytes = bytes;
  return e.memo_time = time;
}

traffic::passage traffic::reserve_disturbed(element_data& e, std::int64_t head, std::int64_t alone) {
  __extension__ using wide = __int128;
  const std::int64_t start = std::max(head, e.queue.free_at());
  std::int64_t now = start, begin = start, left = alone;  // left: of the work, as it would take alone
  const element_index own = on_.faults[e.first_fault].element;
  for (std::size_t i = e.first_fault; i < on_.faults.size() && on_.faults[i].element == own; ++i) {
    const hardware_fault& f = on_.faults[i];
    if (f.end_ps <= now) continue;
    if (f.begin_ps > now) {
      if (left <= f.begin_ps - now) break;
      left -= f.begin_ps - now;
      now = f.begin_ps;
    }
    if (f.slow_down == 0) {
      if (left == alone && now == begin) begin = f.end_ps;
    } else {
      const auto done = static_cast<std::int64_t>(wide{f.end_ps - now} * 1000 / f.slow_down);
      if (left <= done) {
        now += static_cast<std::int64_t>((wide{left} * f.slow_down + 999) / 1000);
        left = 0;
        break;
      }
      left -= done;
    }
    now = f.end_ps;
  }
  const auto served = e.queue.reserve(head, std::min(now + left, end_of_time) - start);
  return {start, begin, served.end};
}

/// Its head has come to where its ways part. The one through whose queues, as they are now, it would get soonest; of equals the first.
void traffic::choose_way(std::uint32_t index) {
  virtual_message& m = messages_[index];
  const choice_data& of = choices_[m.connection];
  const std::uint16_t hops = connections_[m.connection].hops;
  const auto latency_of_rest = [&](std::uint32_t begin) {
    std::int64_t sum = 0;
    for (std::uint32_t h = begin + of.common; h < begin + hops; ++h) sum += data_of(choice_ways_[h]).latency;
    return sum;
  };
  std::int64_t soonest = std::numeric_limits<std::int64_t>::max();
  const std::int64_t beyond = of.ways.empty() ? 0 : m.behind - latency_of_rest(of.ways.front());
  for (const std::uint32_t begin : of.ways) {
    const std::int64_t rest = beyond + latency_of_rest(begin);
    std::int64_t head = time_.now(), arrival = 0, behind = rest;
    for (std::uint32_t h = begin + of.common; h < begin + hops; ++h) {
      element_data& e = data_of(choice_ways_[h]);
      const std::int64_t start = std::max(head, e.queue.free_at()), end = start + e.overhead + occupancy(e, m.wire);
      arrival = std::max(arrival, end + behind);
      head = (e.cut_through ? start + e.overhead : end) + e.latency;
      behind -= e.latency;
    }
    if (arrival >= soonest) continue;
    soonest = arrival;
    taken_[index] = begin;
    m.behind = rest;
  }
}

void traffic::arrive(const virtual_message& m, std::uint32_t index) {
  if (m.access >= 0) {
    time_.at(m.arrival, ranks[m.number], access_event{m.access});
    messages_[index].next = free_message_;
    free_message_ = index;
    return;
  }
  const connection& c = connections_[m.connection];
  time_.at(m.arrival, ranks[parts_[c.part].first_rank + static_cast<std::size_t>(c.to)], arrival_event{index});
}

void traffic::enter(std::uint32_t index) {
  virtual_message& m = messages_[index];
  const connection& c = connections_[m.connection];
  const std::int64_t now = time_.now();
  const way_delays& delays = delays_of(c);
  m.behind = delays.latency;
  if (c.hops == 0) {
    m.arrival = now + m.behind;
    arrive(m, index);
  } else if (delays.handshake > 0) {
    tell(now + delays.handshake, way_of(c)[0], head_event{index});
  } else {
    pass(index, now);
  }
}

/// The head has come to the message's present element at `head`.
void traffic::pass(std::uint32_t index, std::int64_t head) {
  virtual_message& m = messages_[index];
  const connection& c = connections_[m.connection];
  if (!choices_.empty() && m.hop == choices_[m.connection].common) choose_way(index);
  const element_index* const way = way_of(index, c);
  for (;;) {
    const element_index at = way[m.hop];
    element_data& e = data_of(at);
    if (e.shared != max_min_state::none) return enter_shared(index, head);
    std::int64_t next_head = 0;
    if (e.fair) {
      fair_state::visit who{index, m.hop, m.behind};
      next_head = head + e.overhead + e.latency;
      // Those that are not looked at do what this one does, each its overhead later.
      for (; m.hop + 1 < c.hops && marks_[static_cast<std::size_t>(way[m.hop + 1])].shadow != 0; ++m.hop) {
        const element_data& next = data_of(way[m.hop + 1]);
        m.behind -= next.latency;
        who.tail += next.overhead;
        next_head += next.overhead + next.latency;
      }
      join(who, at, head);
    } else {
      const std::int64_t occupied = e.overhead + occupancy(e, m.wire);
      const auto served = reserve(e, head, occupied);
      e.use.busy_ps += served.end - served.start;
      e.use.bytes += m.wire;
      ++e.use.messages;
      e.use.queued_ps += served.start - head;
      m.arrival = std::max(m.arrival, served.end + m.behind);
      next_head = e.cut_through ? served.begin + e.overhead + e.latency : m.arrival - (m.behind - e.latency);
      if (noted_) note_occupied(at, &c, &m, served.start, served.end, m.wire, served.start - head);
    }
    m.behind -= e.latency;
    if (++m.hop == c.hops) {
      if (m.unfinished == 0 || (m.served != 0 && !ask(index))) arrive(m, index);
      return;
    }
    if (marks_[static_cast<std::size_t>(way[m.hop])].follows == 0) {
      tell(next_head, way[m.hop], head_event{index});
      return;
    }
    head = next_head;
  }
}

void traffic::join(const fair_state::visit& who, element_index element, std::int64_t now) {
  element_data& e = data_of(element);
  fair_part& f = fair_of(element);
  fetch_lines(&f, 1);
  virtual_message& m = messages_[who.message];
  const std::int64_t alone = e.overhead + occupancy(e, m.wire);
  e.use.bytes += m.wire;
  ++e.use.messages;
  ++m.unfinished;
  if (skips_events_) {
    make_room(element);
    m.served |= std::uint32_t{1} << who.hop;
    if (f.count == 0) {
      f.only = {now, now + alone, who, false};
      return;
    }
  }
  if (f.count == 0) f.busy_since = now;
  f.members.join(now, who, alone);
  ++f.count;
  if (!skips_events_) plan_departure(element);
}

void traffic::plan_departure(element_index element) {
  fair_part& f = fair_of(element);
  tell(f.members.next().time, element, done_event{++f.generation, element});
}

void traffic::handle(done_event happened) {
  const element_index element = happened.element;
  if (data_of(element).shared != max_min_state::none) return on_flows();
  const fair_part& f = fair_of(element);
  if (happened.generation != f.generation) return;  // somebody joined meanwhile
  depart(element);
  if (f.count != 0) plan_departure(element);
}

/// Before somebody joins.
void traffic::make_room(element_index element) {
  const only_one& only = fair_of(element).only;
  if (only.who.message == no_message || only.due <= time_.now()) return catch_up(element);
  if (only.told) take_back(only.who.message);
  to_member(element);
}

/// Makes up for departures that no event told.
void traffic::catch_up(element_index element) {
  fair_part& f = fair_of(element);
  const std::int64_t now = time_.now();
  if (f.only.who.message != no_message && f.only.due <= now) depart_only(element);
  while (f.count != 0 && f.members.next().time <= now) depart(element);
}

/// @pre it is due. One whose arrival was told may be another message meanwhile.
void traffic::depart_only(element_index element) {
  const only_one was = std::exchange(fair_of(element).only, {});
  data_of(element).use.busy_ps += was.due - was.joined_at;
  if (!was.told) departed(element, {was.due, was.joined_at, was.who});
}

void traffic::to_member(element_index element) {
  fair_part& f = fair_of(element);
  const only_one was = std::exchange(f.only, {});
  f.busy_since = was.joined_at;
  f.members.join(was.joined_at, was.who, was.due - was.joined_at);
  ++f.count;
}

/// Somebody joins it, so that its arrival_event will come early.
void traffic::take_back(std::uint32_t index) {
  virtual_message& m = messages_[index];
  m.early = 1;
  for_served(m, [&](std::size_t hop, element_index element) {
    if (only_one& only = fair_of(element).only; only.who.message == index) {
      only.told = false;
    } else {  // it departed, and somebody else has come; m.arrival knows
      m.served &= ~(std::uint32_t{1} << hop);
      --m.unfinished;
    }
  });
}

/// Returns whether the message has still to arrive. If so, its next arrival_event is on its way.
bool traffic::ask(std::uint32_t index) {
  virtual_message& m = messages_[index];
  for_served(m, [&](std::size_t, element_index element) { fetch_lines(&fair_of(element), 2); });
  bool is_only = true;
  std::int64_t arrival = 0;
  for_served(m, [&](std::size_t hop, element_index element) {
    catch_up(element);
    if ((m.served >> hop & 1) == 0) return;
    const fair_part& f = fair_of(element);
    const bool is_only_here = f.only.who.message == index;
    is_only = is_only && is_only_here;
    arrival = std::max(arrival, is_only_here ? f.only.due + f.only.who.tail : f.members.arrival(index));
  });
  if (m.served == 0 && m.arrival <= time_.now()) return false;
  m.arrival = std::max(m.arrival, arrival);
  if (is_only) for_served(m, [&](std::size_t, element_index element) { fair_of(element).only.told = true; });
  m.early = is_only ? 0 : 1;
  arrive(m, index);
  return true;
}

/// The next one, at its time, which has come.
void traffic::depart(element_index element) {
  fair_part& f = fair_of(element);
  const fair_state::departure next = f.members.next();
  f.members.leave(next.time);
  --f.count;
  if (f.count == 0) data_of(element).use.busy_ps += next.time - f.busy_since;
  departed(element, next);
}

void traffic::departed(element_index element, const fair_state::departure& how) {
  const std::uint32_t index = how.who.message;
  virtual_message& m = messages_[index];
  m.arrival = std::max(m.arrival, how.time + how.who.tail);
  --m.unfinished;
  if (skips_events_) {
    m.served &= ~(std::uint32_t{1} << how.who.hop);
    return;
  }
  const connection& c = connections_[m.connection];
  if (noted_) note_occupied(element, &c, &m, how.joined_at, how.time, m.wire, 0);
  if (m.unfinished == 0 && m.hop == c.hops) arrive(m, index);
}

/// The head comes to the first of some max_min elements. It passes them, and with that the message begins to flow through all of them.
void traffic::enter_shared(std::uint32_t index, std::int64_t head) {
  virtual_message& m = messages_[index];
  const connection& c = connections_[m.connection];
  const element_index* const way = way_of(c) + m.hop;
  std::int64_t passed = head;
  for (m.run = 0; m.hop + m.run < c.hops; ++m.run) {
    const element_data& e = data_of(way[m.run]);
    if (e.shared == max_min_state::none) break;
    passed += e.overhead + e.latency;
  }
  if (passed == time_.now()) begin_flow(index);
  else tell(passed, way[0], head_event{index});
}

void traffic::begin_flow(std::uint32_t index) {
  virtual_message& m = messages_[index];
  const connection& c = connections_[m.connection];
  const std::int64_t now = time_.now();
  const element_index* const way = way_of(c);
  double most = 0;
  flow_way_.clear();
  for (std::uint32_t h = m.hop; h < std::uint32_t{m.hop} + m.run; ++h) {
    const element_index at = way[h];
    element_data& e = data_of(at);
    m.behind -= e.latency;
    e.use.bytes += m.wire;
    ++e.use.messages;
    e.use.busy_ps += occupancy(e, m.wire);
    flow_way_.push_back(e.shared);
    if (on_.class_of(at).units == 1) continue;
    const double unit = e.bytes_per_picosecond();
    if (unit > 0 && (most == 0 || unit < most)) most = unit;
  }
  const max_min_state::index flow = flows_.join(now, m.wire, flow_way_, most);
  if (flow >= flow_data_.size()) flow_data_.resize(flow + 1);
  flow_data_[flow] = {index, m.hop, m.run, now, m.behind};
  ++m.unfinished;
  m.hop = static_cast<std::uint16_t>(m.hop + m.run);
  m.run = 0;
  if (m.hop < c.hops) tell(now, way[m.hop], head_event{index});
  plan_flows();
}

/// Ends come before shares: all that come or go at one time are settled together, in the event behind those of that time.
void traffic::on_flows() {
  const std::int64_t now = time_.now();
  if (flows_due_ <= now) flows_due_ = max_min_state::never;
  bool ended = false;
  for (max_min_state::index flow = flows_.take_done(now); flow != max_min_state::none; flow = flows_.take_done(now)) {
    end_flow(flow);
    ended = true;
  }
  if (!ended && flows_.unsettled()) flows_.settle(now);
  plan_flows();
}

void traffic::plan_flows() {
  const std::int64_t due = flows_.unsettled() ? time_.now() : flows_.next();
  if (due >= flows_due_) return;
  flows_due_ = due;
  tell(due, first_shared_, done_event{0, first_shared_});
}

void traffic::end_flow(max_min_state::index flow) {
  const flow_data& f = flow_data_[flow];
  virtual_message& m = messages_[f.message];
  const connection& c = connections_[m.connection];
  const std::int64_t now = time_.now();
  m.arrival = std::max(m.arrival, now + f.behind);
  if (noted_)
    for (std::uint32_t h = f.first; h < f.first + f.count; ++h)
      note_occupied(way_of(c)[h], &c, &m, f.begin, now, m.wire, 0);
  if (--m.unfinished == 0 && m.hop == c.hops) arrive(m, f.message);
}

std::vector<element_use> traffic::use() const {
  std::vector<element_use> all;
  all.reserve(elements_.size());
  for (const element_data& e : elements_) all.push_back(e.use);
  for (std::size_t i = 0; i < fair_.size(); ++i)  // nobody came after it
    if (const only_one& last = fair_[i].only; last.who.message != no_message)
      all[i].busy_ps += last.due - last.joined_at;
  // All connections before it did the same. A way may go down in the numbers of its elements.
  for (const connection& c : connections_)
    for (std::uint32_t h = 1; h < c.hops; ++h)
      if (marks_[static_cast<std::size_t>(way_of(c)[h])].shadow != 0)
        all[static_cast<std::size_t>(way_of(c)[h])] = all[static_cast<std::size_t>(way_of(c)[h - 1])];
  return all;
}

}  // namespace troupe::actors
