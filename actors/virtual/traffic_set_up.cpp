// SPDX-License-Identifier: Apache-2.0
// What traffic finds before the clock runs: the parts, their connections and the ways of these, how each element serves, and which events may be left out.
#include "actors/virtual/traffic.hpp"

#include <algorithm>
#include <limits>

#include "memory/error.hpp"

namespace troupe::actors {

// -- before the run ---------------------------------------------------------------------------------------------------

traffic::traffic(const hardware& on, virtual_scheduler& time, recorder* record, element_watcher* watcher)
    : time_(time), on_(on), record_(record), watcher_(watcher), noted_(record != nullptr || watcher != nullptr) {
  set_up_elements();
}

traffic::part traffic::new_part(int ranks, int lanes, int channels, const hardware& on,
                                const protocol_costs& protocol) {
  part p{&on,
         lanes,
         channels,
         static_cast<std::uint32_t>(protocol.slots),
         static_cast<std::uint64_t>(protocol.wire),
         static_cast<std::uint64_t>(protocol.payload),
         protocol.latency.count()};
  p.first_rank = ranks_;
  p.first_connection = static_cast<std::uint32_t>(connections_.size());
  p.ranks = ranks;
  ranks_ += static_cast<std::size_t>(ranks);
  return p;
}

std::uint32_t traffic::keep(part&& p) {
  parts_.push_back(std::move(p));
  return static_cast<std::uint32_t>(parts_.size() - 1);
}

std::uint32_t traffic::add(const lazy_sizes& sizes, const hardware& on, const protocol_costs& protocol) {
  part p = new_part(sizes.notes().ranks, sizes.lanes(), sizes.cut().channels, on, protocol);
  find_connections(p, sizes);
  find_switches(p, sizes.notes());
  find_ways(p, p.first_connection);
  return keep(std::move(p));
}

std::uint32_t traffic::add(const std::vector<std::pair<rank_t, rank_t>>& pairs, const hardware& on,
                           const protocol_costs& protocol) {
  part p = new_part(on.ranks, 1, 1, on, protocol);
  p.out.begins.assign(static_cast<std::size_t>(on.ranks) + 1, 0);
  p.in.begins.assign(static_cast<std::size_t>(on.ranks) + 1, 0);
  for (const auto& [from, to] : pairs) {
    p.out.entries.push_back({to, static_cast<std::uint32_t>(connections_.size())});
    ++p.out.begins[static_cast<std::size_t>(from) + 1];
    ++p.in.begins[static_cast<std::size_t>(to) + 1];
    connection c;
    c.from = from, c.to = to;
    c.part = static_cast<std::uint32_t>(parts_.size());
    connections_.push_back(c);
  }
  for (std::size_t r = 0; r + 1 < p.out.begins.size(); ++r) p.out.begins[r + 1] += p.out.begins[r];
  index_receivers(p);
  find_ways(p, p.first_connection);
  return keep(std::move(p));
}

std::uint32_t traffic::add_again(std::uint32_t number) {
  part p = parts_[number];
  const std::uint32_t first = p.first_connection, end = first + static_cast<std::uint32_t>(p.channels) * p.per_channel;
  p.first_rank = ranks_;
  ranks_ += static_cast<std::size_t>(p.ranks);
  p.first_connection = static_cast<std::uint32_t>(connections_.size());
  for (peer_table* table : {&p.out, &p.in})
    for (peer_entry& e : table->entries) e.connection += p.first_connection - first;
  for (std::uint32_t i = first; i < end; ++i) {
    const connection& like = connections_[i];
    connection c;
    c.from = like.from, c.to = like.to, c.lane = like.lane;
    c.hops = like.hops, c.window = like.window, c.delays = like.delays;
    std::copy(std::begin(like.elements), std::end(like.elements), c.elements);
    c.part = static_cast<std::uint32_t>(parts_.size());
    connections_.push_back(c);
    if (!choices_.empty()) {
      choices_.resize(connections_.size());
      choices_.back() = choices_[i];
    }
  }
  return keep(std::move(p));
}

void traffic::set_up(ties between) {
  // What ranks and connections take, about. With less than this it cost as much as it brought, or more.
  time_.looks_ahead(ranks_ * 1024 + connections_.size() * sizeof(connection) > std::size_t{16} << 20);
  find_followers();
  skips_events_ = may_skip_events(between);
  if (skips_events_) find_shadows();
}

traffic::~traffic() = default;

namespace {

bool is_shared(const place& at, rank_t rank) {
  return at.buffer == buffer_kind::l2 || (at.owner != self && at.owner != rank && at.buffer != buffer_kind::none);
}

/// The distinct peers of a lane, sorted. Lanes mostly repeat a few peers, so it is kept short on the way.
class peer_list {
public:
  void clear() { peers_.clear(), last_ = -1; }
  void add(rank_t peer) {
    if (peer == last_) return;
    last_ = peer;
    peers_.push_back(peer);
    if (peers_.size() >= next_tidy_) tidy();
  }
  const std::vector<rank_t>& tidied() { return tidy(), peers_; }

private:
  void tidy() {
    std::sort(peers_.begin(), peers_.end());
    peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
    next_tidy_ = std::max<std::size_t>(1024, 2 * peers_.size());
  }
  std::vector<rank_t> peers_;
  std::size_t next_tidy_ = 1024;
  rank_t last_ = -1;
};

}  // namespace

void traffic::find_connections(part& p, const lazy_sizes& sizes) {
  const score& s = sizes.notes();
  const auto lanes = static_cast<std::size_t>(p.lanes);
  const std::size_t rows = static_cast<std::size_t>(s.ranks) * lanes;
  p.out.begins.assign(rows + 1, 0);
  p.in.begins.assign(rows + 1, 0);
  const std::size_t first = connections_.size();
  peer_list peers;
  for (rank_t r = 0; r < s.ranks; ++r)
    for (std::size_t l = 0; l < lanes; ++l) {
      const std::size_t row = static_cast<std::size_t>(r) * lanes + l;
      peers.clear();
      if (const auto& player = s.players[static_cast<std::size_t>(r)]; l < player.lanes.size())
        for (const step& at : player.lanes[l]) {
          if (sends(at.kind)) peers.add(at.to);
          shares_memory_ = shares_memory_ || is_shared(at.source, r) || is_shared(at.target, r);
        }
      for (const rank_t to : peers.tidied()) {
        p.out.entries.push_back({to, static_cast<std::uint32_t>(connections_.size())});
        ++p.in.begins[static_cast<std::size_t>(to) * lanes + l + 1];
        connection c;
        c.from = r, c.to = to, c.lane = static_cast<std::int32_t>(l);
        c.part = static_cast<std::uint32_t>(parts_.size());
        connections_.push_back(c);
      }
      p.out.begins[row + 1] = static_cast<std::uint32_t>(p.out.entries.size());
    }
  index_receivers(p);
  connections_.reserve(first + static_cast<std::size_t>(p.per_channel) * static_cast<std::size_t>(p.channels));
  for (int channel = 1; channel < p.channels; ++channel)
    for (std::uint32_t c = 0; c < p.per_channel; ++c) {
      connections_.push_back(connections_[first + c]);
      connections_.back().lane += channel * p.lanes;
    }
}

/// By sender, as the connections are: so every row of the receivers is sorted too. @pre in.begins has how many each row gets
void traffic::index_receivers(part& p) const {
  for (std::size_t row = 0; row + 1 < p.in.begins.size(); ++row) p.in.begins[row + 1] += p.in.begins[row];
  p.in.entries.resize(connections_.size() - p.first_connection);
  auto at = p.in.begins;
  for (std::uint32_t c = p.first_connection; c < connections_.size(); ++c) {
    const connection& made = connections_[c];
    const std::size_t row =
        static_cast<std::size_t>(made.to) * static_cast<std::size_t>(p.lanes) + static_cast<std::size_t>(made.lane);
    p.in.entries[at[row]++] = {made.from, c};
  }
  p.per_channel = static_cast<std::uint32_t>(connections_.size() - p.first_connection);
}

void traffic::set_up_elements() {
  elements_.resize(on_.elements.size());
  if (std::ranges::any_of(on_.elements,
                          [&](const hardware_element& e) { return on_.classes[e.of].discipline == service::fair; })) {
    fair_memory_ = std::make_unique<run_memory>(elements_.size() * sizeof(fair_state) * 4);
    fair_.reserve(elements_.size());
    for (std::size_t i = 0; i < elements_.size(); ++i) fair_.emplace_back(fair_memory_.get());
  }
  marks_.resize(on_.elements.size());
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    const hardware_element& from = on_.elements[i];
    const element_class& of = on_.classes[from.of];
    element_data& e = elements_[i];
    if (of.units > 1) e.queue = fifo_state{of.units};
    e.latency = of.latency.count();
    e.overhead = of.overhead.count();
    e.rate = of.bytes_per_second;
    e.slow_down = from.slow_down;
    if (e.rate != 0 && e.a_byte() % e.rate == 0 && e.a_byte() / e.rate < std::uint64_t{1} << 30)
      e.time_per_byte = e.a_byte() / e.rate;
    e.cut_through = of.passing == forwarding::cut_through;
    const auto first =
        std::lower_bound(on_.faults.begin(), on_.faults.end(), static_cast<element_index>(i),
                         [](const hardware_fault& f, element_index wanted) { return f.element < wanted; });
    if (first != on_.faults.end() && first->element == static_cast<element_index>(i))
      e.first_fault = static_cast<std::uint32_t>(first - on_.faults.begin());
    if (of.discipline == service::fair) {
      e.fair = true;
    } else if (of.discipline == service::max_min) {
      e.shared = flows_.add_element(e.bytes_per_picosecond() * of.units);
      if (first_shared_ == no_element) first_shared_ = static_cast<element_index>(i);
    }
  }
}

std::shared_ptr<const seat_map> traffic::no_seats() {
  static const auto none = std::make_shared<const seat_map>(score{});
  return none;
}

void traffic::find_switches(part& p, const score& notes) const {
  if (notes.switches.empty()) return;
  p.seats = std::make_shared<const seat_map>(notes);
  for (const fabric_switch& f : notes.switches) {
    const int which = p.on->switch_of(f.server);
    if (which < 0)
      throw error(errc::unsupported,
                  notes.choreography + " lets " +
                      (f.server < 0 ? "the network" : "the switch of server " + std::to_string(f.server)) +
                      " reduce, and that of " + p.on->name + " does not");
    p.switches.push_back(which);
  }
}

/// A message between a rank and a lane of a switch. The way to the switch is no hop of the protocol, which has no software there.
bool traffic::route_by_switch(const part& p, const connection& c, std::vector<element_index>& way) const {
  if (p.seats->empty()) return false;
  const auto lane = static_cast<std::size_t>(c.lane % p.lanes);
  const std::int32_t towards = p.seats->of(c.to, lane), away = p.seats->of(c.from, lane);
  if (towards < 0 && away < 0) return false;
  p.on->switch_route(towards >= 0 ? c.from : c.to, p.switches[static_cast<std::size_t>(std::max(towards, away))],
                     towards >= 0, way);
  return true;
}

void traffic::find_ways(const part& p, std::size_t first) {
  std::vector<element_index> way;
  for (std::size_t i = first; i < connections_.size(); ++i) {
    connection& c = connections_[i];
    if (c.from == c.to) throw error(errc::bad_score, "rank " + std::to_string(c.from) + " sends to itself");
    const bool by_switch = route_by_switch(p, c, way);
    const bool enters = by_switch && p.seats->of(c.to, static_cast<std::size_t>(c.lane % p.lanes)) >= 0;
    if (!by_switch) p.on->route(c.from, c.to, c.lane / p.lanes, way);
    if (way.size() > 1000)
      throw error(errc::bad_config, p.on->name + ": the way from rank " + std::to_string(c.from) + " to rank " +
                                        std::to_string(c.to) + " has more than 1000 elements");
    std::int64_t handshake = 0;
    for (const element_index at : way) {
      const element_class& of = on_.class_of(at);
      handshake = std::max(handshake, of.handshake.count());
      if (of.window > 0 && (c.window == 0 || of.window < c.window)) c.window = static_cast<std::uint16_t>(of.window);
    }
    add_hops(c, way, enters ? 0 : p.latency, handshake);
    if (p.on->routing == path_choice::adaptive && !by_switch) find_choices(p, i);
    else if (!choices_.empty()) choices_.resize(connections_.size());
  }
}

/// The ways of the next channels, as far as they are others, and as long: a way that passes more elements is no equal choice.
void traffic::find_choices(const part& p, std::size_t at) {
  choices_.resize(connections_.size());
  choice_data& of = choices_[at];
  const connection& fixed = connections_[at];
  const auto add = [&](const element_index* first) {
    of.ways.push_back(static_cast<std::uint32_t>(choice_ways_.size()));
    choice_ways_.insert(choice_ways_.end(), first, first + fixed.hops);
  };
  add(way_of(fixed));
  of.common = fixed.hops;
  std::vector<element_index> way;
  for (int other = 1; other < p.on->paths; ++other) {
    p.on->route(fixed.from, fixed.to, fixed.lane / p.lanes + other, way);
    if (way.size() != fixed.hops) continue;
    bool known = false;
    for (const std::uint32_t begin : of.ways) {
      const auto parted = std::mismatch(way.begin(), way.end(), choice_ways_.begin() + begin).first;
      const auto same = static_cast<std::uint16_t>(parted - way.begin());
      known = known || same == fixed.hops;
      of.common = std::min(of.common, same);
    }
    if (!known) add(way.data());
  }
  if (of.ways.size() == 1) of.common = fixed.hops;
}

/// `behind`: latency after the last element.
void traffic::add_hops(connection& c, const std::vector<element_index>& way, std::int64_t behind,
                       std::int64_t handshake) {
  c.hops = static_cast<std::uint16_t>(way.size());
  if (way.size() <= connection::short_way) {
    std::copy(way.begin(), way.end(), c.elements);
  } else {
    c.elements[0] = static_cast<element_index>(long_ways_.size());
    long_ways_.insert(long_ways_.end(), way.begin(), way.end());
  }
  for (const element_index at : way) behind += data_of(at).latency;
  c.delays = delays_index({behind, handshake});
  bool behind_shared = false;
  for (const element_index at : way) {
    const element_class& of = on_.class_of(at);
    if (behind_shared && of.passing == forwarding::store_and_forward)
      throw error(errc::bad_config, on_.name + ": " + on_.elements[static_cast<std::size_t>(at)].name +
                                        " stores and forwards what comes from a fair or max_min "
                                        "element, whose end is not known yet when the head comes; make one of them "
                                        "fifo, or passing = cut_through");
    behind_shared = behind_shared || of.discipline != service::fifo;
  }
}

/// Neighbouring ways are mostly alike, and a machine's ways are of a few kinds.
std::uint32_t traffic::delays_index(const way_delays& of) {
  const auto at = std::find(delays_.rbegin(), delays_.rend(), of);
  if (at != delays_.rend()) return static_cast<std::uint32_t>(delays_.rend() - at - 1);
  delays_.push_back(of);
  return static_cast<std::uint32_t>(delays_.size() - 1);
}

/// An element follows another one if all its messages come from that one, which passes heads on in the order in which it got them:
/// then the order at both is the same, and reserving them together is the same as one after the other.
void traffic::find_followers() {
  if (shares_memory_) return;     // accesses enter elements at times of their own
  if (!choices_.empty()) return;  // who comes to an element depends on the queues
  constexpr std::int32_t unknown = -1, several = -2;
  std::vector<std::int32_t> feeder(elements_.size(), unknown);
  for (const connection& c : connections_) {
    const element_index* const way = way_of(c);
    for (std::uint32_t h = 0; h < c.hops; ++h) {
      const auto at = static_cast<std::size_t>(way[h]);
      const std::int32_t before = h == 0 ? several : way[h - 1];
      feeder[at] = feeder[at] == unknown || feeder[at] == before ? before : several;
    }
  }
  // A rank's own work may occupy an element out of this order.
  for (const rank_place& p : on_.places)
    for (const element_index own : {p.core, p.dma})
      if (own != no_element) feeder[static_cast<std::size_t>(own)] = several;
  const auto is_fifo = [&](element_index e) { return on_.class_of(e).discipline == service::fifo; };
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    const element_index before = feeder[i];
    marks_[i].follows =
        before >= 0 && data_of(before).cut_through && is_fifo(before) && is_fifo(static_cast<element_index>(i));
  }
}

/// Shares depend on nothing but who came when, and so do all times, if no element has a queue: not on the order of events of one time, which
/// changes with those that are left out. Reports want spans in the order of their ends, and what a lost rank sends may not come to its end.
bool traffic::may_skip_events(ties between) const {
  if (between == ties::matter || fair_.empty() || noted_ || shares_memory_ || !on_.losses.empty()) return false;
  if (std::ranges::any_of(parts_, [](const part& p) { return !p.switches.empty(); })) return false;
  if (std::ranges::any_of(on_.places, [](const rank_place& p) { return p.core != no_element || p.dma != no_element; }))
    return false;
  std::vector<std::uint8_t> is_fair(elements_.size());
  for (std::size_t i = 0; i < elements_.size(); ++i) is_fair[i] = elements_[i].fair ? 1 : 0;
  constexpr int most_served = std::numeric_limits<decltype(virtual_message::served)>::digits;
  const auto all_fair = [&](const connection& c) {
    const element_index* const way = way_of(c);
    return c.hops <= most_served &&
           std::all_of(way, way + c.hops, [&](element_index e) { return is_fair[static_cast<std::size_t>(e)] != 0; });
  };
  return std::ranges::all_of(connections_, all_fair);
}

bool traffic::serves_alike(element_index a, element_index b) const {
  const auto& x = elements_[static_cast<std::size_t>(a)];
  const auto& y = elements_[static_cast<std::size_t>(b)];
  return x.fair && y.fair && x.overhead == y.overhead && x.rate == y.rate && x.slow_down == y.slow_down &&
         x.first_fault == no_fault && y.first_fault == no_fault;
}

/// An element that gets all messages of the fair one before it, each as much later, does what that one did, as much later.
void traffic::find_shadows() {
  constexpr std::int32_t unknown = -1, several = -2;
  std::vector<std::int32_t> taker(elements_.size(), unknown), feeder = taker;
  for (const connection& c : connections_) {
    const element_index* const way = way_of(c);
    for (std::uint32_t h = 0; h < c.hops; ++h) {
      std::int32_t &to = taker[static_cast<std::size_t>(way[h])], &from = feeder[static_cast<std::size_t>(way[h])];
      const std::int32_t next = h + 1 < c.hops ? way[h + 1] : several, before = h > 0 ? way[h - 1] : several;
      to = to == unknown || to == next ? next : several;
      from = from == unknown || from == before ? before : several;
    }
  }
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    const element_index before = feeder[i], here = static_cast<element_index>(i);
    marks_[i].shadow =
        before >= 0 && taker[static_cast<std::size_t>(before)] == here && serves_alike(before, here) ? 1u : 0u;
  }
}

}  // namespace troupe::actors
