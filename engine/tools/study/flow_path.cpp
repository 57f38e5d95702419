// SPDX-License-Identifier: Apache-2.0
// From the end of a flow back to its begin: what each operation had to wait for last, merged into sentences.
#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <utility>

#include "engine/tools/study/study.hpp"
#include "engine/tools/study/text.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

using op_kind = replay_operation::kind;
using flow_part = flow_stretch::part;

class flow_path_finder {
public:
  flow_path_finder(const study_flow& flow, const hardware& on, const lowered_flow& made, const replay_outcome& times)
      : flow_(flow),
        on_(on),
        made_(made),
        times_(times),
        of_collective_(made.trace.collectives.size()),
        node_of_collective_(made.trace.collectives.size(), -1) {
    for (int r = 0; r < static_cast<int>(made.trace.ranks.size()); ++r) {
      const auto& operations = made.trace.ranks[static_cast<std::size_t>(r)].operations;
      most_ += operations.size();
      for (std::uint32_t i = 0; i < operations.size(); ++i) {
        if (operations[i].what == op_kind::collective || operations[i].what == op_kind::ready)
          of_collective_[operations[i].amount].push_back({r, i});
        if (operations[i].what == op_kind::collective)
          node_of_collective_[operations[i].amount] = made.owners[static_cast<std::size_t>(r)][i].node;
        if (operations[i].what == op_kind::calc) works_.push_back({r, operations[i].cpu, span({r, i}).end, i});
        if (at_.rank < 0 || span({r, i}).end > span(at_).end) at_ = {r, i};
      }
    }
    std::ranges::sort(works_);
  }

  std::vector<flow_stretch> find() {
    if (at_.rank < 0) return {};
    now_ = span(at_).end;
    // No operation is come to twice: what it waited for was caused before it.
    for (std::size_t i = 0; i < most_ && step(); ++i) {}
    std::ranges::reverse(found_);
    return merged();
  }

private:
  /// Of a core, by when it ended.
  struct core_work {
    int rank;
    std::int32_t core;
    std::int64_t end;
    std::uint32_t operation;
    auto operator<=>(const core_work&) const = default;
  };
  struct found {
    flow_stretch what;
    bool writes = false;
    rank_t share = any_rank;  ///< of L2
    lowered_flow::owner tile{};
  };

  const replay_span& span(replay_place o) const { return times_.spans[static_cast<std::size_t>(o.rank)][o.operation]; }
  const replay_operation& operation(replay_place o) const {
    return made_.trace.ranks[static_cast<std::size_t>(o.rank)].operations[o.operation];
  }
  const lowered_flow::owner& owner() const { return made_.owners[static_cast<std::size_t>(at_.rank)][at_.operation]; }

  void spend(flow_part what, std::int64_t from) {
    if (from < now_) {
      const replay_operation& o = operation(at_);
      const bool works = o.what == op_kind::calc && owner().node >= 0;
      found_.push_back({{what, at_.rank, owner().node, works ? o.cpu : -1, from, now_, {}},
                        o.what == op_kind::memory && o.tag != 0,
                        o.what == op_kind::memory ? o.peer : any_rank,
                        owner()});
      if (o.what == op_kind::collective || o.what == op_kind::arrived)
        found_.back().what.node = node_of_collective_[o.amount];
      if (o.what == op_kind::calc && owner().node < 0) found_.back().what.node = first_of_kernel(o.line);
    }
    now_ = std::min(now_, from);
  }
  /// A rank's first operations are its kernels' launches. −1: it is none, but a kernel's end.
  int first_of_kernel(std::uint32_t operation) const {
    for (std::size_t n = 0; n < flow_.nodes.size(); ++n)
      if (flow_.nodes[n].kernel == static_cast<int>(operation)) return static_cast<int>(n);
    return -1;
  }

  bool go(replay_place to) {
    at_ = to;
    return true;
  }

  /// Goes to what the present operation waited for. False: to the start.
  bool step() {
    const replay_span s = span(at_);
    const replay_operation& o = operation(at_);
    switch (o.what) {
      case op_kind::arrived:
        if (s.end <= s.ready) break;  // its part was there
        return step_of_collective(o);
      case op_kind::collective: return step_of_collective(o);
      case op_kind::memory:
        spend(flow_part::memory, std::max(s.begin, now_ - alone(o)));
        spend(flow_part::queue, s.begin);
        break;
      default:
        spend(owner().node < 0 ? flow_part::launch : flow_part::compute, s.begin);
        if (s.begin > s.ready && go_to_work_before(o.cpu, s.begin)) return true;
        spend(flow_part::core, s.ready);
    }
    return s.from >= 0 && go({s.from, s.operation});
  }

  /// To what its core worked on until then. False: others had it.
  bool go_to_work_before(std::int32_t core, std::int64_t then) {
    const auto found = std::ranges::lower_bound(works_, core_work{at_.rank, core, then, 0});
    if (found == works_.end() || found->rank != at_.rank || found->core != core || found->end != then) return false;
    const replay_place before{at_.rank, found->operation};
    return span(before).begin < then && go(before);  // what takes no time cannot have kept it
  }

  /// It waited for the last rank that came to it, or said that a part is ready: of a part, for those whose parts are in it.
  bool step_of_collective(const replay_operation& o) {
    const study_node& n = flow_.node(node_of_collective_[o.amount]);
    const bool syncs = n.what != study_node::kind::collective;
    const int source = o.what == op_kind::arrived && n.whole ? static_cast<int>(o.tag / n.parts) : -1;
    replay_place last{};
    std::int64_t since = std::numeric_limits<std::int64_t>::min();
    for (const replay_place& other : of_collective_[o.amount]) {
      const bool tells = operation(other).what == op_kind::ready;
      if (o.what == op_kind::arrived && tells && operation(other).tag != o.tag % n.parts) continue;
      if (source >= 0 && other.rank != source && other.rank != at_.rank) continue;
      if (source >= 0 && tells && other.rank != source) continue;
      const std::int64_t then = tells ? span(other).end : span(other).begin;
      if (then > since && then <= now_) since = then, last = other;
    }
    if (last.rank < 0) return go_before(at_);
    spend(syncs ? flow_part::sync : flow_part::collective, since);
    return operation(last).what == op_kind::ready ? go(last) : go_before(last);
  }
  /// To what one that comes to a collective waited for on its own rank; its span names the last rank that came.
  bool go_before(replay_place o) {
    replay_place last{};
    for (const replay_dependency& n : made_.trace.ranks[static_cast<std::size_t>(o.rank)].needs)
      if (n.later == o.operation && (last.rank < 0 || span({o.rank, n.earlier}).end > span(last).end))
        last = {o.rank, n.earlier};
    return last.rank >= 0 && go(last);
  }

  /// How long it takes where nothing else is under way.
  std::int64_t alone(const replay_operation& o) const {
    std::vector<element_index> way;
    if (o.peer != any_rank) on_.access(at_.rank, {o.peer, true}, o.tag != 0, way);
    else if (const element_index dma = on_.place_of(at_.rank).dma; dma != no_element) way.push_back(dma);
    return (on_.time_along(way, o.amount) + on_.host.transfer).count();
  }

  // -- sentences ------------------------------------------------------------------------------------------------------

  static bool alike(const found& a, const found& b) {
    return a.what.spent == b.what.spent && a.what.rank == b.what.rank && a.what.node == b.what.node &&
           a.what.core == b.what.core && a.writes == b.writes && (a.share == any_rank) == (b.share == any_rank);
  }

  std::vector<flow_stretch> merged() const {
    std::vector<flow_stretch> all;
    for (std::size_t i = 0; i < found_.size();) {
      std::size_t end = i + 1, tiles = 1;
      while (end < found_.size() && alike(found_[i], found_[end])) {
        const auto &before = found_[end - 1].tile, &next = found_[end].tile;
        tiles += before.block != next.block || before.tile != next.tile ? 1 : 0;
        ++end;
      }
      flow_stretch one = found_[i].what;
      one.end_ps = found_[end - 1].what.end_ps;
      one.text = sentence(found_[i], tiles);
      all.push_back(std::move(one));
      i = end;
    }
    return all;
  }

  std::string sentence(const found& f, std::size_t tiles) const {
    const std::string rank = "rank " + std::to_string(f.what.rank),
                      node = f.what.node < 0 ? "a kernel" : flow_.node(f.what.node).name;
    const std::string which = tiles > 1 ? plural(tiles, "tile")
                              : f.tile.tile < 0
                                  ? "other operands"
                                  : "tile " + std::to_string(f.tile.block) + "." + std::to_string(f.tile.tile);
    const std::string core = rank + ", core " + std::to_string(f.what.core) + ": " + node;
    const std::string tier = f.share == any_rank ? "l1" : "l2";
    switch (f.what.spent) {
      case flow_part::launch: return rank + ": the launch of " + node;
      case flow_part::compute: return core + " worked on " + which;
      case flow_part::core: return core + " waited for the core, " + which;
      case flow_part::memory:
        return rank + ": " + node + (f.writes ? " stored " : " loaded ") + which + (f.writes ? " in " : " from ") +
               tier;
      case flow_part::queue:
        return rank + ": " + node + " waited for elements, to " + (f.writes ? "store " : "load ") + which +
               (f.writes ? " in " : " from ") + tier;
      case flow_part::collective: return rank + ": " + node;
      case flow_part::sync: return "all ranks met, for " + node;
    }
    return {};
  }

  const study_flow& flow_;
  const hardware& on_;
  const lowered_flow& made_;
  const replay_outcome& times_;
  std::vector<std::vector<replay_place>> of_collective_;  ///< who comes to it, or says that a part is ready
  std::vector<int> node_of_collective_;  ///< that performs it; of a sync the one whose input waits for it
  std::vector<core_work> works_;
  std::size_t most_ = 0;
  replay_place at_;
  std::int64_t now_ = 0;
  std::vector<found> found_;
};

}  // namespace

std::string_view name(flow_stretch::part which) noexcept {
  constexpr std::array<std::string_view, flow_stretch::parts> names{"launch", "compute",    "core", "memory",
                                                                    "queue",  "collective", "sync"};
  return names[static_cast<std::size_t>(which)];
}

std::vector<flow_stretch> flow_path(const study_flow& flow, const hardware& on, const lowered_flow& made,
                                    const replay_outcome& times) {
  return flow_path_finder{flow, on, made, times}.find();
}

void print_flow_path(std::ostream& to, const study_result& r) {
  using study_text::format;
  constexpr std::size_t most = 100;
  if (r.rows.empty() || r.flow_rows[r.shown].path.empty()) return;
  const std::vector<flow_stretch>& path = r.flow_rows[r.shown].path;
  std::array<std::int64_t, flow_stretch::parts> total{};
  for (const flow_stretch& s : path) total[static_cast<std::size_t>(s.spent)] += s.end_ps - s.begin_ps;
  const auto end = static_cast<double>(std::max<std::int64_t>(1, r.shown_row()->outcome.end_ps));
  std::string shares;
  for (std::size_t i = 0; i < total.size(); ++i)
    if (total[i] > 0)
      shares += (shares.empty() ? " " : ", ") + format("%.1f%% ", 100 * static_cast<double>(total[i]) / end) +
                std::string{name(static_cast<flow_part>(i))};
  to << "#\n# Critical path:" << shares << '\n';
  for (std::size_t i = 0; i < std::min(most, path.size()); ++i)
    to << format("# %10.2f … %10.2f us  ", static_cast<double>(path[i].begin_ps) / 1e6,
                 static_cast<double>(path[i].end_ps) / 1e6)
       << path[i].text << '\n';
  if (path.size() > most) to << "# and " << path.size() - most << " more; --json has all\n";
}

}  // namespace troupe
