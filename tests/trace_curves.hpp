// SPDX-License-Identifier: Apache-2.0
#pragma once
// The curves of a trace in Chrome's format, as tests look at them.

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace troupe_tests {

struct trace_curve_points {
  std::vector<std::pair<double, double>> points;  ///< microseconds, value
  /// What was there, in value × microseconds.
  double area() const {
    double sum = 0;
    for (std::size_t i = 0; i + 1 < points.size(); ++i)
      sum += (points[i + 1].first - points[i].first) * points[i].second;
    return sum;
  }
  /// Never negative, and nothing is left at the end.
  bool is_whole() const {
    return !points.empty() && points.back().second == 0 &&
           std::all_of(points.begin(), points.end(), [](const auto& p) { return p.second >= 0; });
  }
};

/// By process and name.
inline std::map<std::pair<int, std::string>, trace_curve_points> curves_of(const std::string& trace) {
  std::map<std::pair<int, std::string>, trace_curve_points> all;
  const nlohmann::json read = nlohmann::json::parse(trace);
  for (const auto& e : read.at("traceEvents"))
    if (e.at("ph") == "C")
      all[{e.at("pid").get<int>(), e.at("name").get<std::string>()}].points.emplace_back(
          e.at("ts").get<double>(), e.at("args").at("value").get<double>());
  return all;
}
/// Of the spans of a category in a process, all of them together: microseconds.
inline double time_of_spans(const std::string& trace, int process, const std::string& category) {
  double sum = 0;
  const nlohmann::json read = nlohmann::json::parse(trace);
  for (const auto& e : read.at("traceEvents"))
    if (e.at("ph") == "X" && e.at("pid") == process && e.at("cat") == category) sum += e.at("dur").get<double>();
  return sum;
}

/// Whether spans of every track follow or enclose each other, as those who show them want it.
inline bool spans_nest(const std::string& trace) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  const nlohmann::json read = nlohmann::json::parse(trace);
  for (const auto& e : read.at("traceEvents"))
    if (e.at("ph") == "X")
      tracks[{e.at("pid").get<int>(), e.at("tid").get<int>()}].emplace_back(e.at("ts").get<double>(),
                                                                            -e.at("dur").get<double>());
  constexpr double rounding = 1e-7;  // of microseconds with six digits
  for (auto& [track, spans] : tracks) {
    std::sort(spans.begin(), spans.end());
    std::vector<double> open;
    for (const auto& [begin, minus] : spans) {
      while (!open.empty() && open.back() <= begin + rounding) open.pop_back();
      if (!open.empty() && begin - minus > open.back() + rounding) return false;
      open.push_back(begin - minus);
    }
  }
  return true;
}

}  // namespace troupe_tests
