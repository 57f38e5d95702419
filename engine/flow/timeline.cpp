// SPDX-License-Identifier: Apache-2.0
#include "engine/flow/timeline.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "engine/flow/flow_inside.hpp"
#include "engine/flow/flow_record.hpp"
#include "engine/flow/trace_events.hpp"
#include "memory/error.hpp"

namespace troupe {

struct timeline::inside {
  mutable std::mutex mutex;  // once a run
  std::vector<flow_record> runs;
};

timeline::timeline() : inside_(std::make_unique<inside>()) {}
timeline::~timeline() = default;

void timeline::clear() {
  const std::lock_guard lock(inside_->mutex);
  inside_->runs.clear();
}

void flow::record(timeline& into, flow_record what) {
  const std::lock_guard lock(into.inside_->mutex);
  into.inside_->runs.push_back(std::move(what));
}

namespace {

using actors::flow_node;
using actors::flow_plan;
using actors::flow_wait;

class flow_trace {
public:
  std::string write(const std::vector<flow_record>& runs) {
    for (std::size_t r = 0; r < runs.size(); ++r) {
      run_ = r;
      of_ = &runs[r];
      name_tracks();
      for (std::size_t n = 0; n < of_->nodes.size(); ++n)
        for (const flow_span& s : of_->nodes[n].spans()) add(static_cast<std::int32_t>(n), s);
    }
    for (const auto& [rank, curve] : working_) curve.write(events_, rank, "nodes at work");
    for (const auto& [rank, curve] : waiting_) curve.write(events_, rank, "nodes that wait");
    return events_.finish();
  }

private:
  static std::int64_t ps(flow_clock::time_point t) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count() * 1000;
  }
  trace_events::track track(std::int32_t node) const { return {of_->rank, node}; }
  const flow_plan& plan() const { return *of_->plan; }
  const flow_node& node(std::int32_t n) const { return plan().nodes[static_cast<std::size_t>(n)]; }
  std::string giver(std::int32_t stream) const {
    return node(plan().streams[static_cast<std::size_t>(stream)].from).name;
  }
  /// A tile of a stream in a run, as a number of its own. A stream has less than 2^20 tiles in every trace that can be looked at.
  std::string id(std::int32_t stream, std::int32_t index) const {
    return std::to_string(
        (static_cast<std::uint64_t>(run_) * plan().streams.size() + static_cast<std::uint64_t>(stream)) << 20 |
        static_cast<std::uint32_t>(index));
  }

  void name_tracks() {
    if (!named_.insert({of_->rank, plan().name}).second) return;
    events_.name_process(of_->rank, plan().name + ", rank " + std::to_string(of_->rank));
    for (std::size_t n = 0; n < plan().nodes.size(); ++n)
      events_.name_track(track(static_cast<std::int32_t>(n)), plan().nodes[n].name);
  }

  void add(std::int32_t n, const flow_span& s) {
    using kind_of = flow_span::kind_of;
    const flow_node& me = node(n);
    const std::string arguments = "\"tile\":" + std::to_string(s.index) + ",\"run\":" + std::to_string(run_);
    switch (s.kind) {
      case kind_of::work:
        events_.span(track(n), me.name + " " + std::to_string(s.index), "work", ps(s.begin), ps(s.end), arguments);
        working_[of_->rank].add(ps(s.begin), ps(s.end));
        if (me.lead == 0 && me.every == 1)
          for (const std::int32_t input : me.inputs)
            events_.arrow_ends(track(n), "tile", id(input, s.index), ps(s.begin));
        if (me.output >= 0) events_.arrow_begins(track(n), "tile", id(me.output, s.index), ps(s.end));
        return;
      case kind_of::ready: {
        const std::int64_t at = ps(s.begin);
        events_.span(track(n), "part " + std::to_string(s.index) + " travels", "ready", at, at + moment, arguments);
        for (std::int32_t b = 0; b < me.blocks_in; ++b)
          events_.arrow_ends(track(n), "tile", id(me.inputs.front(), s.index * me.blocks_in + b), at);
        return;
      }
      case kind_of::arrives: {
        const std::int64_t at = ps(s.begin);
        events_.span(track(n), "tile " + std::to_string(s.index) + " arrives", "arrival", at, at + moment, arguments);
        events_.arrow_begins(track(n), "tile", id(me.output, s.index), at);
        return;
      }
      case kind_of::waits: return add_wait(n, s);
    }
  }

  void add_wait(std::int32_t n, const flow_span& s) {
    using what_for = flow_wait::what_for;
    std::string what;
    if (s.wait.what == what_for::tile)
      what = "waits for tile " + std::to_string(s.index) + " of " + giver(s.wait.stream);
    else if (s.wait.what == what_for::part) what = "waits for other ranks";
    else what = "waits for credit";
    events_.span(track(n), what, "wait", ps(s.begin), ps(s.end), "\"tile\":" + std::to_string(s.index));
    waiting_[of_->rank].add(ps(s.begin), ps(s.end));
  }

  static constexpr std::int64_t moment = 200'000;  ///< ps: what arrows need to end somewhere
  trace_events events_;
  std::set<std::pair<int, std::string>> named_;
  std::map<int, trace_curve> working_, waiting_;  ///< by rank
  std::size_t run_ = 0;
  const flow_record* of_ = nullptr;
};

}  // namespace

std::string timeline::json() const {
  const std::lock_guard lock(inside_->mutex);
  return flow_trace{}.write(inside_->runs);
}

void timeline::write(const std::string& path) const {
  std::ofstream file{path, std::ios::binary};
  file << json();
  if (!file.flush()) throw error(errc::io, "cannot write the timeline to " + path);
}

}  // namespace troupe
