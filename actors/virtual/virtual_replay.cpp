// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/virtual_replay.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "actors/virtual/part_watcher.hpp"
#include "actors/virtual/virtual_performers.hpp"
#include "actors/virtual/virtual_scheduler.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe::actors {

struct operation_event {  ///< an operation of a rank begins, or ends
  std::int32_t rank;
  std::uint32_t operation;
  std::uint32_t ends;  ///< no padding: the trace is over all bytes
};
struct collective_event {  ///< all its ranks have ended
  std::uint32_t number;
};

}  // namespace troupe::actors

TROUPE_BEGIN_MESSAGES(troupe_virtual_replay, 130)
TROUPE_LOCAL_MESSAGE(troupe_virtual_replay, troupe::actors::operation_event)
TROUPE_LOCAL_MESSAGE(troupe_virtual_replay, troupe::actors::collective_event)
TROUPE_END_MESSAGES(troupe_virtual_replay)

namespace troupe {

std::string_view name(replay_operation::kind what) noexcept {
  switch (what) {
    case replay_operation::kind::calc: return "calc";
    case replay_operation::kind::send: return "send";
    case replay_operation::kind::recv: return "recv";
    case replay_operation::kind::collective: return "collective";
    case replay_operation::kind::memory: return "memory";
    case replay_operation::kind::ready: return "ready";
    case replay_operation::kind::arrived: return "arrived";
  }
  return "?";
}

namespace {

using namespace actors;
using op_kind = replay_operation::kind;

/// Sends that came and receives that are posted, at one rank. Both are taken in the order of their coming.
class matching {
public:
  /// A message has come. Returns the receive that takes it.
  std::optional<std::uint32_t> come(replay_place message, std::int64_t tag) {
    const queue* best = nullptr;
    key best_key{};
    for (const key& k :
         {key{message.rank, tag}, key{any_rank, tag}, key{message.rank, any_tag}, key{any_rank, any_tag}})
      if (const auto at = posted_.find(k);
          at != posted_.end() && (!best || at->second.front().number < best->front().number))
        best = &at->second, best_key = k;
    if (!best) {
      come_[{message.rank, tag}].push_back({count_++, message});
      return std::nullopt;
    }
    return take(posted_, best_key).operation;
  }
  /// A receive is posted. Returns the message that it takes.
  std::optional<replay_place> post(std::uint32_t receive, rank_t from, std::int64_t tag) {
    const queue* best = nullptr;
    key best_key{};
    const auto look = [&](const key& k, const queue& q) {
      if (!best || q.front().number < best->front().number) best = &q, best_key = k;
    };
    if (from != any_rank && tag != any_tag) {
      if (const auto at = come_.find({from, tag}); at != come_.end()) look(at->first, at->second);
    } else {
      for (const auto& [k, q] : come_)
        if ((from == any_rank || k.first == from) && (tag == any_tag || k.second == tag)) look(k, q);
    }
    if (best) return take(come_, best_key);
    posted_[{from, tag}].push_back({count_++, {from, receive}});
    return std::nullopt;
  }

  /// Messages that no receive has taken, in no order.
  template <class See>
  void for_unreceived(See see) const {
    for (const auto& [k, q] : come_)
      for (const entry& e : q) see(e.what);
  }

private:
  using key = std::pair<rank_t, std::int64_t>;
  struct entry {
    std::uint64_t number;
    replay_place what;
  };
  using queue = std::deque<entry>;
  static replay_place take(std::map<key, queue>& of, const key& k) {
    const auto at = of.find(k);
    const replay_place what = at->second.front().what;
    at->second.pop_front();
    if (at->second.empty()) of.erase(at);
    return what;
  }
  std::map<key, queue> come_, posted_;  ///< no queue in them is empty
  std::uint64_t count_ = 0;
};

class replay_run {
public:
  replay_run(const replay_trace& what, const hardware& on, const replay_options& o, caf::actor_system& system)
      : what_(what), on_(on), options_(o), time_(virtual_scheduler::of(system)), ways_(on, time_, nullptr, watch()) {
    ranks_.resize(what.ranks.size());
    result_.spans.resize(what.ranks.size());
    result_.ranks.resize(what.ranks.size());
    for (std::size_t r = 0; r < what.ranks.size(); ++r) prepare(r);
    add_messages();
    for (const replay_group& g : what.groups) add_group(g);
    collectives_.resize(what.collectives.size());
    pieces_.resize(what.collectives.size());
    ways_.set_up();
    ways_.ranks.resize(ways_.rank_count());
  }

  void start(const caf::actor& self) {
    self_ = self;
    for (int r = 0; r < on_.ranks; ++r) ways_.ranks[ways_.first_rank(messages_) + static_cast<std::size_t>(r)] = self;
    guarded([this] {
      for (std::size_t r = 0; r < ranks_.size(); ++r)
        for (std::uint32_t i = 0; i < operations(r).size(); ++i)
          if (ranks_[r].missing[i] == 0) ready_.push_back({static_cast<rank_t>(r), i});
    });
  }
  void stop() { self_ = nullptr, ways_.ranks.clear(); }

  void on_operation(operation_event e) {
    guarded([&] {
      if (e.ends != 0) end({e.rank, e.operation});
      else begin({e.rank, e.operation});
    });
  }
  void on_arrival(std::uint32_t message) {
    guarded([&] {
      const std::uint32_t at = ways_.arrived(message);
      while (ways_.front(at) != nullptr) {
        const replay_place sent = sender_of_[ways_.at(at).arrived];
        const rank_t to = ways_.at(at).to;
        ways_.consume(at);
        come(to, sent);
      }
    });
  }
  void on_collective(std::uint32_t number) {
    guarded([&] { close(collectives_[number], what_.collectives[number]); });
  }

  void on_access(std::int32_t number) {
    guarded([&] {
      const access& a = accesses_[static_cast<std::size_t>(number)];
      if (a.alone_until > time_.now()) time_.at(a.alone_until, self_, operation_event{a.by.rank, a.by.operation, 1});
      else end(a.by);
    });
  }

  std::exception_ptr failure() const {
    if (failure_) return failure_;
    for (const std::uint32_t number : open_)
      if (const auto& by = collectives_[number]->by; by.all && by.all->failure) return by.all->failure;
    return nullptr;
  }

  void check() const {
    for (const std::uint32_t number : open_)
      if (const auto& c = *collectives_[number]; c.entered == c.operations.size()) check_ended(c.by);
    if (left_ > 0) report_stuck();
  }

  replay_outcome outcome() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      replay_times& t = result_.ranks[r];
      for (const replay_span& s : result_.spans[r]) t.end = std::max(t.end, s.end);
      result_.end_ps = std::max(result_.end_ps, t.end);
    }
    const auto in_file = [this](replay_place o) { return std::pair{at(o).line, o.rank}; };
    replay_place first;
    for (const auto& rank : ranks_)
      rank.messages.for_unreceived([&](replay_place sent) {
        if (result_.unreceived++ == 0 || in_file(sent) < in_file(first)) first = sent;
      });
    if (result_.unreceived > 0) result_.first_unreceived = place(first);
    result_.use = ways_.use();
    result_.messages = ways_.messages_sent();
    result_.payload_bytes = ways_.payload_sent();
    result_.events = time_.events();
    result_.trace = time_.trace();
    return std::move(result_);
  }

private:
  struct rank_data {
    std::vector<std::uint32_t> missing;                 ///< by operation: what it still needs
    std::vector<std::uint32_t> begins;                  ///< by operation: of `later`
    std::vector<std::pair<std::uint32_t, bool>> later;  ///< which wait for it; whether only for its begin
    std::map<std::int32_t, fifo_state> cpus;
    matching messages{};
    // What is under way, and since when nothing of that has changed.
    std::uint32_t computing = 0, in_collectives = 0, with_messages = 0;
    std::int64_t since = 0;
    std::uint32_t hint = 0;
  };
  struct group_data {
    const replay_group* of = nullptr;
    std::unique_ptr<const hardware> seen;
    std::shared_ptr<const lazy_sizes> sizes;
    std::unordered_map<rank_t, std::uint32_t> index_of;  ///< among the group
    std::uint32_t first = 0;                             ///< its part, of which others are made again
    std::vector<std::uint32_t> free;                     ///< parts
  };
  /// An access to the shared segment.
  struct access {
    replay_place by;
    std::int64_t alone_until = 0;
  };
  /// A piece of a partitioned collective's output on a rank.
  struct output_piece {
    bool arrived = false;
    std::vector<std::uint32_t> waiting{};  ///< operations
  };
  struct collective_data {
    std::uint32_t part = 0;
    virtual_performers by{};
    std::vector<std::uint32_t> operations;  ///< by member: which of its rank's
    std::size_t entered = 0;
    replay_place last{};  ///< who came last
    std::int64_t ends = 0;
  };

  const std::vector<replay_operation>& operations(std::size_t rank) const { return what_.ranks[rank].operations; }
  const replay_operation& at(replay_place o) const { return operations(static_cast<std::size_t>(o.rank))[o.operation]; }
  rank_data& rank_of(replay_place o) { return ranks_[static_cast<std::size_t>(o.rank)]; }
  replay_span& span(replay_place o) { return result_.spans[static_cast<std::size_t>(o.rank)][o.operation]; }

  // -- before -----------------------------------------------------------------------------------------------------------

  void prepare(std::size_t r) {
    rank_data& d = ranks_[r];
    const replay_rank& from = what_.ranks[r];
    left_ += from.operations.size();
    result_.spans[r].resize(from.operations.size());
    d.missing.assign(from.operations.size(), 0);
    d.begins.assign(from.operations.size() + 1, 0);
    for (const replay_dependency& n : from.needs) ++d.missing[n.later], ++d.begins[n.earlier + 1];
    for (std::size_t i = 0; i + 1 < d.begins.size(); ++i) d.begins[i + 1] += d.begins[i];
    d.later.resize(from.needs.size());
    auto next = d.begins;
    for (const replay_dependency& n : from.needs) d.later[next[n.earlier]++] = {n.later, n.begun};
  }

  element_watcher* watch() {
    if (options_.record == nullptr) return nullptr;
    return &watcher_.emplace(*options_.record);
  }

  void add_messages() {
    std::vector<std::pair<rank_t, rank_t>> pairs;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (const replay_operation& o : operations(r))
        if (o.what == op_kind::send && o.peer != static_cast<rank_t>(r))
          pairs.emplace_back(static_cast<rank_t>(r), o.peer);
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    messages_ = ways_.add(pairs, on_, options_.protocol);
    for (int r = 0; watcher_ && r < on_.ranks; ++r) all_ranks_.push_back(r);
    if (watcher_) watcher_->add(messages_, -1, all_ranks_);
  }

  void add_group(const replay_group& of) {
    if (of.meets_ps >= 0) {
      groups_.push_back({&of, nullptr, nullptr, {}, 0, {}});
      for (std::size_t i = 0; i < of.ranks.size(); ++i)
        groups_.back().index_of.emplace(of.ranks[i], static_cast<std::uint32_t>(i));
      return;
    }
    hardware seen = part_of(on_, of.ranks, of.places);
    seen.host = of.call.host;
    group_data g{&of,
                 std::make_unique<const hardware>(std::move(seen)),
                 std::make_shared<const lazy_sizes>(*of.call.notes, of.call.shape, of.call.cut),
                 {},
                 0,
                 {}};
    check_virtual(*of.call.notes, of.call.cut, *g.seen, of.call.options);
    for (std::size_t i = 0; i < of.ranks.size(); ++i) g.index_of.emplace(of.ranks[i], static_cast<std::uint32_t>(i));
    g.first = ways_.add(*g.sizes, *g.seen, of.call.options.protocol);
    g.free.push_back(g.first);
    if (watcher_) watcher_->add(g.first, static_cast<std::int32_t>(groups_.size()), of.ranks);
    groups_.push_back(std::move(g));
  }

  // -- operations -------------------------------------------------------------------------------------------------------

  /// Handles what an event brings, and then whatever has got ready by it: a list, since chains of operations without time may be long.
  template <class Handler>
  void guarded(Handler handler) noexcept {
    if (failure_) return;
    try {
      handler();
      while (!ready_.empty()) {
        const replay_place o = ready_.front();
        ready_.pop_front();
        get_ready(o);
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void get_ready(replay_place o) {
    replay_span& s = span(o);
    s.ready = time_.now();
    const replay_operation& what = at(o);
    const host_costs& host = on_.host;
    switch (what.what) {
      case op_kind::calc: return work(o, static_cast<std::int64_t>(what.amount));
      case op_kind::send: return work(o, host.step.count() + host.send.count());
      case op_kind::recv:
        begin(o);
        if (const auto message = rank_of(o).messages.post(o.operation, what.peer, what.tag)) matched(o, *message);
        return;
      case op_kind::collective: begin(o); return enter(o);
      case op_kind::memory: begin(o); return touch(o);
      case op_kind::ready:
        begin(o);
        collective_of(o).by.all->make_ready(member_of(o), static_cast<int>(what.tag));
        return finish(o);
      case op_kind::arrived: begin(o); return await(o);
    }
  }

  /// Occupies its cpu as soon as that is free.
  void work(replay_place o, std::int64_t alone) {
    const std::int64_t now = time_.now();
    const element_index core = on_.place_of(o.rank).core;
    std::int64_t done = now;
    if (alone > 0)
      done = core != no_element ? ways_.work(core, alone, 0) : rank_of(o).cpus[at(o).cpu].reserve(now, alone).end;
    span(o).work = alone;
    if (span(o).begin < 0) {
      if (done - alone <= now) begin(o);
      else time_.at(done - alone, self_, operation_event{o.rank, o.operation, 0});
    }
    if (done == now) end(o);
    else time_.at(done, self_, operation_event{o.rank, o.operation, 1});
  }

  /// Before one of the counters of what is under way changes.
  void account(rank_t rank) {
    rank_data& d = ranks_[static_cast<std::size_t>(rank)];
    replay_times& t = result_.ranks[static_cast<std::size_t>(rank)];
    std::int64_t& into = d.computing > 0        ? t.compute
                         : d.in_collectives > 0 ? t.collective
                         : d.with_messages > 0  ? t.message
                                                : t.idle;
    into += time_.now() - d.since;
    d.since = time_.now();
  }
  /// None of what takes no time of its own.
  std::uint32_t* counter_of(replay_place o) {
    rank_data& d = rank_of(o);
    switch (at(o).what) {
      case op_kind::calc: return &d.computing;
      case op_kind::collective: return &d.in_collectives;
      case op_kind::ready:
      case op_kind::arrived: return nullptr;
      default: return &d.with_messages;
    }
  }

  void begin(replay_place o) {
    account(o.rank);
    if (std::uint32_t* const under_way = counter_of(o)) ++*under_way;
    span(o).begin = time_.now();
    release(o, true);
  }

  /// Its work has ended. A send's message leaves only now.
  void end(replay_place o) {
    if (at(o).what == op_kind::send && !leave(o)) return;
    finish(o);
  }
  void finish(replay_place o) {
    account(o.rank);
    if (std::uint32_t* const under_way = counter_of(o)) --*under_way;
    span(o).end = time_.now();
    --left_;
    release(o, false);
  }

  void release(replay_place o, bool begun) {
    rank_data& d = rank_of(o);
    for (std::uint32_t i = d.begins[o.operation]; i < d.begins[o.operation + 1]; ++i) {
      const auto [later, at_begin] = d.later[i];
      if (at_begin != begun || --d.missing[later] > 0) continue;
      span({o.rank, later}).from = o.rank;
      span({o.rank, later}).operation = o.operation;
      ready_.push_back({o.rank, later});
    }
  }

  // -- memory -----------------------------------------------------------------------------------------------------------

  /// As dma_get and dma_put of scores (virtual_rank).
  void touch(replay_place o) {
    const replay_operation& what = at(o);
    const std::int64_t alone = on_.host.transfer.count();
    span(o).work = alone;
    if (what.peer != any_rank) {
      accesses_.push_back({o, time_.now() + alone});
      return ways_.access(messages_, o.rank, static_cast<std::int32_t>(accesses_.size() - 1), {what.peer, true},
                          what.tag != 0, what.amount);
    }
    const element_index dma = on_.place_of(o.rank).dma;
    const std::int64_t done = time_of_transfer(ways_, on_, dma, what.amount) + alone;
    if (done == time_.now()) end(o);
    else time_.at(done, self_, operation_event{o.rank, o.operation, 1});
  }

  // -- messages ---------------------------------------------------------------------------------------------------------

  /// Whether the send has ended with that.
  bool leave(replay_place o) {
    const replay_operation& what = at(o);
    const bool eager = what.amount <= options_.eager_bytes;
    if (what.peer == o.rank) {
      come(o.rank, o);
      return eager;
    }
    const std::uint32_t by = ways_.outgoing(messages_, o.rank, 0, 0, what.peer, rank_of(o).hint);
    const std::uint32_t message = ways_.send(by, what.amount);
    if (message >= sender_of_.size()) sender_of_.resize(std::size_t{message} + 1);
    sender_of_[message] = o;
    return eager;
  }

  void come(rank_t to, replay_place sent) {
    const auto receive = ranks_[static_cast<std::size_t>(to)].messages.come(sent, at(sent).tag);
    if (!receive) return;
    const replay_place o{to, *receive};
    span(o).from = sent.rank;
    span(o).operation = sent.operation;
    matched(o, sent);
  }

  void matched(replay_place o, replay_place sent) {
    const std::uint64_t bytes = at(sent).amount;
    if (bytes > at(o).amount) throw error(errc::bad_config, sizes_of(o, sent) + "; a receive must have room for it");
    if (bytes < at(o).amount && ++result_.shorter == 1) result_.first_shorter = sizes_of(o, sent);
    const host_costs& host = on_.host;
    std::int64_t alone = host.step.count() + host.receive.count();
    if (!host.receive_in_place && host.copy_rate > 0)
      alone += link_parameters{std::chrono::nanoseconds{0}, host.copy_rate}.occupancy(bytes).count();
    work(o, alone);
    if (bytes > options_.eager_bytes) {
      if (span(sent).begin + span(sent).work < span(o).ready) {
        span(sent).from = o.rank;
        span(sent).operation = o.operation;
      }
      finish(sent);
    }
  }

  std::string sizes_of(replay_place o, replay_place sent) const {
    return place(o) + ": it receives " + std::to_string(at(o).amount) + " bytes, but the message of " + place(sent) +
           ", with tag " + std::to_string(at(sent).tag) + ", has " + std::to_string(at(sent).amount);
  }

  // -- collectives ------------------------------------------------------------------------------------------------------

  group_data& group_of(replay_place o) { return groups_[what_.collectives[at(o).amount]]; }
  /// The operation's rank among those of its collective.
  rank_t member_of(replay_place o) { return static_cast<rank_t>(group_of(o).index_of.at(o.rank)); }
  /// Made when the first of its operations comes.
  collective_data& collective_of(replay_place o) {
    auto& kept = collectives_[at(o).amount];
    if (!kept) kept = open(group_of(o), static_cast<std::uint32_t>(at(o).amount));
    return *kept;
  }

  output_piece& piece_of(std::uint32_t number, rank_t member, std::int64_t piece) {
    return pieces_[number][{member, piece}];
  }
  void await(replay_place o) {
    output_piece& p = piece_of(static_cast<std::uint32_t>(at(o).amount), member_of(o), at(o).tag);
    if (p.arrived) finish(o);
    else p.waiting.push_back(o.operation);
  }
  /// In the turn of a rank of the collective, as member_ended().
  void piece_arrived(std::uint32_t number, rank_t member, std::int64_t piece) {
    const rank_t rank = groups_[what_.collectives[number]].of->ranks[static_cast<std::size_t>(member)];
    output_piece& p = piece_of(number, member, piece);
    p.arrived = true;
    for (const std::uint32_t o : std::exchange(p.waiting, {}))
      time_.at(time_.now(), self_, operation_event{rank, o, 1});
  }

  void enter(replay_place o) {
    const auto number = static_cast<std::uint32_t>(at(o).amount);
    const group_data& g = group_of(o);
    collective_data& c = collective_of(o);
    const auto member = static_cast<std::size_t>(member_of(o));
    c.operations[member] = o.operation;
    ++c.entered;
    c.last = o;
    if (g.of->meets_ps >= 0) {
      if (c.entered == c.operations.size()) meet(g, collectives_[number]);
      return;
    }
    time_.at(time_.now() + g.seen->host.launch.count(), ways_.ranks[ways_.first_rank(c.part) + member], start_event{});
  }

  std::unique_ptr<collective_data> open(group_data& g, std::uint32_t number) {
    auto c = std::make_unique<collective_data>();
    c->operations.resize(g.of->ranks.size());
    if (g.of->meets_ps >= 0) {
      note_open(++meeting_);
      return c;
    }
    if (g.free.empty()) {
      c->part = ways_.add_again(g.first);
      if (watcher_) watcher_->add(c->part, static_cast<std::int32_t>(what_.collectives[number]), g.of->ranks);
      ways_.ranks.resize(ways_.rank_count());
    } else {
      c->part = g.free.back();
      g.free.pop_back();
    }
    c->by = make_performers(g.sizes, *g.seen, g.of->call.options, ways_, c->part, nullptr);
    c->by.all->on_finished = [this, number](rank_t member, std::int64_t at) { member_ended(number, member, at); };
    for (std::size_t r = 0; r < c->by.ranks.size(); ++r)
      ways_.ranks[ways_.first_rank(c->part) + r] = c->by.ranks[r]->address();
    if (g.of->call.notes->partitions > 0)
      c->by.all->take_parts(g.of->call.cut,
                            [this, number](rank_t member, int piece) { piece_arrived(number, member, piece); });
    open_.push_back(number);
    note_open(meeting_);
    return c;
  }
  void note_open(std::size_t meeting) {
    result_.most_at_once = std::max<std::uint64_t>(result_.most_at_once, open_.size() + meeting);
  }

  /// All have come. Ranks of one core work beside each other no more than it does.
  void meet(const group_data& g, std::unique_ptr<collective_data>& c) {
    std::int64_t done = time_.now();
    std::vector<element_index> cores;
    for (const int rank : g.of->ranks) {
      const element_index core = on_.place_of(rank).core;
      if (core != no_element && std::ranges::find(cores, core) != cores.end()) continue;
      cores.push_back(core);
      done = std::max(done, ways_.work(core, g.of->meets_ps, 0));
    }
    for (std::size_t m = 0; m < c->operations.size(); ++m) {
      const replay_place o{g.of->ranks[m], c->operations[m]};
      if (c->last.rank != o.rank) span(o).from = c->last.rank, span(o).operation = c->last.operation;
      time_.at(done, self_, operation_event{o.rank, o.operation, 1});
    }
    --meeting_;
    c.reset();
  }

  /// In the turn of a rank of the collective: nothing but events comes of it.
  void member_ended(std::uint32_t number, rank_t member, std::int64_t at) {
    collective_data& c = *collectives_[number];
    const auto m = static_cast<std::size_t>(member);
    const replay_place o{groups_[what_.collectives[number]].of->ranks[m], c.operations[m]};
    if (c.last.rank != o.rank && c.entered == c.operations.size()) {
      span(o).from = c.last.rank;
      span(o).operation = c.last.operation;
    }
    c.ends = std::max(c.ends, at);
    time_.at(at, self_, operation_event{o.rank, o.operation, 1});
    if (c.by.all->unfinished == 0) time_.at(c.ends, self_, collective_event{number});
  }

  void close(std::unique_ptr<collective_data>& c, std::uint32_t group) {
    check_ended(c->by);
    for (std::size_t r = 0; r < c->by.ranks.size(); ++r) ways_.ranks[ways_.first_rank(c->part) + r] = nullptr;
    groups_[group].free.push_back(c->part);
    std::erase_if(open_, [&](std::uint32_t n) { return collectives_[n] == c; });
    c.reset();
  }

  // -- the end ----------------------------------------------------------------------------------------------------------

  std::string place(replay_place o) const {
    const replay_rank& of = what_.ranks[static_cast<std::size_t>(o.rank)];
    return of.file + ":" + std::to_string(at(o).line) + ": " + std::string{troupe::name(at(o).what)} + " of rank " +
           std::to_string(o.rank);
  }

  std::string why_not(replay_place o) const {
    const replay_operation& what = at(o);
    const rank_data& d = ranks_[static_cast<std::size_t>(o.rank)];
    if (d.missing[o.operation] > 0) {
      for (const replay_dependency& n : what_.ranks[static_cast<std::size_t>(o.rank)].needs)
        if (n.later == o.operation && result_.spans[static_cast<std::size_t>(o.rank)][n.earlier].end < 0)
          return "waits for that of line " +
                 std::to_string(operations(static_cast<std::size_t>(o.rank))[n.earlier].line);
      return "waits for others";
    }
    if (what.what == op_kind::recv)
      return "waits for a message of " + (what.peer == any_rank ? "any rank" : "rank " + std::to_string(what.peer)) +
             (what.tag == any_tag ? "" : " with tag " + std::to_string(what.tag));
    if (what.what == op_kind::arrived) return "waits for piece " + std::to_string(what.tag) + " of its collective";
    if (what.what == op_kind::send) return "waits until rank " + std::to_string(what.peer) + " receives it";
    return "waits for the others";
  }

  /// Operations that nothing else is to blame for come first: those that are ready.
  [[noreturn]] void report_stuck() const {
    std::string text = "the trace cannot be performed to its end: " + plural(left_, "operation") + " cannot go on";
    int shown = 0;
    for (const bool ready : {true, false})
      for (std::size_t r = 0; r < ranks_.size() && shown < 4; ++r)
        for (std::uint32_t i = 0; i < operations(r).size() && shown < 4; ++i) {
          const replay_place o{static_cast<rank_t>(r), i};
          if (result_.spans[r][i].end >= 0 || (ranks_[r].missing[i] == 0) != ready) continue;
          text += "\n  " + place(o) + " " + why_not(o);
          ++shown;
        }
    throw error(errc::bad_config, text);
  }

  const replay_trace& what_;
  const hardware& on_;
  const replay_options& options_;
  virtual_scheduler& time_;
  std::optional<part_watcher> watcher_;
  std::vector<int> all_ranks_;  ///< that it is told of
  traffic ways_;
  caf::actor self_;
  std::vector<rank_data> ranks_;
  std::vector<group_data> groups_;
  std::vector<std::unique_ptr<collective_data>> collectives_;  ///< those under way
  std::vector<std::uint32_t> open_;                            ///< their numbers, but for those whose ranks meet:
  std::size_t meeting_ = 0;                                    ///< how many of these wait for ranks
  std::uint32_t messages_ = 0;                                 ///< the part of single messages
  std::vector<replay_place> sender_of_;                        ///< by message
  std::deque<access> accesses_;                                ///< by number
  /// By collective, member and piece: those that have arrived, or are waited for.
  std::vector<std::map<std::pair<rank_t, std::int64_t>, output_piece>> pieces_;
  std::deque<replay_place> ready_;
  std::size_t left_ = 0;
  replay_outcome result_;
  std::exception_ptr failure_;
};

class replay_actor final : public caf::event_based_actor {
public:
  replay_actor(caf::actor_config& config, replay_run& of) : event_based_actor(config), of_(of) {}
  caf::behavior make_behavior() override {
    return {[this](arrival_event e) { of_.on_arrival(e.message); }, [this](operation_event e) { of_.on_operation(e); },
            [this](collective_event e) { of_.on_collective(e.number); },
            [this](access_event e) { of_.on_access(e.lane); }};
  }
  const char* name() const override { return "virtual_replay"; }

private:
  replay_run& of_;
};

}  // namespace

replay_outcome perform_replay(const replay_trace& what, const hardware& on, const replay_options& options) {
  on.validate();
  if (what.ranks.size() > static_cast<std::size_t>(on.ranks))
    throw error(errc::bad_config, on.name + " has " + plural(static_cast<std::size_t>(on.ranks), "rank") +
                                      ", the trace " + std::to_string(what.ranks.size()));
  // Torn down from the last to the first: actors refer to the state above them.
  caf::actor_system_config config;
  caf::actor_system system = make_virtual_actor_system(config);
  replay_run run{what, on, options, system};
  virtual_scheduler& time = virtual_scheduler::of(system);
  run.start(system.spawn<replay_actor, caf::hidden>(std::ref(run)));
  const bool done = time.run(events_between_looks, [&] {
    check_time(time.now());
    return !run.failure() && (options.go_on == nullptr || options.go_on(options.context, time.events()));
  });
  if (const auto why = run.failure()) std::rethrow_exception(why);
  if (!done) throw error(errc::cancelled, "the virtual run was cancelled");
  check_time(time.now());
  run.check();
  replay_outcome result = run.outcome();
  run.stop();
  return result;
}

}  // namespace troupe
