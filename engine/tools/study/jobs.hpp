// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several jobs at once in one study: each sits on ranks of the machine, performs collectives round after round, and contends with the others for the
// elements that they share. Every job is also performed alone, on the same places: how much longer its rounds take beside the others is its
// slow-down.
//
// Two jobs on one place: refused, as a scheduler gives a place to one job at a time, unless both say that they share.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "actors/virtual/virtual_jobs.hpp"
#include "engine/config/configuration.hpp"
#include "engine/tools/workload.hpp"

namespace troupe {

struct study_scenario;
struct study_result;
struct study_run_options;

/// A collective of a job: "all_gather 64K by ring".
struct study_call {
  job_kind kind;
  std::size_t bytes = 0;     ///< as study_scenario::sizes
  std::string choreography;  ///< empty: the job's
};

/// A [[study.job]]. The members are the keys; docs and defaults are in config_schema().
struct study_job {
  std::string name;
  std::vector<study_call> calls;
  int ranks = 0;
  std::vector<int> on;
  std::string layout;
  std::string choreography, protocol;  ///< not empty: the study's have taken their place
  datatype type = datatype::f32;
  op reduction = sum;
  rank_t root = 0;
  picoseconds start{0}, compute{0}, period{0};
  int rounds = 1;
  bool share = false;
  std::optional<bool> by_nics;
  std::map<std::string, std::string, std::less<>> places;  ///< of the keys that it says: "on" → "study.toml:12"
  std::string place;                                       ///< of its table
  /// As messages about a key begin: "study.toml:12: training: on: "; of one that it does not say, or of none, with the table's place.
  std::string at(std::string_view key = {}) const;
};

/// Reads them into scenario.jobs, copies unfolded. @pre the rest of the scenario has been read. Throws error(bad_config).
void read_jobs(const configuration& from, study_scenario& scenario);

/// Microseconds over a job's rounds, or a call's.
struct study_spread {
  double least = 0, median = 0, most = 0;
};
study_spread spread_of(const std::vector<virtual_stretch>& of);

/// How a job's call was performed, and how long that took.
struct study_call_row {
  study_call what;
  std::size_t bytes = 0;  ///< that move, in whole blocks
  std::string choreography, protocol;
  cutting cut;
  bool verified = false;
  double bound_us = 0;           ///< no schedule is faster, alone
  study_spread together, alone;  ///< from its first rank's begin to its last rank's end
};
struct study_job_row {
  std::string name;
  std::vector<int> ranks;  ///< of the machine
  layout places;
  std::vector<study_call_row> calls;
  virtual_job_outcome times, times_alone;
  study_spread together, alone;  ///< a round
  double slow_down() const { return alone.median > 0 ? together.median / alone.median : 1; }
  double end_us() const;  ///< of its last round
};
/// An element that several jobs use.
struct study_shared_element {
  std::size_t element = 0;
  std::vector<std::int64_t> busy_ps;  ///< by job, alone
};

/// One of several collectives, for all of which scenario.choreography is only a wish: what that does not offer, or cannot perform here, is
/// performed by the fastest, as an engine's `choreography` has it. A remark tells that. Throws error as run_study().
study_result run_as_wished(const study_scenario& one, const study_run_options& options);
/// scenario.jobs → result.jobs and the rest. @pre there are some
study_result run_jobs(const study_scenario& scenario, const study_run_options& options);

void print_jobs(std::ostream& to, const study_result& result);
/// Of one value of a sweep, without a heading.
void print_job_rows(std::ostream& to, const study_result& result, const std::string& value);
std::string jobs_csv_heading();
/// A line a job and a line a call; the last column, why a sweep's value is refused, is empty.
std::string jobs_csv(const study_result& result, const std::string& key, const std::string& value);
/// For Perfetto and chrome://tracing: rounds and calls of each job, and what elements do that several use, where that was recorded.
std::string job_trace(const study_result& result);
/// "ranks 0-7", "ranks 0-30:2, 33".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace troupe
