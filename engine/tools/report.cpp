// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/report.hpp"

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "engine/tools/build_info.hpp"
#include "memory/error.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

/// Widths and digits of nccl-tests' common.cu.
std::string cells_of(const std::optional<measurement>& m) {
  if (!m) return format("  %7s  %6s  %6s  %5s", "N/A", "N/A", "N/A", "N/A");
  const char* digits = m->time_us >= 10000.0 ? "%7.0f" : m->time_us >= 100.0 ? "%7.1f" : "%7.2f";
  const std::string time = format(digits, m->time_us);
  const std::string wrong = m->wrong ? format("%g", static_cast<double>(*m->wrong)) : "N/A";
  return format("  %7s  %6.2f  %6.2f  %5s", time.c_str(), m->algbw, m->busbw, wrong.c_str());
}

std::string op_name(const job& j) { return j.kind.reduces() ? std::string{name(j.reduction.kind)} : "none"; }

std::string op_column(const job& j) {
  if (!j.kind.reduces()) return "none";
  if (j.reduction.kind == op_kind::pre_mul_sum) return "mulsum";  // nccl-tests' name, as wide as the column
  return std::string{name(j.reduction.kind)};
}

std::string_view name(time_of whose) {
  static constexpr std::array<std::string_view, 5> names{"all", "rank 0", "average", "least", "most"};
  return names[static_cast<std::size_t>(whose)];
}

json json_of(const std::optional<measurement>& m) {
  if (!m) return nullptr;
  return {{"time_us", m->time_us},
          {"algbw", m->algbw},
          {"busbw", m->busbw},
          {"wrong", m->wrong ? json(*m->wrong) : json(nullptr)},
          {"min_us", m->spread ? json(m->spread->least) : json(nullptr)},
          {"median_us", m->spread ? json(m->spread->median) : json(nullptr)},
          {"p99_us", m->spread ? json(m->spread->p99) : json(nullptr)},
          {"max_us", m->spread ? json(m->spread->most) : json(nullptr)}};
}

std::string spread_cells(const std::optional<measurement>& m) {
  if (!m || !m->spread) return format("  %9s  %9s  %9s  %9s", "N/A", "N/A", "N/A", "N/A");
  const measurement::distribution& d = *m->spread;
  return format("  %9.2f  %9.2f  %9.2f  %9.2f", d.least, d.median, d.p99, d.most);
}

json row_of(const job_result& r) {
  json row{{"collective", name(r.what.kind)}, {"ranks", r.ranks},
           {"processes", r.processes},        {"bytes", r.shape.bytes},
           {"count", r.shape.count},          {"type", name(r.what.type)},
           {"op", op_name(r.what)},           {"root", r.what.kind.rooted() ? r.what.root : -1},
           {"choreography", r.choreography},  {"protocol", r.protocol}};
  if (r.what.level) row["determinism"] = name(*r.what.level);
  const json out = json_of(r.out_of_place);
  for (const char* key : {"time_us", "algbw", "busbw", "wrong", "min_us", "median_us", "p99_us", "max_us"})
    row[key] = out.is_null() ? json(nullptr) : out[key];
  row["in_place"] = json_of(r.in_place);
  row["out_of_bounds"] = r.out_of_bounds;
  return row;
}

}  // namespace

void print_columns(std::ostream& to, const table_columns& columns) {
  const auto twice = [&](const char* a, const char* b, const char* c, const char* d) {
    const std::string once = format("  %9s  %9s  %9s  %9s", a, b, c, d);
    return columns.spread ? once + once : std::string{};
  };
  const char* time = columns.cpu_time ? "cputime" : "time";
  to << "#\n"
     << format("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          ", "", "",
               "", "", "")
     << (columns.spread ? format("  %42s  %42s", "out-of-place, a repetition     ", "in-place, a repetition       ")
                        : "")
     << '\n'
     << format("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %5s  %7s  %6s  %6s  %5s", "size", "count", "type", "redop",
               "root", time, "algbw", "busbw", "#wrong", time, "algbw", "busbw", "#wrong")
     << twice("min", "median", "p99", "max") << (columns.choreography ? "  choreography" : "") << '\n'
     << format("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %5s  %7s  %6s  %6s  %5s", "(B)", "(elements)", "", "", "",
               "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "")
     << twice("(us)", "(us)", "(us)", "(us)") << '\n';
}

void print_row(std::ostream& to, const job_result& r, const table_columns& columns) {
  to << format("%12zu  %12zu  %8s  %6s  %6d", r.shape.bytes, r.shape.count, std::string{nccl_name(r.what.type)}.c_str(),
               op_column(r.what).c_str(), r.what.kind.rooted() ? r.what.root : -1)
     << cells_of(r.out_of_place) << cells_of(r.in_place)
     << (columns.spread ? spread_cells(r.out_of_place) + spread_cells(r.in_place) : "")
     << (columns.choreography ? "  " + r.choreography : "") << '\n'
     << std::flush;
}

void report_footer::add(const job_result& row) {
  out_of_bounds_ += row.out_of_bounds;
  if (!wish_.empty() && row.what.choreography.empty() && !row.what.kind.send_recv) {
    ++wishes_;
    unfulfilled_ += row.choreography == wish_ ? 0 : 1;
  }
  for (const auto& m : {row.out_of_place, row.in_place})
    if (m) {
      wrong_ += m->wrong.value_or(0);
      bandwidth_ += m->busbw;
      ++measurements_;
    }
}

void report_footer::print(std::ostream& to) const {
  if (unfulfilled_ > 0)
    to << "# " << wish_ << " could not perform " << unfulfilled_ << " of "
       << plural(static_cast<std::size_t>(wishes_), "row") << "; --set log_level=info says why\n";
  if (wrong_ > 0) to << format("# Wrong values         : %" PRIu64 " FAILED\n", wrong_);
  to << format("# Out of bounds values : %" PRIu64 " %s\n", out_of_bounds_, out_of_bounds_ == 0 ? "OK" : "FAILED")
     << format("# Avg bus bandwidth    : %g\n#\n", measurements_ == 0 ? 0.0 : bandwidth_ / measurements_) << std::flush;
}

void print(std::ostream& to, const passed_elements& passed) {
  if (passed.ways.empty()) {
    to << "# ways that messages took: none but direct references\n";
  } else {
    to << "# ways that messages took:\n";
    for (const std::string& way : passed.ways) to << "#   " << way << '\n';
  }
  if (passed.traffic.empty()) return;
  to << "# what passed each element (tokens have no payload):\n#   messages           bytes     tokens  element\n";
  for (const element_traffic& of : passed.traffic)
    to << format("# %10" PRIu64 " %15" PRIu64 " %10" PRIu64 "  ", of.messages, of.bytes, of.tokens) << of.element
       << '\n';
}

std::string to_json(const workload& settings, const engine_options& options, const std::vector<job_result>& rows,
                    const std::string& configuration, const std::vector<std::string>& command, bool complete,
                    const passed_elements* passed) {
  json meta{{"program", "troupe"},
            {"version", version()},
            {"schema", 1},
            {"date", date_text()},
            {"build", build_text()},
            {"command", command},
            {"ranks", settings.ranks},
            {"processes", settings.processes},
            {"threads", settings.one_thread ? 1 : settings.ranks_here()},
            {"layout", options.layout},
            {"iterations", settings.iterations},
            {"warmup", settings.warmup},
            {"aggregated", settings.aggregated},
            {"time", settings.cpu_time ? std::string_view{"cpu"} : name(settings.whose)},
            {"checked", settings.check},
            {"determinism", name(options.level)},
            {"credits", options.credits},
            {"host", discover().describe()},
            {"configuration", configuration},
            {"complete", complete}};
  json document{{"meta", std::move(meta)}, {"rows", json::array()}};
  for (const job_result& r : rows) document["rows"].push_back(row_of(r));
  if (passed != nullptr) {
    document["routes"] = passed->ways;
    document["elements"] = json::array();
    for (const element_traffic& of : passed->traffic)
      document["elements"].push_back(
          {{"element", of.element}, {"messages", of.messages}, {"bytes", of.bytes}, {"tokens", of.tokens}});
  }
  return document.dump(2) + "\n";
}

void check_writable(const std::string& path) {
  if (path.empty() || path == "-") return;
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path file{path}, folder = file.has_parent_path() ? file.parent_path() : fs::path{"."};
  std::string why;
  if (fs::is_directory(file, ignored)) why = "it is a folder";
  else if (fs::exists(file, ignored)) why = access(path.c_str(), W_OK) == 0 ? "" : std::strerror(errno);
  else if (!fs::is_directory(folder, ignored)) why = "there is no folder " + folder.string();
  else if (access(folder.c_str(), W_OK | X_OK) != 0) why = folder.string() + ": " + std::strerror(errno);
  if (!why.empty())
    throw error(errc::bad_config,
                path + ": cannot be written: " + why + "; name a file in a folder that is there and writable");
}

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::cout << text << std::flush;
    return;
  }
  errno = 0;
  std::ofstream file{path, std::ios::binary};
  file << text;
  file.close();  // only then a full disk is certain to have said so
  if (!file)
    throw error(errc::io, path + ": cannot be written: " + (errno != 0 ? std::strerror(errno) : "no reason is known"));
}

}  // namespace troupe
