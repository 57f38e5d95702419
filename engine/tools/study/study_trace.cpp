// SPDX-License-Identifier: Apache-2.0
// Chrome's trace format, which Perfetto and chrome://tracing read (Trace Event Format, Google, 2016): a track an actor, an arrow a
// chunk, and curves of what is under way and of how many messages the elements of a class serve.
#include <algorithm>
#include <map>
#include <string>

#include "engine/flow/trace_events.hpp"
#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

constexpr int rank_process = 1, element_process = 2;

class trace_writer {
public:
  explicit trace_writer(const study_result& r) : result_(r) {}

  std::string write() {
    name_processes();
    const virtual_recording& rec = *result_.shown_row()->recording;
    for (const virtual_span& s : rec.spans) add_span(s);
    for (const virtual_move& m : rec.moves) add_flow(m);
    add_ends();
    add_curves(rec);
    return events_.finish();
  }

private:
  trace_events::track track(std::int32_t actor) const {
    return {actor < result_.on->ranks ? rank_process : element_process, actor};
  }

  void name_processes() {
    events_.name_process(rank_process, "ranks");
    events_.name_process(element_process, "elements");
    for (int r = 0; r < result_.on->ranks; ++r) events_.name_track(track(r), "rank " + std::to_string(r));
    const auto& use = result_.shown_row()->outcome.use;
    for (std::size_t e = 0; e < use.size(); ++e)
      if (use[e].messages > 0)
        events_.name_track(track(result_.on->ranks + static_cast<std::int32_t>(e)), result_.on->elements[e].name);
  }

  void add_span(const virtual_span& s) {
    const std::string kind{troupe::name(s.kind)};
    std::string name = kind;
    if (s.from >= 0 && s.to >= 0) name += " " + std::to_string(s.from) + "→" + std::to_string(s.to);
    events_.span(track(s.actor), name, kind, s.begin, s.end,
                 "\"bytes\":" + std::to_string(s.bytes) + ",\"step\":" + std::to_string(s.step) +
                     ",\"lane\":" + std::to_string(s.lane) + ",\"message\":" + std::to_string(s.flow));
  }

  /// A lost rank's track shows since when; those of others, where their collective ended with an error.
  void add_ends() {
    const virtual_outcome& o = result_.shown_row()->outcome;
    for (const rank_loss& l : result_.on->losses)
      if (!o.ends.empty()) events_.span(track(l.rank), "lost", "lost", l.at_ps, std::max(l.at_ps, o.end_ps), "");
    for (std::size_t r = 0; r < o.ends.size(); ++r)
      if (o.ends[r].code != errc{})
        events_.span(track(static_cast<std::int32_t>(r)), make_error_code(o.ends[r].code).message(), "error",
                     o.finished[r], o.finished[r], "");
  }

  void add_flow(const virtual_move& m) {
    const std::string id = std::to_string(m.flow);
    events_.arrow_begins(track(m.from), "chunk", id, m.begin);
    events_.arrow_ends(track(m.to), "chunk", id, m.end);
  }

  void add_curves(const virtual_recording& rec) {
    trace_curve messages, bytes;
    for (const virtual_move& m : rec.moves) {
      bytes.add(m.begin, m.end, static_cast<std::int64_t>(m.bytes));
      messages.add(m.begin, m.end);
    }
    messages.write(events_, rank_process, "messages under way");
    bytes.write(events_, rank_process, "bytes under way");
    std::map<class_id, trace_curve> busy;
    for (const virtual_span& s : rec.spans) {
      if (s.kind != span_kind::occupy || s.actor < result_.on->ranks) continue;
      const auto element = static_cast<std::size_t>(s.actor - result_.on->ranks);
      busy[result_.on->elements[element].of].add(s.begin, s.end);
    }
    for (const auto& [of, curve] : busy)
      curve.write(events_, element_process, "messages served: " + result_.on->classes[of].name);
  }

  const study_result& result_;
  trace_events events_;
};

}  // namespace

std::string study_trace(const study_result& r) {
  if (r.rows.empty() || !r.shown_row()->recording)
    throw error(errc::invalid_argument, "there is no recording to make a trace of");
  return trace_writer{r}.write();
}

}  // namespace troupe
