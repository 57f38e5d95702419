// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/replay/replay.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <optional>

#include "engine/tools/study/parts.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

using op_kind_t = replay_operation::kind;

/// As many ranks as the trace has, or more.
study_machine machine_for(study_scenario& s, int ranks) {
  const bool said = s.request.ranks > 0 || !s.request.layout.empty();
  std::optional<study_machine> made;
  std::optional<error> why;
  int has = 0;  ///< by itself
  const auto attempt = [&](int wanted) {
    study_scenario one = s;
    one.request.ranks = wanted;
    try {
      made = study_machine_of(one);
    } catch (const error& e) {
      if (e.code_value() != errc::bad_config) throw;
      why = e;
      return false;
    }
    if (wanted == 0) has = made->on.ranks;
    if (made->on.ranks < ranks) made.reset();
    return made.has_value();
  };
  if (said) {
    made = study_machine_of(s);
    if (made->on.ranks < ranks)
      throw error(errc::bad_config, s.preset_name + " has " + plural(static_cast<std::size_t>(made->on.ranks), "rank") +
                                        " here, the trace " + std::to_string(ranks) +
                                        "; say more ranks, or leave ranks and layout away");
    return std::move(*made);
  }
  if (attempt(ranks)) return std::move(*made);
  if (attempt(0)) return std::move(*made);
  // If it fails without any wishes, the machine itself is wrong.
  if (has == 0) throw error(errc::bad_config, why->what());
  for (int more = ranks + 1; more < 2 * ranks; ++more)
    if (attempt(more)) return std::move(*made);
  throw error(errc::bad_config, s.preset_name + " has " + plural(static_cast<std::size_t>(has), "rank") +
                                    ", the trace " + std::to_string(ranks) + "; take a larger machine");
}

std::string key_of(const application::collective& c) {
  const application_call& w = c.what;
  std::string key = std::to_string(c.communicator) + " " + name(w.kind) + " " + std::to_string(w.count) + " " +
                    std::string{name(w.type)} + " " + std::string{name(w.reduction.kind)} + " " +
                    std::to_string(w.root) + " " + w.choreography;
  for (const std::size_t n : w.counts) key += "," + std::to_string(n);
  return key;
}

class replay_planner {
public:
  replay_planner(const study_scenario& s, const replay_request& how, const application& what,
                 const study_machine& machine, replay_result& into)
      : scenario_(s),
        what_(what),
        machine_(machine),
        into_(into),
        parts_(s, machine, how.progress, how.go_on, into.remarks) {}

  replay_trace plan() {
    replay_trace trace;
    trace.ranks = what_.ranks;
    std::map<std::string, std::uint32_t> known;
    for (const application::collective& c : what_.collectives) {
      const auto [at, fresh] = known.try_emplace(key_of(c), static_cast<std::uint32_t>(trace.groups.size()));
      if (fresh) trace.groups.push_back(group_of(c));
      trace.collectives.push_back(at->second);
      ++into_.groups[at->second].calls;
    }
    return trace;
  }

private:
  replay_group group_of(const application::collective& c) {
    const application::communicator& members = what_.communicators[c.communicator];
    replay_group made;
    made.ranks = members.ranks;
    made.places = arrangement_of(machine_.on, members.ranks);
    if (meets(c, made)) return made;
    study_scenario one = scenario_;
    one.kind = c.what.kind;
    one.sizes = {bytes_of(c.what, members.ranks.size())};
    one.counts = c.what.counts;
    one.type = c.what.type;
    one.reduction = c.what.reduction;
    one.root = c.what.root;
    if (!c.what.choreography.empty()) one.choreography = c.what.choreography;
    try {
      const study_row row =
          parts_.plan(one, {.ranks = made.ranks, .places = made.places, .wished = c.what.choreography.empty()});
      made.call = row.call;
      made.call.shape.counts = c.what.counts;  // the study's own are gone
      kept_.push_back(row.notes);
      into_.groups.push_back({c.communicator, c.what, row.bytes, row.choreography, row.protocol, row.cut, 0, {}, {}});
    } catch (const error& e) {
      throw error(e.code_value(), name(c.what.kind) + " of communicator " + members.name + ": " + e.what());
    }
    return made;
  }

  /// Whether nobody says how, so that it is performed as an engine performs it there.
  bool free_to_choose(const application::collective& c) const {
    static constexpr const char* said[] = {"study.protocol",        "study.channels",    "study.slices",
                                           "study.slices_per_step", "study.chunk_bytes", "study.credits"};
    return machine_.on_board && scenario_.choreography == "auto" && c.what.choreography.empty() &&
           scenario_.overrides.empty() && scenario_.slow.empty() && scenario_.faults.empty() &&
           std::ranges::none_of(said, [&](const char* key) { return scenario_.as_said.contains(key); });
  }

  bool meets(const application::collective& c, replay_group& made) {
    const application_call& w = c.what;
    if (!free_to_choose(c)) return false;
    call asked;
    asked.what = w.kind.what;
    asked.type = w.type;
    asked.reduction = w.reduction;
    asked.root = w.root;
    asked.count = w.count;
    asked.uniform = !w.kind.v_form;
    const auto board =
        machine_.on_board(asked, static_cast<int>(made.ranks.size()), w.kind.v_form ? &w.counts : nullptr);
    if (!board) return false;
    made.meets_ps = board->takes.count();
    into_.groups.push_back(
        {c.communicator, w, bytes_of(w, made.ranks.size()), board->choreography, board->protocol, {}, 0, {}, {}});
    return true;
  }

  const study_scenario& scenario_;
  const application& what_;
  const study_machine& machine_;
  replay_result& into_;
  part_studies parts_;
  std::vector<std::shared_ptr<const score>> kept_;
};

void time_groups(replay_result& r, const replay_trace& trace) {
  std::vector<virtual_stretch> all(trace.collectives.size(), {std::numeric_limits<std::int64_t>::max(), 0});
  std::vector<std::int64_t> last(trace.collectives.size(), 0);
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank)
    for (std::size_t i = 0; i < trace.ranks[rank].operations.size(); ++i) {
      const replay_operation& o = trace.ranks[rank].operations[i];
      if (o.what != op_kind_t::collective) continue;
      const replay_span& s = r.outcome.spans[rank][i];
      all[o.amount].begin = std::min(all[o.amount].begin, s.begin);
      all[o.amount].end = std::max(all[o.amount].end, s.end);
      last[o.amount] = std::max(last[o.amount], s.begin);
    }
  for (std::size_t g = 0; g < r.groups.size(); ++g) {
    std::vector<virtual_stretch> whole, after;
    for (std::size_t c = 0; c < all.size(); ++c)
      if (trace.collectives[c] == g) whole.push_back(all[c]), after.push_back({last[c], all[c].end});
    r.groups[g].all = spread_of(whole);
    r.groups[g].after_last = spread_of(after);
  }
}

/// Back from the operation that ended last: what each had to wait for last.
class path_finder {
public:
  path_finder(const replay_trace& trace, const replay_outcome& times, const hardware& on,
              const protocol_costs& protocol)
      : trace_(trace), times_(times), on_(on), protocol_(protocol) {}

  std::vector<replay_stretch> find() {
    std::size_t most = 0;
    for (std::size_t r = 0; r < trace_.ranks.size(); ++r)
      for (std::uint32_t i = 0; i < trace_.ranks[r].operations.size(); ++i) {
        ++most;
        if (rank_ < 0 || times_.spans[r][i].end > span().end) rank_ = static_cast<rank_t>(r), operation_ = i;
      }
    if (rank_ < 0) return {};
    now_ = span().end;
    // No operation is come to twice: what it waited for was caused before it.
    for (std::size_t i = 0; i < most && step(); ++i) {}
    std::reverse(path_.begin(), path_.end());
    return std::move(path_);
  }

private:
  using part = replay_stretch::part;
  const replay_span& span() const { return times_.spans[static_cast<std::size_t>(rank_)][operation_]; }

  void spend(part what, std::int64_t from) {
    if (from < now_) path_.push_back({what, rank_, operation_, from, now_});
    now_ = std::min(now_, from);
  }

  /// How long the present operation's message takes where nothing else is under way.
  std::int64_t alone(bool receives, rank_t peer) const {
    const std::uint64_t bytes = trace_.ranks[static_cast<std::size_t>(rank_)].operations[operation_].amount;
    const std::uint64_t wire =
        bytes_on_wire(bytes, static_cast<std::uint64_t>(protocol_.wire), static_cast<std::uint64_t>(protocol_.payload));
    return (on_.time_alone(receives ? peer : rank_, receives ? rank_ : peer, 0, wire) + protocol_.latency).count();
  }

  /// Goes to what the present operation waited for. False: to the start.
  bool step() {
    const replay_span s = span();
    const op_kind_t kind = trace_.ranks[static_cast<std::size_t>(rank_)].operations[operation_].what;
    const bool by_other = s.from >= 0 && s.from != rank_;
    if (by_other) {
      const replay_span& other = times_.spans[static_cast<std::size_t>(s.from)][s.operation];
      // A message comes when it has left; a collective goes on when its last rank has come; a send ends when it is received.
      const std::int64_t since = kind == op_kind_t::recv ? other.begin + other.work : other.begin;
      if (kind == op_kind_t::collective) {
        spend(part::collective, since);
      } else {
        spend(part::message, std::max(since, now_ - s.work - alone(kind == op_kind_t::recv, s.from)));
        spend(part::queue, since);
      }
    } else {
      const part own = kind == op_kind_t::calc         ? part::compute
                       : kind == op_kind_t::collective ? part::collective
                                                       : part::message;
      spend(own, s.begin);
      spend(part::core, s.ready);
    }
    if (s.from < 0) return false;
    rank_ = s.from;
    operation_ = s.operation;
    return true;
  }

  const replay_trace& trace_;
  const replay_outcome& times_;
  const hardware& on_;
  const protocol_costs& protocol_;
  rank_t rank_ = -1;
  std::uint32_t operation_ = 0;
  std::int64_t now_ = 0;
  std::vector<replay_stretch> path_;
};

}  // namespace

std::int64_t application::recorded_end_ps() const {
  std::int64_t end = -1;
  for (const auto& rank : recorded)
    for (const recorded_time& t : rank) end = std::max(end, t.end_ps);
  return end;
}

std::size_t bytes_of(const application_call& c, std::size_t ranks) {
  if (c.kind.is_barrier() || c.kind.v_form) return 0;
  const bool one = block_count(c.kind.what, static_cast<int>(ranks)) == 1;
  return c.count * size_of(c.type) * (one ? 1 : ranks);
}

std::string_view name(replay_stretch::part part) noexcept {
  switch (part) {
    case replay_stretch::part::compute: return "compute";
    case replay_stretch::part::collective: return "collective";
    case replay_stretch::part::message: return "message";
    case replay_stretch::part::queue: return "queue";
    case replay_stretch::part::core: return "core";
  }
  return "?";
}

replay_result run_replay(const study_scenario& scenario, const std::shared_ptr<const application>& what,
                         const replay_request& how) {
  replay_result result;
  result.scenario = scenario;
  result.what = what;
  const study_machine machine = machine_for(result.scenario, static_cast<int>(what->ranks.size()));
  if (machine.on.nics)
    throw error(errc::unsupported,
                machine.on.name + ": a trace cannot be replayed where NICs perform collectives; take another preset");
  refuse_losses(result.scenario, machine.on, "a trace does not say what an application does then");
  result.on = std::make_shared<const hardware>(machine.on);
  replay_planner planner{result.scenario, how, *what, machine, result};
  const replay_trace trace = planner.plan();

  replay_options options;
  options.eager_bytes = how.eager_bytes;
  const protocol_costs* protocol = machine.on.protocol(result.scenario.protocol);
  options.protocol = protocol != nullptr ? *protocol : machine.on.protocols.front();
  options.go_on = [](void* context, std::uint64_t) {
    const auto& asked = *static_cast<const replay_request*>(context);
    return !asked.go_on || asked.go_on();
  };
  options.context = const_cast<replay_request*>(&how);
  const auto occupied = how.record ? std::make_shared<element_recording>() : nullptr;
  if (occupied) occupied->of.assign(result.on->elements.size(), true), options.record = occupied.get();
  if (how.progress) how.progress("the whole trace");
  const auto begin = std::chrono::steady_clock::now();
  result.outcome = perform_replay(trace, *result.on, options);
  result.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  result.occupied = occupied;
  if (occupied && !occupied->complete)
    result.remarks.push_back("not recorded to the end: what elements do over time; " + std::to_string(occupied->most) +
                             " messages and elements are kept");
  if (const auto& o = result.outcome; o.shorter > 0)
    result.remarks.push_back((o.shorter == 1 ? "a message is" : std::to_string(o.shorter) + " messages are") +
                             std::string{" shorter than what is received; the first: "} + o.first_shorter);
  if (const auto& o = result.outcome; o.unreceived > 0)
    result.remarks.push_back((o.unreceived == 1 ? "a message was" : std::to_string(o.unreceived) + " messages were") +
                             std::string{" never received; the first: "} + o.first_unreceived);
  time_groups(result, trace);
  result.path = path_finder{trace, result.outcome, *result.on, options.protocol}.find();
  return result;
}

}  // namespace troupe
