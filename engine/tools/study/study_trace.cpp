// SPDX-License-Identifier: Apache-2.0
// Chrome's trace format, which Perfetto and chrome://tracing read (Trace Event Format, Google, 2016): a track an actor, an arrow a
// chunk.
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

/// Microseconds with all six digits of a picosecond.
std::string microseconds(std::int64_t ps) {
  char text[40];
  std::snprintf(text, sizeof text, "%lld.%06lld", static_cast<long long>(ps / 1'000'000),
                static_cast<long long>(ps % 1'000'000));
  return text;
}

constexpr int rank_process = 1, element_process = 2;

class trace_writer {
public:
  explicit trace_writer(const study_result& r) : result_(r) {}

  std::string write() {
    text_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    name_processes();
    const virtual_recording& rec = *result_.recording;
    for (const virtual_span& s : rec.spans) add_span(s);
    for (const virtual_move& m : rec.moves) add_flow(m);
    text_ += "\n]}\n";
    return std::move(text_);
  }

private:
  int process_of(std::int32_t actor) const { return actor < result_.on->ranks ? rank_process : element_process; }

  void event(const std::string& body) {
    text_ += first_ ? "\n{" : ",\n{";
    text_ += body + "}";
    first_ = false;
  }

  std::string where(std::int32_t actor) const {
    return "\"pid\":" + std::to_string(process_of(actor)) + ",\"tid\":" + std::to_string(actor);
  }

  void name_processes() {
    for (const auto& [pid, name] : {std::pair{rank_process, "ranks"}, std::pair{element_process, "elements"}})
      event("\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" + std::to_string(pid) + ",\"args\":{\"name\":\"" + name +
            "\"}");
    const auto name_track = [&](std::int32_t actor, const std::string& name) {
      event("\"ph\":\"M\",\"name\":\"thread_name\"," + where(actor) +
            ",\"args\":{\"name\":" + nlohmann::json(name).dump() + "}");
      event("\"ph\":\"M\",\"name\":\"thread_sort_index\"," + where(actor) +
            ",\"args\":{\"sort_index\":" + std::to_string(actor) + "}");
    };
    for (int r = 0; r < result_.on->ranks; ++r) name_track(r, "rank " + std::to_string(r));
    const auto& use = result_.rows.back().outcome.use;
    for (std::size_t e = 0; e < use.size(); ++e)
      if (use[e].messages > 0)
        name_track(result_.on->ranks + static_cast<std::int32_t>(e), result_.on->elements[e].name);
  }

  void add_span(const virtual_span& s) {
    std::string name{troupe::name(s.kind)};
    if (s.from >= 0 && s.to >= 0) name += " " + std::to_string(s.from) + "→" + std::to_string(s.to);
    event("\"ph\":\"X\",\"name\":\"" + name + "\",\"cat\":\"" + std::string{troupe::name(s.kind)} + "\"," +
          where(s.actor) + ",\"ts\":" + microseconds(s.begin) + ",\"dur\":" + microseconds(s.end - s.begin) +
          ",\"args\":{\"bytes\":" + std::to_string(s.bytes) + ",\"step\":" + std::to_string(s.step) +
          ",\"lane\":" + std::to_string(s.lane) + ",\"message\":" + std::to_string(s.flow) + "}");
  }

  void add_flow(const virtual_move& m) {
    const std::string common = "\"cat\":\"chunk\",\"name\":\"chunk\",\"id\":" + std::to_string(m.flow) + ",";
    event("\"ph\":\"s\"," + common + where(m.from) + ",\"ts\":" + microseconds(m.begin));
    event("\"ph\":\"f\",\"bp\":\"e\"," + common + where(m.to) + ",\"ts\":" + microseconds(m.end));
  }

  const study_result& result_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

std::string study_trace(const study_result& r) {
  if (!r.recording || r.rows.empty()) throw error(errc::invalid_argument, "there is no recording to make a trace of");
  return trace_writer{r}.write();
}

}  // namespace troupe
