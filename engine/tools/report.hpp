// SPDX-License-Identifier: Apache-2.0
#pragma once
// Results as nccl-tests prints them, and as JSON.

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/tools/bench_runner.hpp"
#include "topology/machine/element_traffic.hpp"

namespace troupe {

/// What a table has beside nccl-tests' columns.
struct table_columns {
  bool choreography = false;
  bool spread = false;  ///< least, median, 99th percentile and largest time of a repetition, out of place and in place
  bool cpu_time = false;  ///< the times are CPU times, and called so
};

/// The lines above the rows.
void print_columns(std::ostream& to, const table_columns& columns = {});
/// size, count, type, redop, root, then time, algbw, busbw, #wrong out of place and in place; "N/A" where there is no such call.
void print_row(std::ostream& to, const job_result& row, const table_columns& columns = {});
/// Totals of a table.
class report_footer {
public:
  /// @param wish choreography that the options name for all collectives, which the planner need not take; empty: none
  explicit report_footer(std::string wish = {}) : wish_(std::move(wish)) {}
  void add(const job_result& row);
  /// "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1.23", and lines for wrong values, and for rows that are not by the
  /// choreography that was wished, if there are any.
  void print(std::ostream& to) const;
  bool ok() const { return wrong_ == 0 && out_of_bounds_ == 0; }
  std::uint64_t wrong() const { return wrong_; }

private:
  std::string wish_;
  int wishes_ = 0, unfulfilled_ = 0;
  std::uint64_t wrong_ = 0, out_of_bounds_ = 0;
  double bandwidth_ = 0;
  int measurements_ = 0;
};

/// Where messages went that passed a layout's elements.
struct passed_elements {
  std::vector<std::string> ways;         ///< engine::traced_routes()
  std::vector<element_traffic> traffic;  ///< engine::traffic()
};

/// As lines of comment behind a table.
void print(std::ostream& to, const passed_elements& passed);

/// {"meta": {…}, "rows": [{"collective", "ranks", "processes", "bytes", "count", "type", "op", "root", "choreography", "protocol", "time_us",
/// "algbw", "busbw", "wrong", "min_us", "median_us", "p99_us", "max_us", "in_place": {"time_us", "algbw", "busbw", "wrong", "min_us", …}, "out_of_bounds"}]}. The times and "in_place" are null
/// where there is no such call, "wrong" where it was not checked. Bandwidths in GB/s (1e9).
/// "meta" says what was run, when, by which build, on what, with which configuration, and whether to the end; its "schema" is the number
/// of this description.
/// @param configuration the values that are not defaults, as TOML
/// @param command as it was called
/// @param complete false: interrupted, so rows are missing
/// @param passed null, or what follows the rows: "routes": ["rank 0 → …"], "elements": [{"element", "messages",
/// "bytes", "tokens"}]
std::string to_json(const workload& settings, const engine_options& options, const std::vector<job_result>& rows,
                    const std::string& configuration, const std::vector<std::string>& command, bool complete,
                    const passed_elements* passed = nullptr);

/// Throws error(bad_config) if write_text() could not write there, as far as that can be known before. Writes and creates nothing.
void check_writable(const std::string& path);

/// Writes a file, or to standard output for "-". Throws error(io).
void write_text(const std::string& path, const std::string& text);

}  // namespace troupe
