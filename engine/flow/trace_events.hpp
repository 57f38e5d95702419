// SPDX-License-Identifier: Apache-2.0
#pragma once
// Chrome's trace format, which Perfetto and chrome://tracing read (Trace Event Format, Google, 2016).

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace troupe {

/// Writes a trace event by event. Names are escaped; bodies of arguments are the caller's JSON. A track is a thread of a process.
class trace_events {
public:
  struct track {
    std::int64_t process, thread;
  };

  void name_process(std::int64_t process, const std::string& name) {
    event("\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" + std::to_string(process) +
          ",\"args\":{\"name\":" + nlohmann::json(name).dump() + "}");
  }
  void name_track(track which, const std::string& name) {
    event("\"ph\":\"M\",\"name\":\"thread_name\"," + where(which) +
          ",\"args\":{\"name\":" + nlohmann::json(name).dump() + "}");
    event("\"ph\":\"M\",\"name\":\"thread_sort_index\"," + where(which) +
          ",\"args\":{\"sort_index\":" + std::to_string(which.thread) + "}");
  }
  /// @param arguments the inside of a JSON object
  void span(track on, const std::string& name, const std::string& category, std::int64_t begin_ps, std::int64_t end_ps,
            const std::string& arguments) {
    event("\"ph\":\"X\",\"name\":" + nlohmann::json(name).dump() + ",\"cat\":\"" + category + "\"," + where(on) +
          ",\"ts\":" + microseconds(begin_ps) + ",\"dur\":" + microseconds(end_ps - begin_ps) + ",\"args\":{" +
          arguments + "}");
  }
  /// From the span that is open on a track at a time to one on another. @param id of its own for each arrow of the name
  void arrow_begins(track from, const std::string& name, const std::string& id, std::int64_t ps) {
    event("\"ph\":\"s\"," + arrow(name, id) + where(from) + ",\"ts\":" + microseconds(ps));
  }
  void arrow_ends(track to, const std::string& name, const std::string& id, std::int64_t ps) {
    event("\"ph\":\"f\",\"bp\":\"e\"," + arrow(name, id) + where(to) + ",\"ts\":" + microseconds(ps));
  }
  /// A curve of its process, of this value from here on.
  void counter(std::int64_t process, const std::string& name, std::int64_t ps, std::int64_t value) {
    event("\"ph\":\"C\",\"name\":" + nlohmann::json(name).dump() + ",\"pid\":" + std::to_string(process) +
          ",\"ts\":" + microseconds(ps) + ",\"args\":{\"value\":" + std::to_string(value) + "}");
  }

  /// The file. Once.
  std::string finish() {
    text_ += "\n]}\n";
    return std::move(text_);
  }

private:
  /// With all six digits of a picosecond.
  static std::string microseconds(std::int64_t ps) {
    char text[40];
    std::snprintf(text, sizeof text, "%lld.%06lld", static_cast<long long>(ps / 1'000'000),
                  static_cast<long long>(ps % 1'000'000));
    return text;
  }
  static std::string where(track which) {
    return "\"pid\":" + std::to_string(which.process) + ",\"tid\":" + std::to_string(which.thread);
  }
  static std::string arrow(const std::string& name, const std::string& id) {
    return "\"cat\":\"" + name + "\",\"name\":\"" + name + "\",\"id\":" + id + ",";
  }
  void event(const std::string& body) {
    text_ += first_ ? "\n{" : ",\n{";
    text_ += body + "}";
    first_ = false;
  }

  std::string text_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  bool first_ = true;
};

}  // namespace troupe
