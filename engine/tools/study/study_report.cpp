// SPDX-License-Identifier: Apache-2.0
// What a study prints, and its CSV and JSON.
#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>

#include <nlohmann/json.hpp>

#include "engine/tools/study/extras.hpp"
#include "engine/tools/study/study.hpp"
#include "engine/tools/study/text.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

using study_text::csv_field;
using study_text::format;
using study_text::time_text;

std::string title_of(const study_result& r) {
  const study_scenario& s = r.scenario;
  if (!s.title.empty()) return s.title;
  if (!s.jobs.empty()) return plural(s.jobs.size(), "job") + " on " + r.on->name;
  if (!s.flow.nodes.empty()) return "A flow of " + plural(s.flow.nodes.size(), "node") + " on " + r.on->name;
  return name(s.kind) + " on " + r.on->name + ", " + plural(static_cast<std::size_t>(r.on->ranks), "rank");
}

std::string op_text(const study_scenario& s) { return s.kind.reduces() ? std::string{name(s.reduction.kind)} : "none"; }

/// Elements by how long they were occupied, the busiest first; idle ones left out.
std::vector<std::size_t> by_use(const study_row& row) {
  std::vector<std::size_t> order(row.outcome.use.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto& use = row.outcome.use;
  std::erase_if(order, [&](std::size_t e) { return use[e].messages == 0; });
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return use[a].busy_ps > use[b].busy_ps; });
  return order;
}

/// Where the operation failed, messages may be on their way beyond its end.
double share_of(const study_result& r, const study_row& row, std::size_t element) {
  const int units = r.on->class_of(static_cast<element_index>(element)).units;
  if (row.outcome.end_ps == 0) return 0;
  const double share =
      static_cast<double>(row.outcome.use[element].busy_ps) / units / static_cast<double>(row.outcome.end_ps);
  return row.failed() ? std::min(share, 1.0) : share;
}

void print_use(std::ostream& to, const study_result& r) {
  if (r.rows.empty()) return;
  const study_row& row = *r.shown_row();
  const auto order = by_use(row);
  if (order.empty()) return;
  constexpr std::size_t most_shown = 8;
  to << "#\n# Busiest elements at " << bytes_text(row.bytes) << ":\n"
     << format("# %-24s %-14s %6s %12s %14s %12s\n", "element", "class", "busy", "messages", "bytes", "queued(us)");
  for (std::size_t i = 0; i < std::min(order.size(), most_shown); ++i) {
    const std::size_t e = order[i];
    const element_use& u = row.outcome.use[e];
    to << format("# %-24s %-14s %5.1f%% %12llu %14llu %12.2f\n", r.on->elements[e].name.c_str(),
                 r.on->class_of(static_cast<element_index>(e)).name.c_str(), 100 * share_of(r, row, e),
                 static_cast<unsigned long long>(u.messages), static_cast<unsigned long long>(u.bytes),
                 static_cast<double>(u.queued_ps) / 1e6);
  }
  if (order.size() > most_shown) to << "# and " << order.size() - most_shown << " more\n";
}

void print_path(std::ostream& to, const study_result& r) {
  if (r.rows.empty() || !r.shown_row()->recording) return;
  const std::vector<critical_stretch> path = critical_path(r);
  to << (path.empty() ? "#\n# Critical path: nothing had to be waited for\n" : "#\n# Critical path:\n");
  for (const critical_stretch& s : path)
    to << format("# %10.2f … %10.2f us  ", static_cast<double>(s.begin_ps) / 1e6, static_cast<double>(s.end_ps) / 1e6)
       << s.text << '\n';
}

void print_rows(std::ostream& to, const study_result& r) {
  const study_scenario& s = r.scenario;
  to << "#\n"
     << format("# %10s  %12s  %8s  %6s  %6s  %9s  %7s  %7s  %6s  %9s  %s\n", "size", "count", "type", "redop", "root",
               "time", "algbw", "busbw", "#wrong", "bound", "performed")
     << format("# %10s  %12s  %8s  %6s  %6s  %9s  %7s  %7s  %6s  %9s\n", "(B)", "(elements)", "", "", "", "(us)",
               "(GB/s)", "(GB/s)", "", "(us)");
  for (const study_row& row : r.rows) {
    const std::string how = performed_text(row);
    to << format("%12zu  %12zu  %8s  %6s  %6d  %9s  %7.2f  %7.2f  %6s  %9s  %s\n", row.bytes, row.count,
                 std::string{nccl_name(s.type)}.c_str(), op_text(s).c_str(), s.kind.rooted() ? s.root : -1,
                 time_text(row.time_us).c_str(), row.algbw, row.busbw,
                 row.wrong < 0 ? "N/A" : std::to_string(row.wrong).c_str(), time_text(row.bound_us()).c_str(),
                 how.c_str());
  }
}

/// Of NICs that perform: how full the root's hash buffers were.
void print_fills(std::ostream& to, const study_result& r) {
  for (const study_row& row : r.rows)
    if (row.outcome.buffer_fill >= 0)
      to << format("# %s: hash buffers of node %d %.2f %% full on average\n", bytes_text(row.bytes).c_str(),
                   has_root(r.scenario.kind.what) ? r.scenario.root : 0, 100 * row.outcome.buffer_fill);
}

}  // namespace

std::string performed_text(const study_row& row) {
  std::string how = row.choreography + ", " + row.protocol;
  if (row.cut.channels > 1) how += ", " + plural(static_cast<std::size_t>(row.cut.channels), "channel");
  if (row.cut.slices > 1) how += ", " + slices_text(row.cut);
  return how + (row.failed() ? "; fails" : "");
}

void print_study(std::ostream& to, const study_result& r) {
  to << "# " << title_of(r) << "\n# " << r.on->name << ": " << r.on->about << '\n';
  if (!r.jobs.empty()) {
    print_jobs(to, r);
    print_energy(to, *r.on, r.together.use, r.together.end_ps);
    to << "#\n";
    for (const std::string& remark : r.remarks) to << "# " << remark << '\n';
    to << format("# Virtual time; %llu steps, %llu events together, all runs simulated in %.3f s\n",
                 static_cast<unsigned long long>(r.together.steps), static_cast<unsigned long long>(r.together.events),
                 r.wall_seconds);
    return;
  }
  const bool flows = !r.flow_rows.empty();
  if (flows) print_flow(to, r);
  else print_rows(to, r);
  print_use(to, r);
  if (!r.rows.empty()) {
    print_energy(to, *r.on, r.shown_row()->outcome.use, r.shown_row()->outcome.end_ps);
    for (const study_row& row : r.rows) print_ends(to, *r.on, row);
  }
  if (flows) print_flow_path(to, r);
  else print_path(to, r);
  to << "#\n";
  for (const std::string& remark : r.remarks) to << "# " << remark << '\n';
  print_fills(to, r);
  std::uint64_t steps = 0, events = 0;
  double wall = 0;
  std::size_t by_states = 0;
  for (const study_row& row : r.rows) {
    steps += row.outcome.steps, events += row.outcome.events, wall += row.wall_seconds;
    by_states += row.outcome.by_states ? 1 : 0;
  }
  const char* const by = r.on->nics                   ? "the NICs' state"
                         : by_states == r.rows.size() ? "the ranks' states"
                         : flows                      ? "a replay of its tiles"
                         : by_states == 0             ? "the player"
                                                      : "the ranks' states, larger rows by the player";
  to << format("# Virtual time; %llu steps, %llu events, simulated in %.3f s by %s\n",
               static_cast<unsigned long long>(steps), static_cast<unsigned long long>(events), wall, by);
}

void print_sweep(std::ostream& to, const study_sweep_result& sweep) {
  if (!sweep.points.empty() && !sweep.points.front().second.jobs.empty()) {
    to << format("# %-18s%-20s  %6s  %9s  %9s  %9s  %9s  %8s  %9s\n", sweep.what.key.c_str(), "job", "rounds",
                 "least(us)", "median", "most", "alone", "slow-down", "end");
    for (const auto& [value, result] : sweep.points) print_job_rows(to, result, value);
    for (const auto& [value, why] : sweep.refused) to << format("  %-18srefused: %s\n", value.c_str(), why.c_str());
    return;
  }
  if (!sweep.points.empty() && !sweep.points.front().second.flow_rows.empty()) {
    to << format("# %-24s  %12s  %9s\n", sweep.what.key.c_str(), "size(B)", "time(us)");
    for (const auto& [value, result] : sweep.points)
      for (const study_row& row : result.rows)
        to << format("  %-24s  %12zu  %9s\n", value.c_str(), row.bytes, time_text(row.time_us).c_str());
    for (const auto& [value, why] : sweep.refused) to << format("  %-24s  refused: %s\n", value.c_str(), why.c_str());
    return;
  }
  to << format("# %-24s  %12s  %9s  %7s  %7s  %9s  %s\n", sweep.what.key.c_str(), "size(B)", "time(us)", "algbw",
               "busbw", "bound(us)", "performed");
  for (const auto& [value, result] : sweep.points)
    for (const study_row& row : result.rows)
      to << format("  %-24s  %12zu  %9s  %7.2f  %7.2f  %9s  %s\n", value.c_str(), row.bytes,
                   time_text(row.time_us).c_str(), row.algbw, row.busbw, time_text(row.bound_us()).c_str(),
                   performed_text(row).c_str());
  for (const auto& [value, why] : sweep.refused) to << format("  %-24s  refused: %s\n", value.c_str(), why.c_str());
}

// -- CSV --------------------------------------------------------------------------------------------------------------

namespace {

std::string row_csv(const std::string& key, const std::string& value, const study_result& of, const study_row& row) {
  std::string line;
  for (const std::string& text :
       {key, value, name(of.scenario.kind), row.choreography, row.protocol, of.scenario.preset_name})
    line += csv_field(text) + ",";
  return line + format("%d,%zu,%zu,%s,%s,%.6f,%.6f,%.6f,%.6f,%.6f,%llu,%llu,%lld,%d,%d,%d,%d,\n", of.on->ranks,
                       row.bytes, row.count, std::string{name(of.scenario.type)}.c_str(), op_text(of.scenario).c_str(),
                       row.time_us, row.algbw, row.busbw, row.bound_us(), row.busiest_us,
                       static_cast<unsigned long long>(row.outcome.steps),
                       static_cast<unsigned long long>(row.outcome.messages), static_cast<long long>(row.wrong),
                       row.failed() ? 1 : 0, row.cut.channels, row.cut.slices, row.cut.slices_per_step);
}

}  // namespace

std::string study_csv(const study_result& r, const std::vector<study_sweep_result>& sweeps) {
  const bool jobs = !r.jobs.empty(), flow = !r.scenario.flow.nodes.empty();
  std::string text =
      jobs   ? jobs_csv_heading()
      : flow ? flow_csv_heading()
             : "key,value,collective,choreography,protocol,preset,ranks,bytes,count,type,redop,time_us,algbw,busbw,"
               "bound_us,busiest_us,steps,messages,wrong,failed,channels,slices,slices_per_step,refused\n";
  // A refused value has no figures for the columns between its own and the reason, which is the last.
  const std::string nothing(static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')) - 1, ',');
  const auto add = [&](const std::string& key, const std::string& value, const study_result& of) {
    if (jobs) text += jobs_csv(of, key, value);
    else if (flow) text += flow_csv(of, key, value);
    else
      for (const study_row& row : of.rows) text += row_csv(key, value, of, row);
  };
  add("", "", r);
  for (const study_sweep_result& sweep : sweeps) {
    auto point = sweep.points.begin();
    auto refused = sweep.refused.begin();
    for (const std::string& value : sweep.what.values)
      if (point != sweep.points.end() && point->first == value) {
        add(sweep.what.key, value, point->second);
        ++point;
      } else if (refused != sweep.refused.end() && refused->first == value) {
        text += csv_field(sweep.what.key) + "," + csv_field(value) + nothing + csv_field(refused->second) + "\n";
        ++refused;
      }
  }
  return text;
}

// -- JSON -------------------------------------------------------------------------------------------------------------

namespace {

json rows_json(const study_result& r) {
  json rows = json::array();
  for (const study_row& row : r.rows)
    rows.push_back({{"bytes", row.bytes},
                    {"count", row.count},
                    {"type", name(r.scenario.type)},
                    {"redop", op_text(r.scenario)},
                    {"time_us", row.time_us},
                    {"algbw", row.algbw},
                    {"busbw", row.busbw},
                    {"bound_us", row.bound_us()},
                    {"busiest_us", row.busiest_us},
                    {"steps", row.outcome.steps},
                    {"messages", row.outcome.messages},
                    {"choreography", row.choreography},
                    {"protocol", row.protocol},
                    {"channels", row.cut.channels},
                    {"slices", row.cut.slices},
                    {"slices_per_step", row.cut.slices_per_step},
                    {"verified", row.verified},
                    {"performed_by", r.on->nics              ? "nics"
                                     : row.outcome.by_states ? "states"
                                                             : "player"},
                    {"buffer_fill", row.outcome.buffer_fill < 0 ? json(nullptr) : json(row.outcome.buffer_fill)},
                    {"wrong", row.wrong < 0 ? json(nullptr) : json(row.wrong)},
                    {"energy", energy_json(*r.on, row.outcome.use, row.outcome.end_ps)},
                    {"failed", row.failed()},
                    {"ends", ends_json(row)}});
  return rows;
}

json actors_json(const study_result& r) {
  json actors = json::array();
  for (int rank = 0; rank < r.on->ranks; ++rank)
    actors.push_back({{"name", "rank " + std::to_string(rank)}, {"kind", "rank"}, {"rank", rank}});
  for (std::size_t e = 0; e < r.on->elements.size(); ++e)
    actors.push_back({{"name", r.on->elements[e].name},
                      {"kind", name(r.on->class_of(static_cast<element_index>(e)).role)},
                      {"rank", r.on->elements[e].rank}});
  return actors;
}

json path_json(const study_result& r, const study_row& row) {
  json path = json::array();
  for (const critical_stretch& s : critical_path(r, row)) {
    path.push_back({{"begin_ps", s.begin_ps},
                    {"end_ps", s.end_ps},
                    {"actor", s.actor},
                    {"spent", name(s.spent)},
                    {"text", s.text}});
    if (!s.hops.empty()) path.back()["hops"] = s.hops;
  }
  return path;
}

void append_row(std::string& to, std::initializer_list<std::int64_t> numbers) {
  to += to.back() == '[' ? "\n[" : ",\n[";
  for (const std::int64_t n : numbers) to += std::to_string(n) + ",";
  to.back() = ']';
}

/// Millions of small rows: as text at once, a document tree of them would take a hundred times their memory.
std::string recording_json(const virtual_recording& rec, int parts) {
  std::string text = "\"spans\":[";
  for (const virtual_span& s : rec.spans)
    append_row(text, {s.actor, s.begin, s.end, static_cast<int>(s.kind), s.from, s.to, s.bytes, s.flow});
  text += "],\n\"moves\":[";
  for (const virtual_move& m : rec.moves)
    for (std::int32_t i = 0; i < m.cells; ++i) {
      const std::int64_t cell = m.block < 0 ? -1 : m.block * parts + m.part + i;
      append_row(text,
                 {m.flow, m.from, m.to, m.begin, m.end, cell < 0 ? -1 : cell / parts, cell < 0 ? -1 : cell % parts,
                  m.bytes * (i + 1) / m.cells - m.bytes * i / m.cells, m.reduces ? 1 : 0});
    }
  return text + "]";
}

json spread_json(const study_spread& s) {
  return {{"least_us", s.least}, {"median_us", s.median}, {"most_us", s.most}};
}

json jobs_json(const study_result& r) {
  const auto stretches = [](const std::vector<virtual_stretch>& of) {
    json all = json::array();
    for (const virtual_stretch& s : of) all.push_back({s.begin, s.end});
    return all;
  };
  json jobs = json::array();
  for (const study_job_row& j : r.jobs) {
    json calls = json::array();
    for (std::size_t c = 0; c < j.calls.size(); ++c) {
      const study_call_row& call = j.calls[c];
      std::vector<virtual_stretch> times;
      for (const auto& round : j.times.calls) times.push_back(round[c]);
      calls.push_back({{"collective", name(call.what.kind)},
                       {"bytes", call.bytes},
                       {"choreography", call.choreography},
                       {"protocol", call.protocol},
                       {"channels", call.cut.channels},
                       {"slices", call.cut.slices},
                       {"slices_per_step", call.cut.slices_per_step},
                       {"verified", call.verified},
                       {"bound_us", call.bound_us},
                       {"together", spread_json(call.together)},
                       {"alone", spread_json(call.alone)},
                       {"times_ps", stretches(times)}});
    }
    jobs.push_back({{"name", j.name},
                    {"ranks", j.ranks},
                    {"layout", j.places.to_string()},
                    {"together", spread_json(j.together)},
                    {"alone", spread_json(j.alone)},
                    {"slow_down", j.slow_down()},
                    {"end_us", j.end_us()},
                    {"rounds_ps", stretches(j.times.rounds)},
                    {"calls", std::move(calls)}});
  }
  return jobs;
}

json shared_json(const study_result& r) {
  json all = json::array();
  for (const study_shared_element& s : r.shared)
    all.push_back({{"element", r.on->elements[s.element].name},
                   {"busy_ps", r.together.use[s.element].busy_ps},
                   {"queued_ps", r.together.use[s.element].queued_ps},
                   {"busy_ps_alone", s.busy_ps}});
  return all;
}

/// Of jobs: a document of its own. The page shows each job as an actor, and its calls as spans of two kinds in turn, with the collective's name;
/// then the elements that jobs share, whose spans have the job's name.
std::string jobs_document(const study_result& r, json sweeps) {
  json actors = json::array(), spans = json::array(), use = json::array(), names = json::array();
  for (const study_job_row& j : r.jobs) names.push_back(j.name);
  names.push_back("own work");
  std::map<std::string, std::size_t> collectives;
  const auto name_of = [&](const study_call_row& call) {
    const auto [at, fresh] = collectives.try_emplace(name(call.what.kind), names.size());
    if (fresh) names.push_back(at->first);
    return at->second;
  };
  for (std::size_t i = 0; i < r.jobs.size(); ++i) {
    const study_job_row& j = r.jobs[i];
    actors.push_back({{"name", j.name}, {"kind", "job"}, {"rank", -1}});
    for (const auto& round : j.times.calls)
      for (std::size_t c = 0; c < round.size(); ++c)
        spans.push_back({i, round[c].begin, round[c].end, c % 2, -1, -1, j.calls[c].bytes, -1, name_of(j.calls[c])});
  }
  for (const study_shared_element& s : r.shared) {
    use.push_back({{"actor", actors.size()},
                   {"busy_ps", r.together.use[s.element].busy_ps},
                   {"bytes", r.together.use[s.element].bytes},
                   {"share", r.together.end_ps == 0 ? 0
                                                    : static_cast<double>(r.together.use[s.element].busy_ps) /
                                                          r.on->class_of(static_cast<element_index>(s.element)).units /
                                                          static_cast<double>(r.together.end_ps)}});
    actors.push_back({{"name", r.on->elements[s.element].name},
                      {"kind", name(r.on->class_of(static_cast<element_index>(s.element)).role)},
                      {"rank", r.on->elements[s.element].rank}});
  }
  if (r.occupied) {
    std::vector<std::size_t> actor_of(r.on->elements.size(), 0);
    for (std::size_t i = 0; i < r.shared.size(); ++i) actor_of[r.shared[i].element] = r.jobs.size() + i;
    for (const element_recording::stretch& s : r.occupied->stretches)
      spans.push_back({actor_of[static_cast<std::size_t>(s.element)], s.begin, s.end, 2, s.from, s.to, s.bytes, -1,
                       s.job < 0 ? r.jobs.size() : static_cast<std::size_t>(s.job)});
  }
  const json out{{"troupe_study", 1},
                 {"title", title_of(r)},
                 {"scenario", r.scenario.as_said},
                 {"preset", r.scenario.preset_name},
                 {"ranks", r.on->ranks},
                 {"end_ps", r.together.end_ps},
                 {"span_kinds", {"call", "next_call", "occupy"}},
                 {"span_names", std::move(names)},
                 {"complete", !r.occupied || r.occupied->complete},
                 {"actors", std::move(actors)},
                 {"jobs", jobs_json(r)},
                 {"shared", shared_json(r)},
                 {"utilisation", std::move(use)},
                 {"energy", energy_json(*r.on, r.together.use, r.together.end_ps)},
                 {"sweeps", std::move(sweeps)},
                 {"remarks", r.remarks},
                 {"spans", std::move(spans)}};
  return out.dump() + "\n";
}

json sweeps_json(const std::vector<study_sweep_result>& sweeps) {
  json all = json::array();
  for (const study_sweep_result& sweep : sweeps) {
    json points = json::array();
    for (const auto& [value, of] : sweep.points)
      if (!of.jobs.empty()) points.push_back({{"value", value}, {"jobs", jobs_json(of)}});
    for (const auto& [value, of] : sweep.points)
      for (const study_row& row : of.rows)
        points.push_back({{"value", value},
                          {"bytes", row.bytes},
                          {"time_us", row.time_us},
                          {"busbw", row.busbw},
                          {"choreography", row.choreography},
                          {"protocol", row.protocol},
                          {"channels", row.cut.channels},
                          {"slices", row.cut.slices},
                          {"slices_per_step", row.cut.slices_per_step}});
    json refused = json::array();
    for (const auto& [value, why] : sweep.refused) refused.push_back({{"value", value}, {"why", why}});
    all.push_back({{"key", sweep.what.key}, {"points", std::move(points)}, {"refused", std::move(refused)}});
  }
  return all;
}

}  // namespace

namespace {

json use_json(const study_result& r, const study_row& row) {
  json use = json::array();
  for (const std::size_t e : by_use(row))
    use.push_back({{"actor", static_cast<std::size_t>(r.on->ranks) + e},
                   {"busy_ps", row.outcome.use[e].busy_ps},
                   {"bytes", row.outcome.use[e].bytes},
                   {"share", share_of(r, row, e)}});
  return use;
}

/// Of an object of a row, which is its text: closes it behind what was recorded.
std::string with_recording(const json& object, const study_row* row) {
  std::string text = object.dump();
  text.back() = ',';
  static const virtual_recording none;
  return text + "\n" +
         recording_json(row != nullptr && row->recording ? *row->recording : none,
                        row != nullptr && row->notes ? row->notes->parts : 1) +
         "}";
}

/// Of a row that is not shown, what the document says of the one that is.
std::string other_size_json(const study_result& r, std::size_t index) {
  const study_row& row = r.rows[index];
  return with_recording({{"row", index},
                         {"bytes", row.bytes},
                         {"choreography", row.choreography},
                         {"protocol", row.protocol},
                         {"end_ps", row.outcome.end_ps},
                         {"parts", row.notes ? row.notes->parts : 1},
                         {"critical_path", path_json(r, row)},
                         {"complete", !row.recording || row.recording->complete},
                         {"utilisation", use_json(r, row)}},
                        &row);
}

json flow_row_json(const study_result& r, std::size_t i) {
  const study_row& row = r.rows[i];
  json nodes = json::array();
  for (std::size_t n = 0; n < r.scenario.flow.nodes.size(); ++n) {
    const study_node_use& u = r.flow_rows[i].nodes[n];
    nodes.push_back({{"name", r.scenario.flow.nodes[n].name},
                     {"kernel", r.scenario.flow.nodes[n].kernel},
                     {"begin_us", u.begin_us},
                     {"end_us", u.end_us},
                     {"busy_us", u.busy_us},
                     {"wait_us", u.wait_us},
                     {"core_us", u.core_us},
                     {"moved_bytes", u.moved_bytes}});
  }
  return {{"bytes", row.bytes},
          {"count", row.count},
          {"type", name(r.scenario.type)},
          {"time_us", row.time_us},
          {"end_ps", row.outcome.end_ps},
          {"tiles", r.flow_rows[i].tiles},
          {"choreography", row.choreography},
          {"protocol", row.protocol},
          {"nodes", std::move(nodes)}};
}

json flow_actors_json(const study_result& r) {
  const study_flow& flow = r.scenario.flow;
  json actors = json::array();
  for (int rank = 0; rank < r.on->ranks; ++rank) {
    const std::string who = "rank " + std::to_string(rank);
    const auto add = [&](const std::string& what, const char* kind) {
      actors.push_back({{"name", what}, {"kind", kind}, {"rank", rank}});
    };
    add(who, "rank");
    for (const study_node& n : flow.nodes) add(who + " " + n.name, "node");
    for (int core = 0; core < flow.cores; ++core) add(who + " core " + std::to_string(core), "core");
  }
  for (std::size_t e = 0; e < r.on->elements.size(); ++e)
    actors.push_back({{"name", r.on->elements[e].name},
                      {"kind", name(r.on->class_of(static_cast<element_index>(e)).role)},
                      {"rank", r.on->elements[e].rank}});
  return actors;
}

/// What is of one size: an object, whose last member are its spans.
std::string flow_size_json(const study_result& r, std::size_t i, std::vector<std::string>& names) {
  const study_row& row = r.rows[i];
  const flow_tracks tracks{r.scenario.flow, r.on->ranks};
  json path = json::array(), use = json::array();
  for (const flow_stretch& s : r.flow_rows[i].path)
    path.push_back({{"begin_ps", s.begin_ps},
                    {"end_ps", s.end_ps},
                    {"actor", s.core >= 0 ? tracks.of_core(s.rank, s.core)
                              : s.spent == flow_stretch::part::memory || s.spent == flow_stretch::part::queue
                                  ? tracks.of_node(s.rank, s.node)
                                  : tracks.of_rank(s.rank)},
                    {"spent", name(s.spent)},
                    {"text", s.text}});
  for (const std::size_t e : by_use(row))
    use.push_back({{"actor", tracks.of_element(e)},
                   {"busy_ps", row.outcome.use[e].busy_ps},
                   {"bytes", row.outcome.use[e].bytes},
                   {"share", share_of(r, row, e)}});
  std::string spans = "\"spans\":[";
  const bool complete = append_flow_spans(spans, r, i, names) || !r.flow_rows[i].lowered;
  std::string text = json{
      {"row", i},
      {"bytes", row.bytes},
      {"end_ps", row.outcome.end_ps},
      {"critical_path", std::move(path)},
      {"complete", complete},
      {"utilisation",
       std::move(use)}}.dump();
  text.back() = ',';
  return text + "\n" + spans + "]}";
}

/// Of a flow: a document of its own, of times and nodes, with a timeline of tiles.
std::string flow_document(const study_result& r, json sweeps) {
  json rows = json::array();
  for (std::size_t i = 0; i < r.rows.size(); ++i) rows.push_back(flow_row_json(r, i));
  std::vector<std::string> names;
  std::string sizes;
  for (std::size_t i = 0; i < r.rows.size(); ++i)
    if (i != r.shown) sizes += (sizes.empty() ? "\n" : ",\n") + flow_size_json(r, i, names);
  const std::string shown = r.rows.empty() ? "{}" : flow_size_json(r, r.shown, names);
  std::string text = json{
      {"troupe_study", 1},
      {"title", title_of(r)},
      {"timeline", true},
      {"scenario", r.scenario.as_said},
      {"preset", r.scenario.preset_name},
      {"ranks", r.on->ranks},
      {"span_kinds", {"launch", "compute", "copy", "sync", "call"}},
      {"span_names", names},
      {"actors", flow_actors_json(r)},
      {"rows", std::move(rows)},
      {"sweeps", std::move(sweeps)},
      {"remarks",
       r.remarks}}.dump();
  text.back() = ',';
  if (shown.size() > 2) text += "\n" + shown.substr(1, shown.size() - 2) + ",";
  return text + "\n\"sizes\":[" + sizes + "]}\n";
}

}  // namespace

std::string study_json(const study_result& r, const std::vector<study_sweep_result>& sweeps) {
  if (!r.jobs.empty()) return jobs_document(r, sweeps_json(sweeps));
  if (!r.flow_rows.empty()) return flow_document(r, sweeps_json(sweeps));
  const study_row* row = r.shown_row();
  json kinds = json::array();
  for (int k = 0; k < span_kind_count; ++k) kinds.push_back(name(static_cast<span_kind>(k)));
  const json out{{"troupe_study", 1},
                 {"title", title_of(r)},
                 {"scenario", r.scenario.as_said},
                 {"collective", name(r.scenario.kind)},
                 {"choreography", row ? row->choreography : r.scenario.choreography},
                 {"protocol", row ? row->protocol : r.scenario.protocol},
                 {"preset", r.scenario.preset_name},
                 {"ranks", r.on->ranks},
                 {"sides", r.on->sides},
                 {"row", r.shown},
                 {"bytes", row ? row->bytes : 0},
                 {"end_ps", row ? row->outcome.end_ps : 0},
                 {"blocks", block_count(r.scenario.kind.what, r.on->ranks)},
                 {"parts", row && row->notes ? row->notes->parts : 1},
                 {"span_kinds", std::move(kinds)},
                 {"actors", actors_json(r)},
                 {"critical_path", row ? path_json(r, *row) : json::array()},
                 {"complete", !row || !row->recording || row->recording->complete},
                 {"rows", rows_json(r)},
                 {"utilisation", row ? use_json(r, *row) : json::array()},
                 {"sweeps", sweeps_json(sweeps)},
                 {"remarks", r.remarks}};
  std::string text = with_recording(out, row);
  text.back() = ',';
  text += "\n\"sizes\":[";
  for (std::size_t i = 0; i < r.rows.size(); ++i)
    if (i != r.shown) text += (text.back() == '[' ? "\n" : ",\n") + other_size_json(r, i);
  return text + "]}\n";
}

}  // namespace troupe
