// SPDX-License-Identifier: Apache-2.0
#pragma once
// Everything between the ranks of a virtual run: connections, messages under way, and the elements that they pass.
//
// A connection is a (source, destination, lane) with its way. Connections are found before the run, by one walk over the score, so
// that the run looks nothing up in a map. A message enters its first element at once, by a call; every further element gets an
// event when the message's head comes, except where that would change nothing: an element that is fed by one other element only,
// and in order, is reserved together with that one (`follows`). So a message of a ring costs one event.
//
// A fair element has an event for each departure. But where all elements are fair, so that nobody is served first, departures are no events: they
// are made up for when somebody joins, or asks. A message asks when it has entered its last element, and gets its arrival_event for when it will
// arrive if nobody joins one of its elements; if somebody has, that was too early, and it asks again (`ask`). So it costs as many events as with
// queues, and one more for each time that it asks in vain. And an element that gets all messages of another one, and no others, and serves alike, is not looked
// at (`shadow`).
//
// Several collectives may share the elements: each is a part, with ranks, lanes and a protocol of its own. All parts are added, then
// set_up() is called, then the clock runs.
//
// Owner: the thread that runs the scheduler. Nothing here is synchronised.

#include <caf/actor.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/caf/caf_compat.hpp"
#include "actors/virtual/element_state.hpp"
#include "actors/virtual/max_min_state.hpp"
#include "actors/virtual/virtual_run.hpp"
#include "actors/virtual/virtual_scheduler.hpp"
#include "memory/large_pages.hpp"
#include "protocols/program/lazy_program.hpp"
#include "protocols/score/seats.hpp"

namespace troupe::actors {

class recorder;

/// Hears what elements are occupied with, where there is no recorder: of several collectives at once, each of which has moves of its own. From
/// the traffic's thread.
class element_watcher {
public:
  /// @param part that add() returned, of whose ranks `from` and `to` are; none of them: a rank's own work
  virtual void occupied(element_index element, std::optional<std::uint32_t> part, rank_t from, rank_t to,
                        std::int64_t begin, std::int64_t end, std::uint64_t bytes) = 0;

protected:
  ~element_watcher() = default;
};

// -- events -----------------------------------------------------------------------------------------------------------

struct start_event {};  ///< to a rank: it begins
struct arrival_event {  ///< to a rank: a message has come
  std::uint32_t message;
};
struct work_event {  ///< to a rank: the work of a lane's step has ended
  std::int32_t lane;
};
struct access_event {  ///< to a rank: an access of its lane to others' memory has ended
  std::int32_t lane;
};
struct compute_event {  ///< to a rank: a block of its computation has ended
  std::int32_t block;
};
struct loss_event {};  ///< to a rank: its process ends, or stops
struct
    word_event {  ///< to a rank, where a rank has been lost: what the membership and the ranks say to each other takes time then
  std::uint32_t word;
};
struct head_event {  ///< to an element: a message's head comes
  std::uint32_t message;
};
struct
    done_event {  ///< to a fair element: its next message is done, unless the members have changed since; to the first max_min
                  ///< element: look at the flows
  std::uint64_t generation;
  element_index element;
  std::int32_t unused = 0;  ///< no bytes between messages' members
};

/// Has the processor fetch memory that will be needed soon. Not a promise.
inline void fetch_lines(const void* at, int lines) {
  for (int i = 0; i < lines; ++i) __builtin_prefetch(static_cast<const std::byte*>(at) + 64 * i);
}

/// What a rank hears of.
class rank_events {
public:
  virtual void handle(start_event) = 0;
  virtual void handle(arrival_event) = 0;
  virtual void handle(work_event) = 0;
  virtual void handle(access_event) = 0;
  virtual void handle(compute_event) = 0;
  virtual void handle(loss_event) = 0;
  virtual void handle(word_event) = 0;

  /// A message comes in `n` events or so. The memory that it touches then is prefetched in steps, each of which needs what the one before fetched.
  void expect(arrival_event e, int n) {
    if (n == virtual_scheduler::farthest_look) fetch_lines(this, 3);
    else if (n < 6) expect_arrival(e.message, n);
  }

protected:
  virtual void expect_arrival(std::uint32_t /*message*/, int /*n*/) {}
  ~rank_events() = default;
};

/// The receiver of a rank's events: a state, by calls, or an actor of CAF's. Refers to it, and owns nothing.
class rank_address {
public:
  rank_address() = default;
  rank_address(std::nullptr_t) {}
  rank_address(rank_events& state, std::uint32_t number) : state_(&state), number_(number) {}
  rank_address(const caf::actor& actor) : actor_(caf::actor_cast<caf::abstract_actor*>(actor)) {}

  template <class Message>
  void later(virtual_scheduler& time, std::int64_t when, const Message& what) const {
    if (state_ != nullptr) time.tell(when, *state_, number_, what);
    else time.at(when, *actor_, what);
  }

private:
  rank_events* state_ = nullptr;
  caf::abstract_actor* actor_ = nullptr;
  std::uint32_t number_ = 0;
};

// -- state ------------------------------------------------------------------------------------------------------------

inline constexpr std::uint32_t no_message = 0xffffffffu;
inline constexpr std::uint32_t no_connection = 0xffffffffu;

/// One cache line: where everybody sends to everybody there are millions, and each is needed twice.
struct alignas(64) connection {
  static constexpr std::size_t short_way = 4;

  rank_t from = -1, to = -1;
  std::int32_t lane = 0;  ///< channel × lanes per channel + lane
  std::uint32_t part = 0;
  std::uint32_t sent = 0, consumed = 0, credited = 0;  ///< credited: consumed, and the sender has heard of it
  std::uint32_t arrived = no_message;                  ///< not consumed yet, in order of their numbers
  std::uint32_t held = no_message;                     ///< not yet under way because of the window, in order
  std::uint16_t window = 0;                            ///< messages under way at once; 0: no limit
  std::uint16_t under_way = 0;                         ///< if there is a window
  std::uint16_t hops = 0;
  bool sender_waits = false;            ///< for a credit (players)
  std::uint32_t delays = 0;             ///< index into the traffic's
  element_index elements[short_way]{};  ///< the way; of a longer one the first is where it begins among the traffic's
};
static_assert(sizeof(connection) == 64);

struct virtual_message {
  std::int64_t arrival = 0;  ///< at the destination, as far as known
  std::int64_t sent = 0;
  std::int64_t flow = 0;
  std::int64_t behind = 0;  ///< latency from the present hop's tail to the destination
  std::uint64_t payload = 0, wire = 0;
  std::uint32_t connection = 0;
  std::uint32_t number = 0;  ///< 0, 1, 2 … of the connection
  std::uint32_t next = no_message;
  std::uint16_t hop = 0;         ///< that its head has come to
  std::uint16_t unfinished = 0;  ///< fair elements and flows that still serve it
  std::uint16_t run : 15 = 0;    ///< so many max_min elements from `hop` on its head passes at present
  std::uint16_t early : 1 = 0;   ///< its arrival_event may come before it arrives
  std::uint32_t served = 0;      ///< fair elements that serve it, where departures are no events: a bit a hop
  std::int32_t access = -1;      ///< an access to memory: by which of the rank's lanes, channel × lanes + lane
};

class traffic {
public:
  /// @pre the hardware, and the receivers, outlive it; at most one of them is not null
  traffic(const hardware& on, virtual_scheduler& time, recorder* record, element_watcher* watcher = nullptr);
  ~traffic();

  // -- before the run --

  /// A score whose ranks are those of `on`: the hardware itself, or part_of() it. Returns the part's number.
  /// @pre the score and `on` outlive the traffic; all parts are added before set_up()
  std::uint32_t add(const lazy_sizes& sizes, const hardware& on, const protocol_costs& protocol);
  /// Single messages between these pairs of ranks, on one lane. @pre `on` outlives the traffic; sorted, each pair once
  std::uint32_t add(const std::vector<std::pair<rank_t, rank_t>>& pairs, const hardware& on,
                    const protocol_costs& protocol);
  /// The order of those at one time: it matters where queues or ranks take what came first. If not, fair elements may cost fewer events.
  enum class ties : std::uint8_t { matter, are_free };
  void set_up(ties between = ties::matter);
  /// A part of the same connections, with messages of its own: the same call once more, while the first is under way. Also after
  /// set_up(): it passes elements as `part` does. The caller makes room in `ranks`. Cost: a copy of the part's tables.
  std::uint32_t add_again(std::uint32_t part);
  std::size_t rank_count() const { return ranks_; }  ///< of all parts

  // -- ranks --

  std::vector<rank_address> ranks;  ///< of all parts, one part after the other; set by their maker
  /// Where a part's ranks begin there.
  std::size_t first_rank(std::uint32_t part) const { return parts_[part].first_rank; }

  /// The connection of `rank`'s lane from or to `peer`. `hint` remembers the place between calls. @pre the score has it
  std::uint32_t incoming(std::uint32_t part, rank_t rank, int channel, int lane, rank_t peer,
                         std::uint32_t& hint) const {
    return find(parts_[part], parts_[part].in, rank, channel, lane, peer, hint);
  }
  std::uint32_t outgoing(std::uint32_t part, rank_t rank, int channel, int lane, rank_t peer,
                         std::uint32_t& hint) const {
    return find(parts_[part], parts_[part].out, rank, channel, lane, peer, hint);
  }

  /// The next message in order, or nullptr.
  const virtual_message* front(std::uint32_t at) const {
    const connection& c = connections_[at];
    if (c.arrived == no_message || messages_[c.arrived].number != c.consumed) return nullptr;
    return &messages_[c.arrived];
  }
  void consume(std::uint32_t at);
  /// Returns the message.
  std::uint32_t send(std::uint32_t at, std::uint64_t bytes);

  /// Is there a credit? If not, credit() says when to look again. For players: the states of a real run keep count themselves.
  bool can_send(std::uint32_t at) {
    connection& c = connections_[at];
    if (c.sent - c.credited < parts_[c.part].credits) return true;
    c.sender_waits = true;
    return false;
  }
  /// The sender gets the credit of the next consumed message. Returns whether it waits for it.
  bool credit(std::uint32_t at) {
    connection& c = connections_[at];
    ++c.credited;
    return std::exchange(c.sender_waits, false);
  }
  /// Has an arrival_event come before the message? Then it gets another one.
  bool is_early(std::uint32_t message) { return messages_[message].early != 0 && ask(message); }
  /// A message whose arrival_event has come, and not early; returns its connection.
  std::uint32_t arrived(std::uint32_t message);
  const connection& at(std::uint32_t index) const { return connections_[index]; }

  /// `rank`'s lane reads or writes `bytes` of another rank's memory, or of the shared segment; an access_event tells the end.
  void access(std::uint32_t part, rank_t rank, std::int32_t lane, memory_place at, bool writes, std::uint64_t bytes);

  // -- switches that reduce (score.hpp, "Switches") --

  /// The switches that own a part's lanes and cells. Their numbers are those of the score.
  const seat_map& seats(std::uint32_t part) const { return *parts_[part].seats; }
  /// Number of a score's switch in the hardware.
  int switch_of(std::uint32_t part, std::int32_t which) const {
    return parts_[part].switches[static_cast<std::size_t>(which)];
  }
  /// At the seat of one of its lanes: `bytes` pass the link between the rank and the switch; an access_event tells the lane the end.
  /// @param since when they were there: the protocol's latency counts from then
  void exchange(std::uint32_t part, rank_t rank, std::int32_t lane, std::int32_t which, bool towards,
                std::uint64_t bytes, std::int64_t since);

  /// Occupies an element with a rank's own work; returns when that is done. `element` may be no_element: `alone` from now.
  std::int64_t work(element_index element, std::int64_t alone, std::uint64_t bytes);

  // -- elements --

  void handle(head_event e) {
    if (messages_[e.message].run > 0) begin_flow(e.message);
    else pass(e.message, time_.now());
  }
  void handle(done_event e);
  void expect(head_event e, int n) const {
    if (n == 6) expect_message(e.message);
    else if (n == 4) expect_connection(e.message);
    else if (n == 2) expect_elements(e.message);
  }

  // -- fetching what will be touched soon; each needs what the one before fetched --

  void expect_message(std::uint32_t index) const { fetch_lines(&messages_[index], 2); }
  void expect_connection(std::uint32_t index) const { fetch_lines(&connections_[messages_[index].connection], 1); }
  void expect_elements(std::uint32_t index) const {
    const virtual_message& m = messages_[index];
    const connection& c = connections_[m.connection];
    if (c.hops > connection::short_way) return;
    for (std::uint16_t h = m.hop; h < c.hops; ++h) {
      const auto element = static_cast<std::size_t>(c.elements[h]);
      fetch_lines(&elements_[element], 2);
      if (!fair_.empty()) fetch_lines(&fair_[element], 1);
    }
  }
  /// Of a message that will have arrived.
  const connection& connection_of(std::uint32_t message) const { return connections_[messages_[message].connection]; }

  // -- afterwards --

  std::vector<element_use> use() const;
  std::uint64_t messages_sent() const { return sent_; }
  std::uint64_t payload_sent() const { return payload_sent_; }
  virtual_scheduler& time() { return time_; }
  const hardware& on() const { return on_; }

private:
  struct peer_entry {
    rank_t peer;
    std::uint32_t connection;
  };
  /// Peers of every (rank, lane of the score), sorted.
  struct peer_table {
    large_vector<std::uint32_t> begins;  ///< rank × lanes + lane
    large_vector<peer_entry> entries;
  };
  struct part {
    const hardware* on;  ///< its ranks' ways
    int lanes, channels;
    std::uint32_t credits;
    std::uint64_t wire, payload;
    std::int64_t latency;  ///< the protocol's
    peer_table out{}, in{};
    std::uint32_t per_channel = 0;  ///< connections of one channel
    std::size_t first_rank = 0;
    std::uint32_t first_connection = 0;
    int ranks = 0;
    std::shared_ptr<const seat_map> seats = no_seats();
    std::vector<int> switches{};  ///< of the hardware, by switch of the score
  };
  static std::shared_ptr<const seat_map> no_seats();
  /// What whole ways have in common.
  struct way_delays {
    std::int64_t latency = 0;    ///< of all elements, and of the protocol
    std::int64_t handshake = 0;  ///< before a message enters
    bool operator==(const way_delays&) const = default;
  };
  /// The only message that an element serves. When it will depart if nobody joins it is known from the beginning. If it is the only one on all
  /// elements that serve it, so is its arrival, which is told (`told`): its departures are nobody's business then, and a later one finds
  /// that they are over, or makes the arrival early.
  struct only_one {
    std::int64_t joined_at = 0, due = 0;
    fair_state::visit who{no_message};
    bool told = false;
  };
  /// The first cache line is all that a message needs which shares nothing.
  struct alignas(64) fair_part {
    explicit fair_part(std::pmr::memory_resource* memory) : members(memory) {}

    only_one only;                 ///< then there are no members; only if departures are no events
    std::uint64_t generation = 0;  ///< of the next departure's event
    std::int64_t busy_since = 0;   ///< of members
    std::uint32_t count = 0;       ///< of members
    alignas(64) fair_state members;
  };

  /// A message on the max_min elements that follow one another on its way.
  struct flow_data {
    std::uint32_t message = no_message;
    std::uint32_t first = 0, count = 0;  ///< hops
    std::int64_t begin = 0;
    std::int64_t behind = 0;  ///< the last one of them
  };
  static constexpr std::uint32_t no_fault = 0xffffffffu;
  /// What a message that passes needs of it: two cache lines.
  struct alignas(64) element_data {
    fifo_state queue;
    std::int64_t latency = 0, overhead = 0;
    std::uint64_t time_per_byte = 0;  ///< picoseconds, if that is a whole number
    bool fair = false;                ///< it has a fair_part
    bool cut_through = true;
    max_min_state::index shared = max_min_state::none;  ///< of flows_
    element_use use;
    std::uint64_t memo_bytes = ~std::uint64_t{0};  ///< of the last occupancy
    std::int64_t memo_time = 0;
    std::uint64_t rate = 0;
    std::int32_t slow_down = 1000;
    std::uint32_t first_fault = no_fault;  ///< of the hardware's, where all of an element stand together

    /// A byte takes so many picoseconds ÷ `rate`; slow_down is in thousandths.
    std::uint64_t a_byte() const { return std::uint64_t{1'000'000'000} * static_cast<std::uint32_t>(slow_down); }
    double bytes_per_picosecond() const { return static_cast<double>(rate) * 1e-9 / slow_down; }
  };
  static_assert(sizeof(element_data) == 128);
  /// What is asked of an element that a message will only come to: apart, so that nobody waits for the rest of it.
  struct element_mark {
    std::uint32_t number : 30 = 0;  ///< by the order of first events; 0: none yet
    std::uint32_t follows : 1 = 0;  ///< is reserved together with the hop before
    std::uint32_t shadow : 1 = 0;   ///< fair, and at any time what the hop before it was a moment ago
  };

  part new_part(int ranks, int lanes, int channels, const hardware& on, const protocol_costs& protocol);
  std::uint32_t keep(part&& p);
  void find_connections(part& p, const lazy_sizes& sizes);
  void index_receivers(part& p) const;
  void find_ways(const part& p, std::size_t first);
  void find_choices(const part& p, std::size_t connection);
  void choose_way(std::uint32_t message);
  void set_up_elements();
  void find_followers();
  void find_shadows();
  bool may_skip_events(ties between) const;
  bool serves_alike(element_index a, element_index b) const;
  static std::uint32_t find(const part& of, const peer_table& in, rank_t rank, int channel, int lane, rank_t peer,
                            std::uint32_t& hint);
  std::int64_t occupancy(element_data& e, std::uint64_t bytes);
  /// Of a fifo element. `begin`: from when on it works for it, later than `start` if it is down then.
  struct passage {
    std::int64_t start, begin, end;
  };
  passage reserve(element_data& e, std::int64_t head, std::int64_t alone) {
    if (e.first_fault != no_fault) [[unlikely]]
      return reserve_disturbed(e, head, alone);
    const auto served = e.queue.reserve(head, alone);
    return {served.start, served.start, served.end};
  }
  passage reserve_disturbed(element_data& e, std::int64_t head, std::int64_t alone);
  std::uint32_t new_message();
  void enter(std::uint32_t message);
  void pass(std::uint32_t message, std::int64_t head);
  void join(const fair_state::visit& who, element_index element, std::int64_t now);
  void plan_departure(element_index element);
  void depart(element_index element);
  void departed(element_index element, const fair_state::departure& how);
  void make_room(element_index element);
  void catch_up(element_index element);
  void depart_only(element_index element);
  void to_member(element_index element);
  void take_back(std::uint32_t message);
  bool ask(std::uint32_t message);
  fair_part& fair_of(element_index element) { return fair_[static_cast<std::size_t>(element)]; }
  /// For each hop whose element serves it; these may become fewer meanwhile.
  template <class Do>
  void for_served(const virtual_message& m, Do&& what) {
    const element_index* const way = way_of(connections_[m.connection]);
    for (std::uint32_t left = m.served; left != 0; left &= left - 1) {
      const int hop = std::countr_zero(left);
      what(static_cast<std::size_t>(hop), way[hop]);
    }
  }
  void enter_shared(std::uint32_t message, std::int64_t head);
  void begin_flow(std::uint32_t message);
  void end_flow(max_min_state::index flow);
  void on_flows();
  void plan_flows();
  void arrive(const virtual_message& m, std::uint32_t index);
  /// An event of an element. Elements have no order to keep among themselves, so that the traffic is told for all. The trace has them
  /// by the order of their first events, so that it does not depend on how a machine lists its elements.
  template <class Event>
  void tell(std::int64_t when, element_index element, const Event& what) {
    element_mark& e = marks_[static_cast<std::size_t>(element)];
    if (e.number == 0) e.number = ++numbered_ & 0x3fffffffu;
    time_.tell(when, *this, ~std::uint32_t{e.number}, what);
  }
  std::uint32_t access_way(std::uint32_t part, rank_t rank, memory_place at, bool writes);
  void find_switches(part& p, const score& notes) const;
  bool route_by_switch(const part& p, const connection& c, std::vector<element_index>& way) const;
  std::uint32_t exchange_way(std::uint32_t part, rank_t rank, int which, bool towards);
  /// @param passed of the latency behind the last element, already
  void begin_access(std::uint32_t part, rank_t rank, std::int32_t lane, std::uint32_t by, std::uint64_t bytes,
                    std::int64_t passed = 0);
  void add_hops(connection& c, const std::vector<element_index>& way, std::int64_t behind, std::int64_t handshake);
  std::uint32_t delays_index(const way_delays& of);
  const element_index* way_of(const connection& c) const {
    return c.hops <= connection::short_way ? c.elements : &long_ways_[static_cast<std::size_t>(c.elements[0])];
  }
  /// Of a message that is not there yet: its present choice. Where routing is fixed, one comparison.
  const element_index* way_of(std::uint32_t message, const connection& c) const {
    return choices_.empty() || taken_[message] == fixed_way ? way_of(c) : &choice_ways_[taken_[message]];
  }
  const way_delays& delays_of(const connection& c) const { return delays_[c.delays]; }
  element_data& data_of(element_index element) { return elements_[static_cast<std::size_t>(element)]; }

  virtual_scheduler& time_;
  const hardware& on_;
  /// Of a message on `c`, or (null) of a rank's own work. @pre noted_
  void note_occupied(element_index element, const connection* c, const virtual_message* m, std::int64_t begin,
                     std::int64_t end, std::uint64_t bytes, std::int64_t queued);

  recorder* record_;
  element_watcher* watcher_;
  bool noted_;  ///< by one of the two
  std::vector<part> parts_;
  std::size_t ranks_ = 0;       ///< of all parts
  bool shares_memory_ = false;  ///< a score touches others' memory
  std::unordered_map<std::uint64_t, std::uint32_t>
      access_ways_;  ///< by rank among all parts', owner and direction; only looked up, never walked
  large_vector<connection> connections_;
  std::vector<element_index> long_ways_;
  std::vector<way_delays> delays_;  ///< all that differ: few, as machines are regular
  /// Adaptive routing: the ways that a connection's messages may take, all of as many elements, beginning with the fixed one.
  struct choice_data {
    std::vector<std::uint32_t> ways;  ///< where each begins among choice_ways_
    std::uint16_t common = 0;         ///< elements that all of them begin with
  };
  static constexpr std::uint32_t fixed_way = 0xffffffffu;
  std::vector<choice_data> choices_;  ///< by connection; empty: routing is fixed
  std::vector<element_index> choice_ways_;
  std::vector<std::uint32_t> taken_;  ///< by message, if there are choices: which of the ways, or fixed_way
  large_vector<element_data> elements_;
  std::vector<element_mark> marks_;  ///< by element
  std::unique_ptr<run_memory> fair_memory_;
  large_vector<fair_part> fair_;  ///< by element, if there are fair ones
  bool skips_events_ = false;     ///< of fair elements
  max_min_state flows_;
  std::vector<flow_data> flow_data_;  ///< by flow
  std::vector<max_min_state::index> flow_way_;
  std::int64_t flows_due_ = max_min_state::never;  ///< of the next event that looks at the flows
  element_index first_shared_ = no_element;        ///< who gets that event
  large_vector<virtual_message> messages_;
  std::uint32_t free_message_ = no_message;
  std::uint32_t numbered_ = 0;  ///< elements
  std::uint64_t sent_ = 0, payload_sent_ = 0;
};

}  // namespace troupe::actors

TROUPE_BEGIN_MESSAGES(troupe_virtual, 100)
TROUPE_LOCAL_MESSAGE(troupe_virtual, troupe::actors::start_event)
TROUPE_LOCAL_MESSAGE(troupe_virtual, troupe::actors::arrival_event)
TROUPE_LOCAL_MESSAGE(troupe_virtual, troupe::actors::work_event)
TROUPE_LOCAL_MESSAGE(troupe_virtual, troupe::actors::compute_event)
TROUPE_LOCAL_MESSAGE(troupe_virtual, troupe::actors::access_event)
TROUPE_LOCAL_MESSAGE(troupe_virtual, troupe::actors::loss_event)
TROUPE_LOCAL_MESSAGE(troupe_virtual, troupe::actors::word_event)
TROUPE_END_MESSAGES(troupe_virtual)
