// SPDX-License-Identifier: Apache-2.0
// What a study of a flow prints, and its timeline. Its JSON is in study_report.cpp with the rest.
#include <algorithm>
#include <utility>

#include "engine/flow/trace_events.hpp"
#include "engine/tools/study/study.hpp"
#include "engine/tools/study/text.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

using study_text::csv_field;
using study_text::format;
using study_text::time_text;

std::string where_text(const study_flow& flow, const study_node& n) {
  using tier = study_node::tier;
  switch (n.what) {
    case study_node::kind::source: return std::string{"a source, "} + (n.whole ? "the whole tensor" : "a share");
    case study_node::kind::sink: return "a sink";
    case study_node::kind::collective:
      return n.choreography + (n.parts > 0 ? ", " + plural(static_cast<std::size_t>(n.parts), "part") : "");
    case study_node::kind::work: break;
  }
  std::string text;
  for (const study_node::input& in : n.inputs) {
    const std::string& from = flow.node(in.from).name;
    if (!text.empty()) text += "; ";
    if (in.through == tier::l0) text += "takes " + from + " in l0";
    else if (in.through == tier::l1) text += "loads " + from + " from l1";
    else
      text += (n.exchanges == study_node::exchange::all_gather ? "gathers " : "sums ") + from + " from l2" +
              (n.syncs == study_node::sync::tile ? ", a sync a tile" : "");
  }
  return text;
}

}  // namespace

void print_flow(std::ostream& to, const study_result& r) {
  to << "#\n"
     << format("# %10s  %12s  %8s  %9s\n", "size", "count", "type", "time")
     << format("# %10s  %12s  %8s  %9s\n", "(B)", "(elements)", "", "(us)");
  for (const study_row& row : r.rows)
    to << format("%12zu  %12zu  %8s  %9s\n", row.bytes, row.count, std::string{nccl_name(r.scenario.type)}.c_str(),
                 time_text(row.time_us).c_str());
  if (r.rows.empty()) return;
  const study_flow& flow = r.scenario.flow;
  to << "#\n# Nodes at " << bytes_text(r.shown_row()->bytes) << ", "
     << plural(static_cast<std::size_t>(r.flow_rows[r.shown].tiles), "tile") << " a share on "
     << plural(static_cast<std::size_t>(flow.cores), "core") << " a rank:\n"
     << format("# %-16s %6s  %9s  %9s  %9s  %9s  %9s  %12s\n", "node", "kernel", "begin(us)", "end(us)", "busy(us)",
               "wait(us)", "core(us)", "moved(B)");
  for (std::size_t i = 0; i < flow.nodes.size(); ++i) {
    const study_node& n = flow.nodes[i];
    const study_node_use& u = r.flow_rows[r.shown].nodes[i];
    if (n.kernel < 0) {
      to << format("# %-16s %6s  ", n.name.c_str(), "-") << where_text(flow, n) << '\n';
      continue;
    }
    to << format("# %-16s %6d  %9s  %9s  %9s  %9s  %9s  %12s  ", n.name.c_str(), n.kernel,
                 time_text(u.begin_us).c_str(), time_text(u.end_us).c_str(), time_text(u.busy_us).c_str(),
                 time_text(u.wait_us).c_str(), time_text(u.core_us).c_str(),
                 n.what == study_node::kind::collective ? "-" : std::to_string(u.moved_bytes).c_str())
       << where_text(flow, n) << '\n';
  }
}

std::string flow_csv_heading() {
  return "key,value,preset,ranks,bytes,count,type,tiles,node,kernel,begin_us,end_us,busy_us,wait_us,core_us,moved_"
         "bytes,"
         "refused\n";
}

std::string flow_csv(const study_result& r, const std::string& key, const std::string& value) {
  std::string text;
  for (std::size_t i = 0; i < r.rows.size(); ++i) {
    const study_row& row = r.rows[i];
    const std::string size = csv_field(key) + "," + csv_field(value) + "," + csv_field(r.scenario.preset_name) +
                             format(",%d,%zu,%zu,%s,%d,", r.on->ranks, row.bytes, row.count,
                                    std::string{name(r.scenario.type)}.c_str(), r.flow_rows[i].tiles);
    text += size + format(",,0.000000,%.6f,,,,,\n", row.time_us);
    for (std::size_t n = 0; n < r.scenario.flow.nodes.size(); ++n) {
      const study_node& node = r.scenario.flow.nodes[n];
      const study_node_use& u = r.flow_rows[i].nodes[n];
      if (node.kernel < 0) continue;
      text +=
          size + csv_field(node.name) +
          format(",%d,%.6f,%.6f,%.6f,%.6f,%.6f,", node.kernel, u.begin_us, u.end_us, u.busy_us, u.wait_us, u.core_us) +
          (node.what == study_node::kind::collective ? "" : std::to_string(u.moved_bytes)) + ",\n";
    }
  }
  return text;
}

namespace {

/// Rows of a rank: launches, then loads and stores of each node, then the cores.
class flow_trace_writer {
public:
  explicit flow_trace_writer(const study_result& r)
      : flow_(r.scenario.flow), row_(r.flow_rows[r.shown]), made_(*row_.lowered) {}

  std::string write() {
    for (std::size_t r = 0; r < made_.owners.size(); ++r) {
      for (std::size_t i = 0; i < made_.owners[r].size(); ++i) add(r, i);
      write_rows(static_cast<std::int64_t>(r));
      write_curves(static_cast<std::int64_t>(r));
    }
    return events_.finish();
  }

private:
  using kind = replay_operation::kind;

  void write_rows(std::int64_t rank) {
    events_.name_process(rank, "rank " + std::to_string(rank));
    std::int64_t next = std::exchange(launches_, {}).write(events_, rank, 0, "launches");
    for (std::size_t n = 0; n < nodes_.size(); ++n)
      if (flow_.nodes[n].kernel >= 0)
        next = std::exchange(nodes_[n], {}).write(events_, rank, next, flow_.nodes[n].name);
    for (std::size_t c = 0; c < cores_.size(); ++c)
      next = std::exchange(cores_[c], {}).write(events_, rank, next, "core " + std::to_string(c));
  }

  void add(std::size_t rank, std::size_t i) {
    const replay_operation& what = made_.trace.ranks[rank].operations[i];
    const lowered_flow::owner& of = made_.owners[rank][i];
    const replay_span& s = row_.outcome.spans[rank][i];
    if (s.end <= s.begin || what.what == kind::ready || what.what == kind::arrived) return;
    if (of.node < 0) return launches_.add("launch", "launch", s.begin, s.end, "");
    const study_node& n = flow_.nodes[static_cast<std::size_t>(of.node)];
    const std::string tile =
        of.tile < 0 ? std::string{} : " " + std::to_string(of.block) + "." + std::to_string(of.tile);
    const bool works = what.what == kind::calc;
    const bool syncs = what.what == kind::collective && n.what != study_node::kind::collective;
    const char* const category = works                       ? "work"
                                 : syncs                     ? "sync"
                                 : what.what == kind::memory ? (what.tag != 0 ? "store" : "load")
                                                             : "collective";
    if (works) working_.add(s.begin, s.end);
    if (what.what == kind::memory)
      accesses_.add(s.begin, s.end), bytes_.add(s.begin, s.end, static_cast<std::int64_t>(what.amount));
    trace_row& row = works ? cores_[static_cast<std::size_t>(what.cpu)] : nodes_[static_cast<std::size_t>(of.node)];
    row.add(works ? n.name + tile : category + tile, category, s.begin, s.end,
            what.what == kind::memory ? "\"bytes\":" + std::to_string(what.amount) + ",\"tier\":\"" +
                                            (what.peer == any_rank ? "l1" : "l2") + "\""
                                      : std::string{});
  }

  void write_curves(std::int64_t rank) {
    std::exchange(working_, {}).write(events_, rank, "cores at work");
    std::exchange(accesses_, {}).write(events_, rank, "loads and stores under way");
    std::exchange(bytes_, {}).write(events_, rank, "bytes of loads and stores under way");
  }

  const study_flow& flow_;
  const study_flow_row& row_;
  const lowered_flow& made_;
  // Of the present rank:
  trace_row launches_;
  std::vector<trace_row> nodes_{flow_.nodes.size()}, cores_{static_cast<std::size_t>(flow_.cores)};
  trace_curve working_, accesses_, bytes_;
  trace_events events_;
};

constexpr std::size_t most_flow_spans = 500'000;

}  // namespace

bool append_flow_spans(std::string& to, const study_result& r, std::size_t row, std::vector<std::string>& names) {
  using kind = replay_operation::kind;
  enum page_kind { launch, compute, copy, sync, call };
  const study_flow& flow = r.scenario.flow;
  const study_flow_row& of = r.flow_rows[row];
  if (!of.lowered) return false;
  const flow_tracks tracks{flow, r.on->ranks};
  std::size_t left = most_flow_spans;
  const auto number_of = [&](const std::string& name) {
    const auto at = std::ranges::find(names, name);
    if (at != names.end()) return static_cast<std::size_t>(at - names.begin());
    names.push_back(name);
    return names.size() - 1;
  };
  for (std::size_t rank = 0; rank < of.lowered->owners.size(); ++rank)
    for (std::size_t i = 0; i < of.lowered->owners[rank].size(); ++i) {
      const replay_operation& what = of.lowered->trace.ranks[rank].operations[i];
      const replay_span& s = of.outcome.spans[rank][i];
      if (s.end <= s.begin || what.what == kind::ready || what.what == kind::arrived) continue;
      if (left-- == 0) return false;
      const int node = of.lowered->owners[rank][i].node, me = static_cast<int>(rank);
      const std::string name = node < 0 ? "launch" : flow.node(node).name;
      int track = tracks.of_rank(me), how = launch;
      std::string called = name;
      if (what.what == kind::collective) {
        const bool syncs = flow.node(node).what != study_node::kind::collective;
        how = syncs ? sync : call;
        if (syncs) called = "sync for " + name;
      } else if (what.what == kind::memory) {
        track = tracks.of_node(me, node), how = copy;
        called += what.tag != 0 ? " stores" : " loads";
      } else if (node >= 0) {
        track = tracks.of_core(me, what.cpu), how = compute;
      }
      to += to.back() == '[' ? "\n[" : ",\n[";
      for (const std::int64_t n :
           {std::int64_t{track}, s.begin, s.end, std::int64_t{how}, std::int64_t{-1}, std::int64_t{-1},
            what.what == kind::memory ? static_cast<std::int64_t>(what.amount) : 0, std::int64_t{-1},
            static_cast<std::int64_t>(number_of(called))})
        to += std::to_string(n) + ",";
      to.back() = ']';
    }
  return true;
}

std::string flow_trace(const study_result& r) {
  if (r.flow_rows.empty() || !r.flow_rows[r.shown].lowered)
    throw error(errc::invalid_argument, "there is no recording to make a trace of");
  return flow_trace_writer{r}.write();
}

}  // namespace troupe
