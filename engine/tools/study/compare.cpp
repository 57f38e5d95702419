// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "engine/tools/study/text.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

using study_text::csv_field;
using study_text::format;
using study_text::time_text;

/// Of things that two runs have by name: every name once, those of `a` first.
template <class List, class Name>
std::vector<std::string> names_of(const List& a, const List& b, Name name_of) {
  std::vector<std::string> names;
  for (const List* list : {&a, &b})
    for (const auto& item : *list)
      if (std::find(names.begin(), names.end(), name_of(item)) == names.end()) names.push_back(name_of(item));
  return names;
}

std::vector<std::string> causes_of(const std::map<std::string, double>& a, const std::map<std::string, double>& b) {
  auto names = names_of(a, b, [](const auto& entry) { return entry.first; });
  const auto either = [&](const std::string& n) {
    const auto in_a = a.find(n), in_b = b.find(n);
    return std::max(in_a == a.end() ? 0 : in_a->second, in_b == b.end() ? 0 : in_b->second);
  };
  std::stable_sort(names.begin(), names.end(), [&](const auto& x, const auto& y) { return either(x) > either(y); });
  return names;
}

double value_of(const std::map<std::string, double>& in, const std::string& name) {
  const auto at = in.find(name);
  return at == in.end() ? 0 : at->second;
}

std::string title_of(const study_scenario& s) {
  return s.title.empty() ? name(s.kind) + " on " + s.preset_name : s.title;
}

void print_heading(std::ostream& to, const char* letter, const study_result& r) {
  const study_scenario& s = r.scenario;
  to << "# " << letter << ": " << title_of(s) << " (" << r.on->name << ", "
     << plural(static_cast<std::size_t>(r.on->ranks), "rank") << ", " << r.scenario.choreography << ")\n";
}

/// None where ranks are lost, as what is left of it ends when it fails, or where B takes no time.
std::optional<double> time_ratio(const study_row& a, const study_row& b) {
  if (a.failed() || b.failed() || b.time_us <= 0) return std::nullopt;
  return a.time_us / b.time_us;
}

void print_rows(std::ostream& to, const study_result& a, const study_result& b) {
  to << format("#\n# %10s  %10s  %8s  %10s  %8s  %8s  %-32s  %s\n", "size(B)", "A time(us)", "A busbw", "B time(us)",
               "B busbw", "A/B", "A performed", "B performed");
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    const study_row &x = a.rows[i], &y = b.rows[i];
    const std::optional<double> ratio = time_ratio(x, y);
    to << format("%12zu  %10s  %8.2f  %10s  %8.2f  %8s  %-32s  %s\n", x.bytes, time_text(x.time_us).c_str(), x.busbw,
                 time_text(y.time_us).c_str(), y.busbw, ratio ? format("%.3f", *ratio).c_str() : "-",
                 performed_text(x).c_str(), performed_text(y).c_str());
  }
}

void print_verdict(std::ostream& to, const study_result& a, const study_result& b) {
  const double x = a.shown_row()->time_us, y = b.shown_row()->time_us;
  to << "#\n# At " << bytes_text(a.shown_row()->bytes) << " ";
  if (a.shown_row()->failed() || b.shown_row()->failed()) {
    to << (a.shown_row()->failed() ? b.shown_row()->failed() ? "both fail" : "A fails" : "B fails")
       << ": ranks are lost, so no time can be compared.\n";
    return;
  }
  if (x == y) to << "both take " << time_text(x) << " us";
  else if (std::min(x, y) <= 0)
    to << (y < x ? "B" : "A") << " takes no time, instead of " << time_text(std::max(x, y)) << " us";
  else
    to << (y < x ? "B is " : "A is ") << format("%.2f", std::max(x, y) / std::min(x, y))
       << " times as fast: " << time_text(std::min(x, y)) << " instead of " << time_text(std::max(x, y)) << " us";
  const auto in_a = time_by_cause(a), in_b = time_by_cause(b);
  std::string largest;
  for (const std::string& cause : causes_of(in_a, in_b))
    if (largest.empty() || std::abs(value_of(in_a, cause) - value_of(in_b, cause)) >
                               std::abs(value_of(in_a, largest) - value_of(in_b, largest)))
      largest = cause;
  if (const double more = value_of(in_a, largest) - value_of(in_b, largest); x != y && more != 0)
    to << "; the largest difference: " << (more > 0 ? "A" : "B") << " spends " << time_text(std::abs(more))
       << " us more " << largest;
  to << ".\n";
}

void print_causes(std::ostream& to, const study_result& a, const study_result& b) {
  const auto in_a = time_by_cause(a), in_b = time_by_cause(b);
  if (in_a.empty() && in_b.empty()) return;
  to << format("#\n# %-32s %12s %12s %12s\n", "Critical path (us)", "A", "B", "B - A");
  for (const std::string& cause : causes_of(in_a, in_b)) {
    const double x = value_of(in_a, cause), y = value_of(in_b, cause);
    to << format("# %-32s %12.2f %12.2f %+12.2f\n", cause.c_str(), x, y, y - x);
  }
}

void print_use(std::ostream& to, const study_result& a, const study_result& b) {
  const auto in_a = use_by_class(a), in_b = use_by_class(b);
  to << format("#\n# %-16s %8s %8s  %-24s %8s %8s  %s\n", "Busy", "A mean", "A most", "", "B mean", "B most", "");
  for (const std::string& of : names_of(in_a, in_b, [](const class_use& u) { return u.name; })) {
    to << format("# %-16s ", of.c_str());
    for (const auto* list : {&in_a, &in_b}) {
      const auto at = std::find_if(list->begin(), list->end(), [&](const class_use& u) { return u.name == of; });
      if (at == list->end()) to << format("%8s %8s  %-24s ", "-", "-", "");
      else to << format("%7.1f%% %7.1f%%  %-24s ", 100 * at->mean, 100 * at->most, at->busiest.c_str());
    }
    to << '\n';
  }
}

}  // namespace

std::string keep_common_sizes(study_scenario& a, study_scenario& b) {
  const auto in = [](const std::vector<std::size_t>& list, std::size_t n) {
    return std::find(list.begin(), list.end(), n) != list.end();
  };
  std::vector<std::size_t> common, left_out;
  for (const std::size_t n : a.sizes) (in(b.sizes, n) ? common : left_out).push_back(n);
  for (const std::size_t n : b.sizes)
    if (!in(common, n)) left_out.push_back(n);
  if (common.empty())
    throw error(
        errc::bad_config,
        "the two studies have no size in common; give both the same study.sizes, for example with --set sizes=1M");
  a.sizes = b.sizes = common;
  std::string list;
  for (const std::size_t n : left_out) list += (list.empty() ? "" : ", ") + bytes_text(n);
  return list.empty() ? "" : "sizes that only one of them has are left out: " + list;
}

void tell_apart(study_scenario& a, study_scenario& b, const std::string& of_a, const std::string& of_b) {
  if (title_of(a) != title_of(b)) return;
  const std::string title = title_of(a);
  if (!of_a.empty()) a.title = title + ", " + of_a;
  if (!of_b.empty()) b.title = title + ", " + of_b;
}

std::map<std::string, double> time_by_cause(const study_result& of) {
  std::map<std::string, double> spent;
  for (const critical_stretch& s : critical_path(of)) {
    std::string cause;
    switch (s.spent) {
      case path_part::work: cause = "on work of ranks"; break;
      case path_part::queue: cause = "queued for " + of.on->class_of(s.actor - of.on->ranks).name; break;
      case path_part::travel: cause = "on the way"; break;
      case path_part::credit: cause = "waiting for credits"; break;
      case path_part::other: cause = "on launch, late start, barrier"; break;
    }
    spent[cause] += static_cast<double>(s.end_ps - s.begin_ps) / 1e6;
  }
  return spent;
}

std::vector<class_use> use_by_class(const study_result& of) {
  std::vector<class_use> all;
  const virtual_outcome& did = of.shown_row()->outcome;
  if (did.end_ps == 0) return all;
  for (std::size_t c = 0; c < of.on->classes.size(); ++c) {
    class_use u{of.on->classes[c].name, 0, 0, {}};
    std::size_t count = 0;
    for (std::size_t e = 0; e < did.use.size(); ++e) {
      if (of.on->elements[e].of != c || did.use[e].messages == 0) continue;
      double share =
          static_cast<double>(did.use[e].busy_ps) / of.on->classes[c].units / static_cast<double>(did.end_ps);
      if (of.shown_row()->failed())
        share = std::min(share, 1.0);  // messages are under way for longer than ranks are there
      u.mean += share, ++count;
      if (share > u.most) u.most = share, u.busiest = of.on->elements[e].name;
    }
    if (count == 0) continue;
    u.mean /= static_cast<double>(count);
    all.push_back(std::move(u));
  }
  return all;
}

void print_comparison(std::ostream& to, const study_result& a, const study_result& b) {
  print_heading(to, "A", a);
  print_heading(to, "B", b);
  print_rows(to, a, b);
  print_verdict(to, a, b);
  print_causes(to, a, b);
  print_use(to, a, b);
  for (const auto* r : {&a, &b})
    for (const std::string& remark : r->remarks) to << "# " << (r == &a ? "A: " : "B: ") << remark << '\n';
}

std::string comparison_csv(const study_result& a, const study_result& b) {
  constexpr std::string_view columns[] = {"title",   "collective", "choreography", "protocol", "preset", "ranks",
                                          "time_us", "algbw",      "busbw",        "bound_us", "failed"};
  std::string text = "bytes";
  for (const std::string_view side : {"a_", "b_"})
    for (const std::string_view column : columns) text.append(",").append(side).append(column);
  text += ",a_over_b";
  for (const std::string_view side : {"a_", "b_"})
    for (const std::string_view column : {"channels", "slices", "slices_per_step"})
      text.append(",").append(side).append(column);
  text += "\n";
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    text += std::to_string(a.rows[i].bytes);
    for (const study_result* of : {&a, &b}) {
      const study_row& row = of->rows[i];
      for (const std::string& field :
           {title_of(of->scenario), name(of->scenario.kind), row.choreography, row.protocol, of->scenario.preset_name})
        text += "," + csv_field(field);
      text += format(",%d,%.6f,%.6f,%.6f,%.6f,%d", of->on->ranks, row.time_us, row.algbw, row.busbw, row.bound_us(),
                     row.failed() ? 1 : 0);
    }
    const std::optional<double> ratio = time_ratio(a.rows[i], b.rows[i]);
    text += "," + (ratio ? format("%.6f", *ratio) : "");
    for (const study_result* of : {&a, &b}) {
      const cutting& cut = of->rows[i].cut;
      text += format(",%d,%d,%d", cut.channels, cut.slices, cut.slices_per_step);
    }
    text += "\n";
  }
  return text;
}

std::string comparison_json(const study_result& a, const study_result& b) {
  json rows = json::array(), causes = json::array();
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    const std::optional<double> ratio = time_ratio(a.rows[i], b.rows[i]);
    rows.push_back({{"bytes", a.rows[i].bytes},
                    {"a_us", a.rows[i].time_us},
                    {"b_us", b.rows[i].time_us},
                    {"a_over_b", ratio ? json(*ratio) : json(nullptr)}});
  }
  const auto in_a = time_by_cause(a), in_b = time_by_cause(b);
  for (const std::string& cause : causes_of(in_a, in_b))
    causes.push_back({{"cause", cause}, {"a", value_of(in_a, cause)}, {"b", value_of(in_b, cause)}});
  std::string text = json{{"troupe_compare", 1}, {"rows", rows}, {"critical_path_us", causes}}.dump();
  text.pop_back();  // the documents are text already, and may be large
  return text + ",\n\"a\":" + study_json(a) + ",\"b\":" + study_json(b) + "}\n";
}

}  // namespace troupe
