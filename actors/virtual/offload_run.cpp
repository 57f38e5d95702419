// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/offload_run.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "actors/elements/offload/offload_nic.hpp"
#include "actors/virtual/event_queue.hpp"
#include "memory/error.hpp"
#include "memory/word_hash.hpp"
#include "protocols/offload/offload_compiler.hpp"

namespace troupe {

namespace {

using namespace actors;

/// Events between two looks whether to go on.
constexpr std::uint64_t look_every = 4096;
/// Packets that a process on the host has room for: more than its channels may have under way at a time in a collective.
constexpr std::size_t host_packets = 1024;

class nic_world {
public:
  nic_world(const score& notes, const call_shape& shape, const hardware& on, const virtual_options& options)
      : notes_(notes), on_(on), path_(*on.nics), options_(options) {
    if (shape.element_size > path_.packet)
      throw error(errc::bad_config,
                  "nics.packet is less than an element of " + std::to_string(shape.element_size) + " bytes");
    const auto compiled =
        offload::compile(notes, shape, {options.protocol.slots, {}, path_.packet / shape.element_size});
    for (const offload::rank_program& p : compiled)
      programs_.push_back(std::make_shared<const offload::rank_program>(p));
    outcome_.use.resize(on.elements.size());
    outcome_.finished.resize(static_cast<std::size_t>(on.ranks), 0);
    outcome_.by_states = true;
    free_.resize(on.elements.size(), 0);
    memory_.resize(static_cast<std::size_t>(on.ranks), no_element);
    for (std::size_t e = 0; e < on.elements.size(); ++e)
      if (on.classes[on.elements[e].of].name == "memory")
        memory_[static_cast<std::size_t>(on.elements[e].rank)] = static_cast<element_index>(e);
    for (const element_class& c : on.classes)
      if (c.name == "nic") network_ = 2 * c.latency.count();
    make_performers();
  }

  virtual_outcome run() {
    post_all();
    while (!events_.empty()) {
      const auto [time, what] = events_.pop();
      now_ = time;
      note(what);
      if (++outcome_.events % look_every == 0 && options_.go_on && !options_.go_on(options_.context, outcome_.events))
        throw error(errc::cancelled, "interrupted");
      happen(what);
      if (open_ == 0) break;
    }
    if (open_ > 0)
      throw error(errc::message_lost,
                  "the NICs wait for each other, and " + std::to_string(open_) + " parts never end");
    return conclude();
  }

private:
  enum class kind : std::uint8_t { post, unit, enter, head, arrive, respond, deadline };
  struct event {
    kind what;
    std::uint32_t a = 0, b = 0;
  };
  struct performer {
    std::unique_ptr<offload_nic> state;
    std::int32_t node = 0;
    std::vector<bool> busy;
    std::int64_t deadline = -1;  ///< the earliest event; −1: none
  };
  struct travelling {
    offload_packet what;
    std::int64_t head = 0, tail = 0;
    std::vector<element_index> way;
    std::size_t at = 0;
  };

  // -- set-up --

  offload_config config_of(int node) const {
    offload_config c;
    c.node = static_cast<std::uint32_t>(node);
    c.units = path_.offload ? path_.units : 1;
    c.buffer_bytes = path_.offload ? path_.buffer : host_packets * path_.packet;
    c.packet_bytes = path_.packet;
    c.window = static_cast<std::size_t>(path_.window);
    c.reduction_elements = path_.reduction_elements;
    c.pulses = path_.pulses;
    c.counters = path_.counters;
    c.longest_counter_wait =
        std::chrono::seconds{1000};  // nothing is lost here, and jobs are told to wait as long as they must
    c.most_sequences = std::size_t{1} << 19;
    c.carries = false;
    return c;
  }

  void make_performers() {
    each_ = path_.offload ? 1 : path_.jobs;
    for (int node = 0; node < on_.ranks; ++node)
      for (int i = 0; i < each_; ++i) {
        performer p;
        p.state = std::make_unique<offload_nic>(config_of(node));
        p.node = node;
        p.busy.resize(static_cast<std::size_t>(p.state->config().units), false);
        performers_.push_back(std::move(p));
      }
  }

  std::uint32_t performer_of(std::uint32_t node, int job) const {
    return node * static_cast<std::uint32_t>(each_) + (path_.offload ? 0U : static_cast<std::uint32_t>(job));
  }
  performer& at(std::uint32_t p) { return performers_[p]; }

  void post_all() {
    const std::int64_t posting = path_.offload ? (path_.cpu + path_.io).count() : 0;
    for (std::uint32_t r = 0; r < static_cast<std::uint32_t>(on_.ranks); ++r)
      for (int job = 0; job < path_.jobs; ++job) {
        const std::int64_t late = options_.skew.empty() ? 0 : options_.skew[r];
        events_.push(late + posting, {kind::post, r, static_cast<std::uint32_t>(job)});
        ++open_;
      }
  }

  // -- events --

  void happen(const event& what) {
    switch (what.what) {
      case kind::post: return post(what.a, static_cast<int>(what.b));
      case kind::unit: return unit_is_free(what.a, what.b);
      case kind::enter: return enter(what.a);
      case kind::head: return head(what.a);
      case kind::arrive: return arrive(what.a);
      case kind::respond: return respond(what.a);
      case kind::deadline: return deadline(what.a);
    }
  }

  void note(const event& what) {
    hash_.add(static_cast<std::uint64_t>(now_));
    hash_.add(static_cast<std::uint64_t>(what.what) << 56 | std::uint64_t{what.a} << 28 | what.b);
  }
  picoseconds now() const { return picoseconds{now_}; }

  void post(std::uint32_t rank, int job) {
    offload_posting p;
    p.job = {static_cast<std::uint8_t>(job), 1};
    p.program = programs_[rank];
    p.type = options_.type;
    p.reduction = is_reduction(notes_.what) ? options_.reduction : sum;
    const std::uint32_t who = performer_of(rank, job);
    if (const std::string why = at(who).state->post(p); !why.empty())
      throw error(errc::unsupported, "rank " + std::to_string(rank) + "'s NIC refuses: " + why);
    settle(who, 0);
  }

  void unit_is_free(std::uint32_t who, std::uint32_t unit) {
    at(who).busy[unit] = false;
    settle(who, 0);
  }

  void deadline(std::uint32_t who) {
    at(who).deadline = -1;
    at(who).state->elapse(now());
    settle(who, 0);
  }

  /// Lets free units work, and sends what there is to send.
  void settle(std::uint32_t who, std::int64_t later) {
    performer& p = at(who);
    send(who, later);
    for (std::uint32_t u = 0; u < p.busy.size(); ++u) {
      if (p.busy[u]) continue;
      const auto done = p.state->work(static_cast<int>(u), now());
      if (!done) continue;
      const std::int64_t end = work_ends(p, *done);
      p.busy[u] = true;
      if (done->takes && path_.offload && p.node == notes_.root) reading_ += static_cast<double>(end - now_);
      events_.push(end, {kind::unit, who, u});
      ++outcome_.steps;
      send(who, end - now_);
      complete(who, end - now_);
    }
    complete(who, later);
    watch(who);
  }

  void watch(std::uint32_t who) {
    performer& p = at(who);
    const auto next = p.state->next_deadline();
    if (!next || (p.deadline >= 0 && p.deadline <= next->count())) return;
    p.deadline = std::max(now_, next->count());
    events_.push(p.deadline, {kind::deadline, who, 0});
  }

  void complete(std::uint32_t who, std::int64_t later) {
    while (const auto c = at(who).state->next_completion()) end_of(*c, later);
  }
  void end_of(const offload_completion& c, std::int64_t later) {
    if (!c.error.empty()) throw error(errc::message_lost, c.error);
    auto& finished = outcome_.finished[static_cast<std::size_t>(c.rank)];
    finished = std::max(finished, now_ + later + (path_.offload ? path_.io.count() : 0));
    --open_;
  }

  // -- costs --

  std::int64_t occupied(element_index e, std::uint64_t bytes) const { return on_.occupancy(e, bytes).count(); }

  /// A processor's work passes the node's memory, which all processes of the node share: two times in a copy, three in a sum.
  std::int64_t work_ends(const performer& p, const offload_work& done) {
    if (path_.offload) return now_ + path_.trigger.count() + unit_time(done.bytes);
    const bool eager = is_reduction(notes_.what);
    const std::uint64_t traffic = (eager && done.bytes > 0 ? 2 * done.bytes : 0) + (done.reduces ? 3 * done.bytes : 0);
    if (traffic == 0) return now_;
    const element_index memory = memory_[static_cast<std::size_t>(p.node)];
    return serve(memory, now_, traffic) + on_.class_of(memory).latency.count();
  }
  std::int64_t unit_time(std::uint64_t bytes) const {
    if (path_.unit_rate == 0) return 0;
    return static_cast<std::int64_t>(static_cast<double>(bytes) * 1e12 / static_cast<double>(path_.unit_rate));
  }

  /// First in, first out. Returns when it is through.
  std::int64_t serve(element_index e, std::int64_t from, std::uint64_t bytes) {
    auto& free = free_[static_cast<std::size_t>(e)];
    element_use& use = outcome_.use[static_cast<std::size_t>(e)];
    const std::int64_t begin = std::max(from, free), busy = on_.class_of(e).overhead.count() + occupied(e, bytes);
    use.queued_ps += begin - from;
    use.busy_ps += busy;
    use.bytes += bytes;
    ++use.messages;
    return free = begin + busy;
  }

  /// What comes before a packet enters the way, besides the network.
  std::int64_t descriptors() const {
    const std::int64_t one = (path_.cpu + 2 * path_.io).count();
    if (!is_reduction(notes_.what)) return 2 * one + network();
    return path_.offload ? 0 : one;
  }
  std::int64_t network() const { return network_; }

  // -- the way --

  void send(std::uint32_t who, std::int64_t later) {
    offload_nic& nic = *at(who).state;
    while (auto r = nic.next_response()) {
      const auto slot = keep(responses_, free_responses_, *r);
      events_.push(now_ + later + network(), {kind::respond, slot, 0});
    }
    while (auto p = nic.next_packet(now())) {
      ++outcome_.messages;
      outcome_.payload_bytes += p->bytes;
      travelling t;
      on_.route(static_cast<int>(p->on.source_node), static_cast<int>(p->on.dest_node), 0, t.way);
      t.what = std::move(*p);
      if (t.what.on.source_node == t.what.on.dest_node) t.way.clear();
      const bool here = t.way.empty();
      const auto slot = keep(packets_, free_packets_, std::move(t));
      events_.push(now_ + later + (here ? 0 : descriptors()), {here ? kind::arrive : kind::enter, slot, 0});
    }
  }

  template <class T>
  static std::uint32_t keep(std::vector<T>& all, std::vector<std::uint32_t>& free, T what) {
    if (free.empty()) {
      all.push_back(std::move(what));
      return static_cast<std::uint32_t>(all.size() - 1);
    }
    const std::uint32_t slot = free.back();
    free.pop_back();
    all[slot] = std::move(what);
    return slot;
  }

  void enter(std::uint32_t slot) {
    packets_[slot].tail = now_;
    head(slot);
  }

  /// Its head has come to the next element of its way. Cut-through: it goes on after the latency, its tail follows.
  void head(std::uint32_t slot) {
    travelling& t = packets_[slot];
    const element_index e = t.way[t.at];
    const std::int64_t end = serve(e, now_, t.what.bytes), latency = on_.class_of(e).latency.count();
    const std::int64_t begin = end - occupied(e, t.what.bytes);
    t.tail = std::max(t.tail, end) + latency;
    if (++t.at < t.way.size()) return events_.push(begin + latency, {kind::head, slot, 0});
    const bool noticed = !path_.offload && !is_reduction(notes_.what);
    events_.push(t.tail + (noticed ? path_.poll.count() : 0), {kind::arrive, slot, 0});
  }

  void arrive(std::uint32_t slot) {
    offload_packet p = std::move(packets_[slot].what);
    free_packets_.push_back(slot);
    const std::uint32_t who = performer_of(p.on.dest_node, p.job.id);
    at(who).state->arrive(std::move(p), now());
    settle(who, 0);
  }

  void respond(std::uint32_t slot) {
    const offload_response r = responses_[slot];
    free_responses_.push_back(slot);
    const std::uint32_t who = performer_of(r.on.source_node, r.job.id);
    at(who).state->respond(r, now());
    settle(who, 0);
  }

  virtual_outcome conclude() {
    for (const std::int64_t f : outcome_.finished) outcome_.end_ps = std::max(outcome_.end_ps, f);
    if (path_.offload) {
      const offload_nic& root = *performers_[performer_of(static_cast<std::uint32_t>(notes_.root), 0)].state;
      // A packet has its place until it is read through.
      const double room = static_cast<double>(now_) * static_cast<double>(root.statistics().capacity) * path_.units;
      outcome_.buffer_fill = room > 0 ? reading_ / room : 0;
      for (int u = 0; u < path_.units; ++u) outcome_.buffer_fill += root.average_fill(u, now()) / path_.units;
    }
    outcome_.trace = hash_.state;
    return std::move(outcome_);
  }

  const score& notes_;
  const hardware& on_;
  const nic_collectives& path_;
  const virtual_options& options_;
  std::vector<std::shared_ptr<const offload::rank_program>> programs_;
  int each_ = 1;  ///< performers of a node
  std::vector<performer> performers_;
  std::vector<std::int64_t> free_;     ///< by element
  std::vector<element_index> memory_;  ///< by node
  std::int64_t network_ = 0;           ///< L_network: half in each NIC
  event_queue<event> events_;
  std::vector<travelling> packets_;
  std::vector<offload_response> responses_;
  std::vector<std::uint32_t> free_packets_, free_responses_;
  std::int64_t now_ = 0;
  double reading_ = 0;    ///< picoseconds that the root's units spent on packets
  std::size_t open_ = 0;  ///< parts of ranks that have not ended
  word_hash hash_;
  virtual_outcome outcome_;
};

/// Constants that are there for ranks that perform, and would do nothing here.
std::string why_not_constants(const hardware& on) {
  const host_costs& h = on.host;
  const bool times = h.launch.count() + h.step.count() + h.send.count() + h.receive.count() + h.forward.count() +
                         h.transfer.count() + h.finish.count() !=
                     0;
  if (times || h.copy_rate + h.reduce_rate != 0 || !h.receive_in_place || h.sync.count() >= 0 || h.work_uses_dma)
    return on.name + ": host.… means nothing where NICs perform; the constants are those of nics.…, nic.… and memory.…";
  for (const protocol_costs& p : on.protocols)
    if (p.latency.count() != 0 || p.wire != p.payload || p.slot_payload != 0)
      return on.name + ": of a protocol NICs have the slots alone, which are a channel's credits";
  for (const element_class& c : on.classes)
    if (c.units != 1 || c.discipline != service::fifo || c.passing != forwarding::cut_through ||
        c.directions != duplex::full || c.handshake.count() != 0 || c.logical_channels != 0)
      return on.name + ": of " + c.name + " there are latency, bandwidth and overhead; leave the rest as it is";
  return {};
}

}  // namespace

std::string why_not_by_nics(const hardware& on, const cutting& cut, const virtual_options& options) {
  const std::string where = on.name + ": NICs cut messages themselves, ";
  if (cut.channels != 1 || cut.slices != 1) return where + "so channels and slices must be 1, and chunk_bytes 0";
  if (options.carry == payload::real) return on.name + ": NICs move no bytes in virtual time; say payload = \"none\"";
  if (options.by != performed_by::automatic) return on.name + ": NICs perform; leave performed_by away";
  if (options.any_order) return on.name + ": NICs take packets in order; leave any_order away";
  if (options.compute > 0) return on.name + ": there is no computation beside what NICs perform; leave compute away";
  if (options.record != nullptr) return on.name + ": what NICs do is not recorded";
  return why_not_constants(on);
}

virtual_outcome perform_by_nics(const score& notes, const call_shape& shape, const hardware& on,
                                const virtual_options& options) {
  if (const std::string why = why_not_by_nics(on, {}, options); !why.empty()) throw error(errc::unsupported, why);
  return nic_world{notes, shape, on, options}.run();
}

}  // namespace troupe
