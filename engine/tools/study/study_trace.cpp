// SPDX-License-Identifier: Apache-2.0
// Chrome's trace format, which Perfetto and chrome://tracing read (Trace Event Format, Google, 2016): a track an actor (several
// where it does several things at once), an arrow a chunk, and curves of what is under way and of how many messages the elements of a class serve.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

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
    const virtual_recording& rec = *result_.shown_row()->recording;
    place(rec.spans);
    name_processes();
    for (std::size_t i = 0; i < rec.spans.size(); ++i)
      add_span(rec.spans[i], first_[actor_at(rec.spans[i].actor)] + on_[i]);
    for (const virtual_move& m : rec.moves) add_flow(m);
    add_ends();
    add_curves(rec);
    return events_.finish();
  }

private:
  static std::size_t actor_at(std::int32_t actor) { return static_cast<std::size_t>(actor); }
  std::int64_t process_of(std::int32_t actor) const {
    return actor < result_.on->ranks ? rank_process : element_process;
  }
  /// The first of the actor's.
  trace_events::track track(std::int32_t actor) const { return {process_of(actor), first_[actor_at(actor)]}; }

  /// A track shows only spans that follow or enclose each other: the lanes of a rank that wait at once take tracks beside each other.
  void place(const std::vector<virtual_span>& spans) {
    const std::size_t actors = static_cast<std::size_t>(result_.on->ranks) + result_.on->elements.size();
    std::vector<std::size_t> order(spans.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return spans[a].begin < spans[b].begin; });
    std::vector<std::vector<std::int64_t>> ends(actors, std::vector<std::int64_t>(1, 0));  // by actor, by track of it
    on_.resize(spans.size());
    for (const std::size_t i : order) {
      auto& of = ends[actor_at(spans[i].actor)];
      const auto free = std::ranges::find_if(of, [&](std::int64_t end) { return end <= spans[i].begin; });
      on_[i] = free - of.begin();
      if (free == of.end()) of.push_back(spans[i].end);
      else *free = spans[i].end;
      if (spans[i].flow >= 0 && spans[i].actor < result_.on->ranks)
        of_message_[{spans[i].actor, spans[i].flow}].push_back(i);
    }
    for (const auto& of : ends) {
      first_.push_back(first_.empty() ? 0 : first_.back() + count_.back());
      count_.push_back(static_cast<std::int64_t>(of.size()));
    }
  }

  /// Where a message's arrow begins or ends: at what the rank did with it then.
  trace_events::track track_of(rank_t rank, std::int64_t message, std::int64_t ps) const {
    const std::vector<virtual_span>& spans = result_.shown_row()->recording->spans;
    trace_events::track found = track(rank);
    if (const auto at = of_message_.find({rank, message}); at != of_message_.end())
      for (const std::size_t i : at->second)
        if (spans[i].begin <= ps && ps <= spans[i].end) {
          found.thread += on_[i];
          break;
        }
    return found;
  }

  void name_tracks(std::int32_t actor, const std::string& name) {
    for (std::int64_t t = 0; t < count_[actor_at(actor)]; ++t)
      events_.name_track({process_of(actor), first_[actor_at(actor)] + t},
                         t == 0 ? name : name + " (" + std::to_string(t + 1) + ")");
  }

  void name_processes() {
    events_.name_process(rank_process, "ranks");
    events_.name_process(element_process, "elements");
    for (int r = 0; r < result_.on->ranks; ++r) name_tracks(r, "rank " + std::to_string(r));
    const auto& use = result_.shown_row()->outcome.use;
    for (std::size_t e = 0; e < use.size(); ++e)
      if (use[e].messages > 0)
        name_tracks(result_.on->ranks + static_cast<std::int32_t>(e), result_.on->elements[e].name);
  }

  void add_span(const virtual_span& s, std::int64_t thread) {
    const std::string kind{troupe::name(s.kind)};
    std::string name = kind;
    if (s.from >= 0 && s.to >= 0) name += " " + std::to_string(s.from) + "→" + std::to_string(s.to);
    events_.span({process_of(s.actor), thread}, name, kind, s.begin, s.end,
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
    events_.arrow_begins(track_of(m.from, m.flow, m.begin), "chunk", id, m.begin);
    events_.arrow_ends(track_of(m.to, m.flow, m.end), "chunk", id, m.end);
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
  std::vector<std::int64_t> on_;             ///< by span: which of its actor's tracks
  std::vector<std::int64_t> first_, count_;  ///< by actor: tracks
  std::map<std::pair<std::int32_t, std::int64_t>, std::vector<std::size_t>>
      of_message_;  ///< by rank and message: spans
  trace_events events_;
};

}  // namespace

std::string study_trace(const study_result& r) {
  if (r.rows.empty() || !r.shown_row()->recording)
    throw error(errc::invalid_argument, "there is no recording to make a trace of");
  return trace_writer{r}.write();
}

}  // namespace troupe
