// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/offload_run.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <variant>

#include "actors/elements/offload/offload_nic.hpp"
#include "actors/virtual/event_queue.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
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
  /// @param root whose hash buffers' fill is asked for
  nic_world(const std::vector<virtual_job>& jobs, const hardware& on, const std::vector<std::int64_t>& skew, int root,
            const virtual_jobs_options& options)
      : on_(on), path_(*on.nics), skew_(skew), root_(root), options_(options) {
    if (jobs.size() > std::size_t{offload::most_jobs})
      throw error(errc::bad_config, "where NICs perform there are at most " + std::to_string(offload::most_jobs) +
                                        " jobs, those by hosts among them; there are " + std::to_string(jobs.size()));
    for (const virtual_job& j : jobs) add(j);
    outcome_.use.resize(on.elements.size());
    outcome_.finished.resize(static_cast<std::size_t>(on.ranks), 0);
    free_.resize(on.elements.size(), 0);
    memory_.resize(static_cast<std::size_t>(on.ranks), no_element);
    for (std::size_t e = 0; e < on.elements.size(); ++e)
      if (on.classes[on.elements[e].of].name == "memory")
        memory_[static_cast<std::size_t>(on.elements[e].rank)] = static_cast<element_index>(e);
    for (const element_class& c : on.classes)
      if (c.name == "nic") network_ = 2 * c.latency.count();
    each_ = 1 + jobs_.size();
    performers_.resize(each_ * static_cast<std::size_t>(on.ranks));
  }

  virtual_jobs_outcome run() {
    for (std::uint32_t j = 0; j < jobs_.size(); ++j) events_.push(jobs_[j].of->start, {kind::round, j, 0});
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
      throw error(errc::message_lost, "the NICs wait for each other, and " + plural(open_, "job") + " never " +
                                          (open_ == 1 ? "ends" : "end"));
    return conclude();
  }

private:
  enum class kind : std::uint8_t { round, post, unit, enter, head, arrive, respond, deadline };
  struct event {
    kind what;
    std::uint32_t a = 0, b = 0;
  };
  struct performer {
    std::unique_ptr<offload_nic> state;
    std::int32_t node = 0;
    bool is_nic = true;  ///< else a process
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

  void add(const virtual_job& j) {
    job_state made{&j, {}};
    std::vector<offload::endpoint> places;
    for (const int node : j.ranks) places.push_back({static_cast<std::uint32_t>(node), 0});
    for (const virtual_call& c : j.calls) {
      if (c.shape.element_size > path_.packet)
        throw error(errc::bad_config,
                    "nics.packet is less than an element of " + std::to_string(c.shape.element_size) + " bytes");
      auto& programs = made.programs.emplace_back();
      for (const offload::rank_program& p :
           offload::compile(*c.notes, c.shape, {c.options.protocol.slots, places, path_.packet / c.shape.element_size}))
        programs.push_back(std::make_shared<const offload::rank_program>(p));
    }
    ++open_;
    jobs_.push_back(std::move(made));
  }

  offload_config config_of(int node, bool is_nic) const {
    offload_config c;
    c.node = static_cast<std::uint32_t>(node);
    c.units = is_nic ? path_.units : 1;
    c.buffer_bytes = is_nic ? path_.buffer : host_packets * path_.packet;
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

  bool by_nics(std::uint32_t job) const { return jobs_[job].of->by_nics; }
  /// Of a node: its NIC, then a process of each job that hosts perform.
  std::uint32_t performer_of(std::uint32_t node, std::uint32_t job) const {
    return node * static_cast<std::uint32_t>(each_) + (by_nics(job) ? 0 : 1 + job);
  }
  performer& at(std::uint32_t p) {
    if (!performers_[p]) {
      performer made;
      made.node = static_cast<std::int32_t>(p / each_);
      made.is_nic = p % each_ == 0;
      made.state = std::make_unique<offload_nic>(config_of(made.node, made.is_nic));
      made.busy.resize(static_cast<std::size_t>(made.state->config().units), false);
      performers_[p] = std::make_unique<performer>(std::move(made));
    }
    return *performers_[p];
  }

  // -- jobs --

  /// Of a job's collective that its packets and postings belong to: they are numbered from 1 on, round after round.
  const virtual_call& call_of(const offload_job& job) const {
    const std::vector<virtual_call>& calls = jobs_[job.id].of->calls;
    return calls[(job.epoch - 1) % calls.size()];
  }
  bool reduces(const offload_job& job) const { return is_reduction(call_of(job).notes->what); }

  void begin_round(std::uint32_t number) {
    job_state& j = jobs_[number];
    j.began = now_;
    j.running = j.of->ranks.size();
    j.done.calls.emplace_back(j.of->calls.size(), virtual_stretch{std::numeric_limits<std::int64_t>::max(), 0});
    j.next.assign(j.of->ranks.size(), 0);
    for (std::uint32_t r = 0; r < j.of->ranks.size(); ++r) begin_call(number, r, now_);
  }

  void begin_call(std::uint32_t number, std::uint32_t rank, std::int64_t from) {
    job_state& j = jobs_[number];
    virtual_stretch& stretch = j.done.calls.back()[j.next[rank]];
    stretch.begin = std::min(stretch.begin, from);
    const std::int64_t late = skew_.empty() ? 0 : skew_[rank];
    events_.push(from + late + (by_nics(number) ? (path_.cpu + path_.io).count() : 0), {kind::post, number, rank});
  }

  void end_of(const offload_completion& c, std::int64_t later) {
    if (!c.error.empty()) throw error(errc::message_lost, c.error);
    job_state& j = jobs_[c.job.id];
    const auto rank = static_cast<std::uint32_t>(c.rank);
    const std::int64_t end = now_ + later + (by_nics(c.job.id) ? path_.io.count() : 0);
    virtual_stretch& stretch = j.done.calls.back()[j.next[rank]];
    stretch.end = std::max(stretch.end, end);
    auto& last = outcome_.finished[static_cast<std::size_t>(j.of->ranks[rank])];
    last = std::max(last, end);
    if (++j.next[rank] < j.of->calls.size()) return begin_call(c.job.id, rank, end);
    j.ended = std::max(j.ended, end);
    if (--j.running > 0) return;
    j.done.rounds.push_back({j.began, j.ended});
    if (++j.round == j.of->rounds) --open_;
    else events_.push(std::max(j.began + j.of->period, j.ended + j.of->compute), {kind::round, c.job.id, 0});
  }

  // -- events --

  void happen(const event& what) {
    switch (what.what) {
      case kind::round: return begin_round(what.a);
      case kind::post: return post(what.a, what.b);
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

  void post(std::uint32_t number, std::uint32_t rank) {
    const job_state& j = jobs_[number];
    const std::size_t next = j.next[rank];
    const virtual_call& call = j.of->calls[next];
    offload_posting p;
    p.job = {static_cast<std::uint8_t>(number), static_cast<std::uint64_t>(j.round) * j.of->calls.size() + next + 1};
    p.program = j.programs[next][rank];
    p.type = call.options.type;
    p.reduction = is_reduction(call.notes->what) ? call.options.reduction : sum;
    const std::uint32_t who = performer_of(static_cast<std::uint32_t>(j.of->ranks[rank]), number);
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
      if (!done) {
        send(who,
             later);  // it may have asked for what was refused, and nothing else need happen here before that comes
        continue;
      }
      const std::int64_t end = work_ends(p, *done);
      p.busy[u] = true;
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
  // -- costs --

  std::int64_t occupied(element_index e, std::uint64_t bytes) const { return on_.occupancy(e, bytes).count(); }

  /// A processor's work passes the node's memory, which all processes of the node share: two times in a copy, three in a sum.
  std::int64_t work_ends(const performer& p, const offload_work& done) {
    if (p.is_nic) return now_ + path_.trigger.count() + time_at(path_.unit_rate, done.bytes);
    const bool eager = reduces(done.job);
    const std::int64_t begin = now_ + (eager && done.first ? path_.soft.count() : 0);
    const std::uint64_t traffic = (eager && done.bytes > 0 ? 2 * done.bytes : 0) + (done.reduces ? 3 * done.bytes : 0);
    if (traffic == 0) return begin;
    const element_index memory = memory_[static_cast<std::size_t>(p.node)];
    return std::max(begin + time_at(path_.soft_rate, traffic),
                    serve(memory, begin, traffic) + on_.class_of(memory).latency.count());
  }
  static std::int64_t time_at(std::uint64_t rate, std::uint64_t bytes) {
    if (rate == 0) return 0;
    return static_cast<std::int64_t>(static_cast<double>(bytes) * 1e12 / static_cast<double>(rate));
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
  std::int64_t descriptors(const offload_job& job) const {
    const std::int64_t one = (path_.cpu + 2 * path_.io).count();
    if (!reduces(job)) return 2 * one + network();
    return by_nics(job.id) ? 0 : one;
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
      const offload_job job = t.what.job;
      const auto slot = keep(packets_, free_packets_, std::move(t));
      events_.push(now_ + later + (here ? 0 : descriptors(job)), {here ? kind::arrive : kind::enter, slot, 0});
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
    const bool noticed = !by_nics(t.what.job.id) && !reduces(t.what.job);
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

  virtual_jobs_outcome conclude() {
    for (job_state& j : jobs_) {
      outcome_.end_ps = std::max(outcome_.end_ps, j.ended);
      outcome_.jobs.push_back(std::move(j.done));
    }
    const auto& root = performers_[static_cast<std::size_t>(root_) * each_];
    if (root) {
      const offload_nic& nic = *root->state;
      outcome_.buffer_fill = 0;
      for (int u = 0; u < path_.units; ++u) outcome_.buffer_fill += nic.average_fill(u, now()) / path_.units;
    }
    outcome_.trace = hash_.state;
    return std::move(outcome_);
  }

  struct job_state {
    const virtual_job* of = nullptr;
    std::vector<std::vector<std::shared_ptr<const offload::rank_program>>> programs;  ///< by call, by rank
    std::vector<std::size_t> next{};  ///< by rank: the call that it is at
    std::size_t running = 0;          ///< ranks that have not ended the round
    int round = 0;
    std::int64_t began = 0, ended = 0;
    virtual_job_outcome done{};
  };

  const hardware& on_;
  const nic_collectives& path_;
  const std::vector<std::int64_t>& skew_;
  const int root_;
  const virtual_jobs_options& options_;
  std::vector<job_state> jobs_;
  std::size_t each_ = 1;                                ///< places for performers a node
  std::vector<std::unique_ptr<performer>> performers_;  ///< made when they get something to do
  std::vector<std::int64_t> free_;                      ///< by element
  std::vector<element_index> memory_;                   ///< by node
  std::int64_t network_ = 0;                            ///< L_network: half in each NIC
  event_queue<event> events_;
  std::vector<travelling> packets_;
  std::vector<offload_response> responses_;
  std::vector<std::uint32_t> free_packets_, free_responses_;
  std::int64_t now_ = 0;
  std::size_t open_ = 0;  ///< jobs that have not ended
  word_hash hash_;
  virtual_jobs_outcome outcome_;
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
        c.directions != duplex::full || c.handshake.count() != 0 || c.window != 0)
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

virtual_jobs_outcome perform_jobs_by_nics(const std::vector<virtual_job>& jobs, const hardware& on,
                                          const virtual_jobs_options& options) {
  const int root = jobs.empty() || jobs.front().ranks.empty() ? 0 : jobs.front().ranks.front();
  return nic_world{jobs, on, {}, root, options}.run();
}

virtual_outcome perform_by_nics(const score& notes, const call_shape& shape, const hardware& on,
                                const virtual_options& options) {
  if (const std::string why = why_not_by_nics(on, {}, options); !why.empty()) throw error(errc::unsupported, why);
  virtual_job alike;
  for (int r = 0; r < on.ranks; ++r) alike.ranks.push_back(r);
  alike.calls.push_back({&notes, shape, {}, options});
  alike.by_nics = on.nics->offload;
  virtual_jobs_outcome all = nic_world{
      std::vector(static_cast<std::size_t>(on.nics->jobs), alike),
      on,
      options.skew,
      notes.root,
      {options.go_on,
       options.context}}.run();
  virtual_outcome made;
  made.end_ps = all.end_ps;
  made.use = std::move(all.use);
  made.steps = all.steps;
  made.messages = all.messages;
  made.payload_bytes = all.payload_bytes;
  made.events = all.events;
  made.buffer_fill = all.buffer_fill;
  made.by_states = true;
  made.trace = all.trace;
  made.finished = std::move(all.finished);
  return made;
}

}  // namespace troupe
