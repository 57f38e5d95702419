// SPDX-License-Identifier: Apache-2.0
#pragma once
// Chrome's trace format, which Perfetto and chrome://tracing read (Trace Event Format, Google, 2016).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

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

/// What comes and goes, as a curve: how much of it is there at each time.
class trace_curve {
public:
  void add(std::int64_t begin_ps, std::int64_t end_ps, std::int64_t by = 1) {
    changes_[begin_ps] += by;
    changes_[end_ps] -= by;
  }
  /// Nothing, if there never was any.
  void write(trace_events& to, std::int64_t process, const std::string& name) const {
    std::int64_t value = 0, said = 0;
    for (const auto& [ps, by] : changes_) {
      value += by;
      if (value == said) continue;
      to.counter(process, name, ps, value);
      said = value;
    }
  }

private:
  std::map<std::int64_t, std::int64_t> changes_;
};

/// Spans of one actor that may overlap. A track shows only spans that follow or enclose each other, so they take as many tracks as they need.
class trace_row {
public:
  void add(std::string name, std::string category, std::int64_t begin_ps, std::int64_t end_ps, std::string arguments) {
    spans_.push_back({begin_ps, end_ps, std::move(name), std::move(category), std::move(arguments)});
  }
  /// On the process's tracks from `first` on: "name", "name (2)", … Returns the next one that is free.
  std::int64_t write(trace_events& to, std::int64_t process, std::int64_t first, const std::string& name) {
    std::stable_sort(spans_.begin(), spans_.end(), [](const one& a, const one& b) { return a.begin < b.begin; });
    std::vector<std::int64_t> ends(1, std::numeric_limits<std::int64_t>::min());  // by track
    std::vector<std::size_t> tracks;
    for (const one& s : spans_) {
      const auto free = std::find_if(ends.begin(), ends.end(), [&](std::int64_t end) { return end <= s.begin; });
      tracks.push_back(static_cast<std::size_t>(free - ends.begin()));
      if (free == ends.end()) ends.push_back(s.end);
      else *free = s.end;
    }
    for (std::size_t t = 0; t < ends.size(); ++t)
      to.name_track({process, first + static_cast<std::int64_t>(t)},
                    t == 0 ? name : name + " (" + std::to_string(t + 1) + ")");
    for (std::size_t i = 0; i < spans_.size(); ++i)
      to.span({process, first + static_cast<std::int64_t>(tracks[i])}, spans_[i].name, spans_[i].category,
              spans_[i].begin, spans_[i].end, spans_[i].arguments);
    return first + static_cast<std::int64_t>(ends.size());
  }

private:
  struct one {
    std::int64_t begin, end;
    std::string name, category, arguments;
  };
  std::vector<one> spans_;
};

}  // namespace troupe
