// SPDX-License-Identifier: Apache-2.0
// What a replay prints, its JSON and its timeline.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include <nlohmann/json.hpp>

#include "engine/flow/trace_events.hpp"
#include "engine/tools/replay/replay.hpp"
#include "engine/tools/study/extras.hpp"
#include "engine/tools/study/text.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

using json = nlohmann::ordered_json;
using study_text::format;
using study_text::time_text;
using spent_on = replay_stretch::part;

constexpr std::size_t most_shown = 16;
constexpr std::size_t most_elements_shown = 8;

double us(std::int64_t ps) { return static_cast<double>(ps) / 1e6; }
double share(std::int64_t of, std::int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(of) / static_cast<double>(whole);
}

std::string row_text(const std::string& who, const replay_times& t) {
  return format("  %-8s %12s %11.1f%% %11.1f%% %11.1f%% %9.1f%%\n", who.c_str(), time_text(us(t.end)).c_str(),
                share(t.compute, t.end), share(t.collective, t.end), share(t.message, t.end), share(t.idle, t.end));
}

void print_ranks(std::ostream& to, const replay_result& r) {
  to << "#\n"
     << format("# %-8s %12s %12s %12s %12s %10s\n", "rank", "end(us)", "computing", "collectives", "messages",
               "waiting");
  const auto& ranks = r.outcome.ranks;
  for (std::size_t i = 0; i < std::min(ranks.size(), most_shown); ++i) to << row_text(std::to_string(i), ranks[i]);
  if (ranks.size() <= most_shown) return;
  replay_times all;
  for (const replay_times& t : ranks) {
    all.compute += t.compute / static_cast<std::int64_t>(ranks.size()),
        all.collective += t.collective / static_cast<std::int64_t>(ranks.size());
    all.message += t.message / static_cast<std::int64_t>(ranks.size()),
        all.idle += t.idle / static_cast<std::int64_t>(ranks.size());
    all.end += t.end / static_cast<std::int64_t>(ranks.size());
  }
  to << row_text("average", all) << "# of " << ranks.size() << " ranks; --json has all\n";
}

std::string group_text(const replay_result& r, const replay_group_row& g) {
  std::string text = name(g.what.kind);
  if (!g.what.kind.is_barrier()) text += " " + bytes_text(g.bytes);
  if (g.communicator != 0) text += " of " + r.what->communicators[g.communicator].name;
  return text;
}

void print_groups(std::ostream& to, const replay_result& r) {
  if (r.groups.empty()) return;
  to << "#\n"
     << format("# %-32s %8s %12s %12s %12s  %s\n", "collective", "calls", "median(us)", "last-in(us)", "most(us)",
               "performed");
  for (std::size_t i = 0; i < std::min(r.groups.size(), most_shown); ++i) {
    const replay_group_row& g = r.groups[i];
    std::string how = g.choreography + ", " + g.protocol;
    if (g.cut.channels > 1) how += ", " + plural(static_cast<std::size_t>(g.cut.channels), "channel");
    if (g.cut.slices > 1) how += ", " + slices_text(g.cut);
    to << format("  %-32s %8zu %12s %12s %12s  %s\n", group_text(r, g).c_str(), g.calls,
                 time_text(g.all.median).c_str(), time_text(g.after_last.median).c_str(), time_text(g.all.most).c_str(),
                 how.c_str());
  }
  if (r.groups.size() > most_shown) to << "# and " << r.groups.size() - most_shown << " more; --json has all\n";
  to << "# median, most: from the first rank's begin to the last rank's end; last-in: from the last rank's begin\n";
}

std::vector<std::size_t> by_use(const replay_result& r) {
  std::vector<std::size_t> order(r.outcome.use.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t e) { return r.outcome.use[e].messages == 0; });
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return r.outcome.use[a].busy_ps > r.outcome.use[b].busy_ps; });
  return order;
}

void print_elements(std::ostream& to, const replay_result& r) {
  const auto order = by_use(r);
  if (order.empty()) return;
  to << "#\n# Busiest elements:\n"
     << format("# %-24s %6s %12s %16s %14s\n", "element", "busy", "messages", "bytes", "queued(us)");
  for (std::size_t i = 0; i < std::min(order.size(), most_elements_shown); ++i) {
    const element_use& u = r.outcome.use[order[i]];
    const int units = r.on->class_of(static_cast<element_index>(order[i])).units;
    to << format("# %-24s %5.1f%% %12llu %16llu %14.2f\n", r.on->elements[order[i]].name.c_str(),
                 share(u.busy_ps / units, r.outcome.end_ps), static_cast<unsigned long long>(u.messages),
                 static_cast<unsigned long long>(u.bytes), us(u.queued_ps));
  }
}

std::array<std::int64_t, replay_stretch::parts> path_totals(const replay_result& r) {
  std::array<std::int64_t, replay_stretch::parts> total{};
  for (const replay_stretch& s : r.path) total[static_cast<std::size_t>(s.spent)] += s.end_ps - s.begin_ps;
  return total;
}

const replay_operation& operation_of(const replay_result& r, const replay_stretch& s) {
  return r.what->ranks[static_cast<std::size_t>(s.rank)].operations[s.operation];
}

}  // namespace

std::string stretch_text(const replay_result& r, const replay_stretch& s) {
  const replay_operation& o = operation_of(r, s);
  std::string text = "rank " + std::to_string(s.rank) + ": ";
  switch (s.spent) {
    case spent_on::compute: text += "computed"; break;
    case spent_on::core: text += "waited for its core"; break;
    case spent_on::collective: text += name(r.what->collectives[o.amount].what.kind); break;
    case spent_on::queue: text += "queued for elements, or shared them: "; [[fallthrough]];
    case spent_on::message:
      text +=
          o.what == replay_operation::kind::send ? "sent to rank " + std::to_string(o.peer) : std::string{"received"};
      text += ", " + plural(o.amount, "byte");
      break;
  }
  return text + " (line " + std::to_string(o.line) + ")";
}

namespace {

/// How long the run took that was recorded, and how much of the cores it had: less than the replay, if other work had them. That can be told where
/// ranks have cores in the model.
void print_recorded(std::ostream& to, const replay_result& r) {
  const std::int64_t real = r.what->recorded_end_ps();
  if (real <= 0) return;
  to << "  recorded " << time_text(us(real)) << " us; the replay takes "
     << format("%.2f", static_cast<double>(r.outcome.end_ps) / static_cast<double>(real)) << " of it\n";
  if (r.what->recorded_cpu_ps <= 0) return;
  to << "  its processes had " << time_text(us(r.what->recorded_cpu_ps)) << " us of CPU time ("
     << format("%.2f", r.what->recorded_cores) << " cores)";
  const std::int64_t rest = r.what->recorded_cpu_ps - r.what->recording_ps;
  if (r.what->recording_ps > 0) to << ", of which the recording took " << time_text(us(r.what->recording_ps));
  std::int64_t busy = 0;
  int cores = 0;
  for (std::size_t e = 0; e < r.outcome.use.size(); ++e)
    if (r.on->class_of(static_cast<element_index>(e)).role == element_role::core)
      busy += r.outcome.use[e].busy_ps, ++cores;
  if (cores > 0 && r.outcome.end_ps > 0 && rest > 0)
    to << "; the replay takes "
       << format("%.2f of %s (%.2f cores of %d)", static_cast<double>(busy) / static_cast<double>(rest),
                 r.what->recording_ps > 0 ? "the rest" : "it",
                 static_cast<double>(busy) / static_cast<double>(r.outcome.end_ps), cores);
  to << '\n';
}

}  // namespace

void print_replay(std::ostream& to, const replay_result& r) {
  std::size_t operations = 0;
  for (const replay_rank& rank : r.what->ranks) operations += rank.operations.size();
  to << "# " << (r.scenario.title.empty() ? "A trace of " + plural(r.what->ranks.size(), "rank") : r.scenario.title)
     << ": " << plural(operations, "operation") << ", " << plural(r.what->collectives.size(), "collective") << '\n';
  to << "# " << r.on->name << ": " << r.on->about << '\n';
  to << "#\n  makespan " << time_text(us(r.outcome.end_ps)) << " us\n";
  print_recorded(to, r);
  print_ranks(to, r);
  print_groups(to, r);
  print_elements(to, r);
  print_energy(to, *r.on, r.outcome.use, r.outcome.end_ps);
  const auto total = path_totals(r);
  to << "#\n# The critical path:";
  for (std::size_t i = 0; i < total.size(); ++i)
    to << (i == 0 ? " " : ", ") << format("%.1f%% ", share(total[i], r.outcome.end_ps))
       << name(static_cast<spent_on>(i));
  to << '\n';
  for (const std::string& remark : r.remarks) to << "# " << remark << '\n';
}

void print_replay_path(std::ostream& to, const replay_result& r) {
  constexpr std::size_t most = 200;
  to << "#\n# Critical path:\n";
  for (std::size_t i = 0; i < std::min(most, r.path.size()); ++i)
    to << format("# %12.2f … %12.2f us  ", us(r.path[i].begin_ps), us(r.path[i].end_ps)) << stretch_text(r, r.path[i])
       << '\n';
  if (r.path.size() > most) to << "# and " << r.path.size() - most << " more; --json has all\n";
}

std::string replay_json(const replay_result& r) {
  json ranks = json::array(), groups = json::array(), path = json::array(), use = json::array();
  for (const replay_times& t : r.outcome.ranks)
    ranks.push_back({{"end_ps", t.end},
                     {"compute_ps", t.compute},
                     {"collective_ps", t.collective},
                     {"message_ps", t.message},
                     {"idle_ps", t.idle}});
  const auto spread = [](const study_spread& s) {
    return json{{"least_us", s.least}, {"median_us", s.median}, {"most_us", s.most}};
  };
  for (const replay_group_row& g : r.groups)
    groups.push_back({{"collective", name(g.what.kind)},
                      {"communicator", r.what->communicators[g.communicator].name},
                      {"bytes", g.bytes},
                      {"calls", g.calls},
                      {"choreography", g.choreography},
                      {"protocol", g.protocol},
                      {"channels", g.cut.channels},
                      {"slices", g.cut.slices},
                      {"slices_per_step", g.cut.slices_per_step},
                      {"all", spread(g.all)},
                      {"after_last", spread(g.after_last)}});
  for (const replay_stretch& s : r.path)
    path.push_back({{"begin_ps", s.begin_ps},
                    {"end_ps", s.end_ps},
                    {"rank", s.rank},
                    {"line", operation_of(r, s).line},
                    {"spent", name(s.spent)}});
  for (const std::size_t e : by_use(r)) {
    const element_use& u = r.outcome.use[e];
    use.push_back({{"element", r.on->elements[e].name},
                   {"busy_ps", u.busy_ps},
                   {"bytes", u.bytes},
                   {"messages", u.messages},
                   {"queued_ps", u.queued_ps}});
  }
  const json whole = {{"troupe_replay", 1},
                      {"scenario", r.scenario.as_said},
                      {"machine", r.on->name},
                      {"machine_ranks", r.on->ranks},
                      {"end_ps", r.outcome.end_ps},
                      {"recorded_end_ps", r.what->recorded.empty() ? json(nullptr) : json(r.what->recorded_end_ps())},
                      {"recorded_cpu_ps", r.what->recorded_cores > 0 ? json(r.what->recorded_cpu_ps) : json(nullptr)},
                      {"recording_ps", r.what->recorded_cores > 0 ? json(r.what->recording_ps) : json(nullptr)},
                      {"recorded_cores", r.what->recorded_cores > 0 ? json(r.what->recorded_cores) : json(nullptr)},
                      {"messages", r.outcome.messages},
                      {"payload_bytes", r.outcome.payload_bytes},
                      {"events", r.outcome.events},
                      {"ranks", ranks},
                      {"collectives", groups},
                      {"critical_path", path},
                      {"elements", use},
                      {"energy", energy_json(*r.on, r.outcome.use, r.outcome.end_ps)},
                      {"remarks", r.remarks}};
  return whole.dump(1) + "\n";
}

namespace {

/// What ranks of one run do at once.
class rank_curves {
public:
  void add(const replay_operation& what, std::int64_t begin_ps, std::int64_t end_ps) {
    using kind = replay_operation::kind;
    if (what.what == kind::calc) computing_.add(begin_ps, end_ps);
    if (what.what == kind::collective) collective_.add(begin_ps, end_ps);
    if (what.what != kind::send) return;
    sends_.add(begin_ps, end_ps);
    bytes_.add(begin_ps, end_ps, static_cast<std::int64_t>(what.amount));
  }
  void write(trace_events& to, std::int64_t process) const {
    computing_.write(to, process, "computations under way");
    collective_.write(to, process, "ranks in collectives");
    sends_.write(to, process, "sends under way");
    bytes_.write(to, process, "bytes of sends under way");
  }

private:
  trace_curve computing_, collective_, sends_, bytes_;
};

/// Of each class of elements, how many messages it serves; ranks' own work on cores and DMA engines among them.
void add_elements(trace_events& events, const replay_result& r) {
  if (!r.occupied) return;
  constexpr std::int64_t process = 3;
  events.name_process(process, "elements");
  std::map<class_id, trace_curve> of_class;
  for (const element_recording::stretch& s : r.occupied->stretches)
    of_class[r.on->elements[static_cast<std::size_t>(s.element)].of].add(s.begin, s.end);
  for (const auto& [of, curve] : of_class) curve.write(events, process, "messages served: " + r.on->classes[of].name);
}

/// The run that was recorded, beside the replay.
void add_recorded(trace_events& events, const replay_result& r) {
  if (r.what->recorded.empty()) return;
  events.name_process(2, "recorded");
  rank_curves curves;
  for (std::size_t rank = 0; rank < r.what->recorded.size(); ++rank) {
    const trace_events::track track{2, static_cast<std::int64_t>(rank)};
    events.name_track(track, "rank " + std::to_string(rank));
    for (std::size_t i = 0; i < r.what->recorded[rank].size(); ++i) {
      const application::recorded_time& t = r.what->recorded[rank][i];
      const replay_operation& o = r.what->ranks[rank].operations[i];
      if (t.begin_ps < 0) continue;
      const bool collective = o.what == replay_operation::kind::collective;
      events.span(track, collective ? name(r.what->collectives[o.amount].what.kind) : std::string{name(o.what)},
                  std::string{name(o.what)}, t.begin_ps, t.end_ps, "\"line\":" + std::to_string(o.line));
      curves.add(o, t.begin_ps, t.end_ps);
    }
  }
  curves.write(events, 2);
}

}  // namespace

std::string replay_timeline(const replay_result& r) {
  trace_events events;
  events.name_process(1, r.on->name);
  std::int64_t arrows = 0;
  rank_curves curves;
  for (std::size_t rank = 0; rank < r.what->ranks.size(); ++rank) {
    const trace_events::track track{1, static_cast<std::int64_t>(rank)};
    events.name_track(track, "rank " + std::to_string(rank));
    for (std::size_t i = 0; i < r.what->ranks[rank].operations.size(); ++i) {
      const replay_operation& o = r.what->ranks[rank].operations[i];
      const replay_span& s = r.outcome.spans[rank][i];
      const std::string kind{name(o.what)};
      const bool collective = o.what == replay_operation::kind::collective;
      events.span(track, collective ? name(r.what->collectives[o.amount].what.kind) : kind, kind, s.begin, s.end,
                  "\"line\":" + std::to_string(o.line));
      curves.add(o, s.begin, s.end);
      if (o.what != replay_operation::kind::recv || s.from < 0 || s.from == static_cast<rank_t>(rank)) continue;
      const replay_span& sent = r.outcome.spans[static_cast<std::size_t>(s.from)][s.operation];
      events.arrow_begins({1, s.from}, "message", std::to_string(arrows), sent.begin);
      events.arrow_ends(track, "message", std::to_string(arrows++), s.end);
    }
  }
  curves.write(events, 1);
  add_elements(events, r);
  add_recorded(events, r);
  return events.finish();
}

}  // namespace troupe
