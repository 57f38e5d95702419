// SPDX-License-Identifier: Apache-2.0
#pragma once
// Study mode: what a collective would take on hardware that one does not have. A scenario (usually read from a file) → a result:
// a row a size, what the elements did, bounds, and on request a recording for traces and reports.
//
//   study_scenario s = read_study(configuration::load("config/studies/ring.toml"));
//   study_result r = run_study(s);
//   print_study(std::cout, r);

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/virtual/virtual_run.hpp"
#include "engine/config/configuration.hpp"
#include "engine/planning/hccl_selection.hpp"
#include "engine/tools/study/flow_study.hpp"
#include "engine/tools/study/jobs.hpp"
#include "engine/tools/study/this_machine.hpp"
#include "engine/tools/workload.hpp"
#include "topology/machine/hardware.hpp"

namespace troupe {

class score_library;

/// The [study] of a configuration. The members are the keys; docs and defaults are in config_schema().
struct study_scenario {
  std::string title;  ///< of reports; empty: made from the rest
  job_kind kind;
  std::string choreography =
      "auto";  ///< auto: all that can are tried at every size, and the fastest is the row; hccl, nccl: their selections
  std::string protocol = "simple";  ///< of the preset's table, or auto: all are tried
  int channels = 1;
  int slices = 0;                           ///< 0: as many as the chunk size asks for
  int slices_per_step = 0;                  ///< 0: one, or with auto as many as are fastest
  std::uint64_t chunk_bytes = 0;            ///< largest chunk; 0: the protocol's slot
  int credits = 0;                          ///< 0: the protocol's slots
  std::vector<std::size_t> sizes{1 << 20};  ///< bytes, as nccl-tests counts them
  std::vector<std::size_t> counts;          ///< v-forms, elements, as job::counts
  datatype type = datatype::f32;
  op reduction = sum;
  rank_t root = 0;
  bool in_place = false;
  int streams = 4;               ///< of direct_full_mesh
  bool through_scratch = false;  ///< of pairwise: BCopy
  bool contiguous =
      false;          ///< of csc: blocks beside each other are fetched at once, where steps may have several cells
  hccl_case hccl;     ///< of choreography hccl; places and bytes are those of the run
  nccl_options nccl;  ///< of choreography nccl
  std::map<std::string, std::string>
      score_files;  ///< choreographies of one's own, of the study and of the engine: name → file

  std::string preset_name = "flat";
  preset_request request;                                      ///< ranks, layout, structure
  std::vector<std::pair<std::string, std::string>> overrides;  ///< hardware::set(), in order
  std::vector<std::pair<std::string, double>> slow;            ///< hardware::slow_down()
  std::vector<std::pair<std::string, std::string>> faults;     ///< hardware::disturb()
  std::vector<std::pair<int, picoseconds>> skew;               ///< rank, how late it begins
  picoseconds skew_spread{0};  ///< every rank begins late by a random time below this …
  std::uint64_t seed = 1;      ///< … drawn from this seed

  payload carry = payload::none;  ///< real: the result is checked
  performed_by by = performed_by::automatic;
  bool any_order = false;
  picoseconds compute{0};
  int compute_blocks = 1;
  std::uint64_t compute_dma_bytes = 0;
  bool overlap = false;

  std::vector<study_job> jobs;  ///< not empty: they take the place of the call above, and of skew and computation

  study_flow flow;  ///< has nodes: it takes the call's place, and its sizes are those of the tensor

  std::map<std::string, std::string> as_said;  ///< flat key → value, for reports: "study.choreography" → "ring"
  std::map<std::string, std::string> places;   ///< flat key → who said it, for messages: "study.toml:12", "--set"
};

/// How a message about a key begins: "study.toml:12: "; empty where nobody said it.
std::string said_at(const study_scenario& scenario, const std::string& key);
/// The key that a sentence about building the machine is about: what it begins with; empty: none, as a machine's file names its own lines.
std::string key_told_of(std::string_view sentence);
/// Sizes, protocols and jobs that a remark holds for alike say it once.
void say_once(std::vector<std::string>& remarks, const std::string& remark);
/// Where a lost rank means nothing. @param why the end of the sentence
void refuse_losses(const study_scenario& scenario, const hardware& on, const std::string& why);
/// Why there is no such protocol, and which there are; empty: there is, or all are to be tried.
std::string why_no_protocol(const hardware& on, const std::string& wanted);

/// The choreographies there are instead of an unknown one, and where one's own are named: the end of a sentence.
/// @param files names of score files @param besides further words that can be said there
std::string which_choreographies(std::string_view wanted, const std::vector<std::string>& files,
                                 std::vector<std::string_view> besides = {});
/// As as_said has it: "true", "1,2,4".
std::string study_value_text(const config_value& value);
/// A variable's name has no dots and blanks: what TROUPE_STUDY_HARDWARE_LINK_LATENCY and TROUPE_STUDY_SLOW_UP_3 say under the names that the
/// machine has, link.latency and "up 3". Constants are checked; elements that it has not keep the variable's name. Throws error(bad_config).
configuration with_names_of_machine(const configuration& from);
/// What a scenario is read for.
enum class study_use : std::uint8_t {
  itself,           ///< it says what is performed: a collective, jobs or a flow
  machine_and_ways  ///< somebody else does, such as a trace; it says on what, and how
};
/// Throws error(bad_config) that names file and line, also for what is said and does nothing (useless_keys.hpp).
study_scenario read_study(const configuration& from, study_use use = study_use::itself);

/// The machine of a scenario, with what the scenario says of its constants. Throws error(bad_config).
study_machine study_machine_of(const study_scenario& scenario);

/// Elements' use at the row's size, heaviest first in reports.
struct study_row {
  std::size_t bytes = 0;  ///< S of the bandwidth formulas (workload.hpp: job_shape)
  std::size_t count = 0;
  std::string choreography;  ///< that was performed
  std::string protocol;
  cutting cut;
  double time_us = 0;
  double algbw = 0, busbw = 0;    ///< GB/s (1e9)
  double latency_bound_us = 0;    ///< no schedule on this hardware is faster than the sum …
  double bandwidth_bound_us = 0;  ///< … of these two (bounds.hpp)
  double busiest_us = 0;          ///< this schedule's: the time that its busiest element is occupied
  double bound_us() const;        ///< their sum
  /// Ranks were lost, and the operation ended with an error at others, or nobody is left: there is no bandwidth, and its time is when the last
  /// one knew, or was lost.
  bool failed() const;
  std::int64_t wrong = -1;  ///< payload real: wrong elements; −1: not checked
  bool verified = false;    ///< the score was verified at this number of ranks; else see study_result::remarks
  double wall_seconds = 0;  ///< of the simulation itself, without writing the score
  virtual_outcome outcome;
  /// Where study_run_options::record or ::part asked for it: how it was performed.
  std::shared_ptr<const score> notes;
  std::shared_ptr<const virtual_recording> recording;  ///< where ::record asked for it, and it is not too long
  virtual_call call{};                                 ///< of these notes
};

struct study_result {
  study_scenario scenario;
  std::shared_ptr<const hardware> on;
  std::vector<study_row> rows;
  std::vector<std::string> remarks;  ///< "not verified at this size; …"
  /// Of a study with jobs, which has no rows: they ran at the same time.
  std::vector<study_job_row> jobs;
  virtual_jobs_outcome together;
  std::vector<study_shared_element> shared;           ///< the longest queues first
  std::shared_ptr<const element_recording> occupied;  ///< these elements, where study_run_options::record asked for it
  double wall_seconds = 0;                            ///< of all their runs
  std::vector<study_flow_row> flow_rows;              ///< of a study of a flow, by row
  std::size_t shown = 0;  ///< the row that reports look at more closely: the last, or study_run_options::at
  const study_row* shown_row() const { return rows.empty() ? nullptr : &rows[shown]; }
};

/// A part of a machine that is there already, which a scenario is performed on instead of on one of its own.
struct study_part {
  const study_machine* machine = nullptr;
  std::vector<int> ranks;
  layout places;
  bool by_nics = true;
};

struct study_run_options {
  const study_part* part = nullptr;  ///< instead of the scenario's machine
  /// scores_of() several scenarios that one thread performs, so that their files are read and verified once; null: it makes its own.
  std::shared_ptr<score_library> scores{};
  enum class recorded : std::uint8_t { none, shown, all } record = recorded::none;  ///< all: as long as there is room
  std::optional<std::size_t> at;                     ///< of the sizes, the one that is shown; it must be one of them
  std::function<void(const std::string&)> progress;  ///< one line, now and then
  std::function<bool()> go_on;                       ///< false: ends with error(cancelled)
  bool one_of_many = false;  ///< another choreography may do what the scenario says and this one cannot
};
/// Which of its sizes is looked at more closely: the last, or options.at. Throws error(bad_config): it has no such size.
std::size_t shown_size(const study_scenario& scenario, const study_run_options& options);
/// Built in, and the scenario's score files, read and verified. Throws error: io, bad_score, bad_config (a name that is taken).
std::shared_ptr<score_library> scores_of(const study_scenario& scenario);
/// Throws error: bad_config, unsupported (no choreography can), bad_score, out_of_memory, cancelled.
study_result run_study(const study_scenario& scenario, const study_run_options& options = {});

/// One scenario a value: {"ranks", {"8", "16"}}. Keys as in --set.
struct study_sweep {
  std::string key;
  std::vector<std::string> values;
};
struct study_sweep_result {
  study_sweep what;
  std::vector<std::pair<std::string, study_result>> points;  ///< value, result
  std::vector<std::pair<std::string, std::string>> refused;  ///< value, why nobody can perform that
};

// -- reports (study_report.cpp) --

/// By whom and how: "ring, simple, 2 channels, 8 slices, 4 a step; fails".
std::string performed_text(const study_row& row);
/// Title, hardware in a line, the rows in nccl-tests' columns (virtual µs), bounds, the busiest elements.
void print_study(std::ostream& to, const study_result& result);
void print_sweep(std::ostream& to, const study_sweep_result& result);
/// The document described in engine/tools/study/README.md: of rows with a recording spans, moves and the critical path, too.
std::string study_json(const study_result& result, const std::vector<study_sweep_result>& sweeps = {});
/// A line a row, and one for every refused value of a sweep: why, in the last column, and no figures.
std::string study_csv(const study_result& result, const std::vector<study_sweep_result>& sweeps = {});
/// Of the row that is shown, for Perfetto and chrome://tracing: a track an actor, an arrow a chunk. @pre it has a recording
std::string study_trace(const study_result& result);

/// What a stretch of the critical path was spent on.
enum class path_part : std::uint8_t { work, queue, travel, credit, other };
/// "work", "queue", "travel", "credit", "other".
std::string_view name(path_part part) noexcept;

/// A sentence of the critical path: what the run was waiting for, and when.
struct critical_stretch {
  std::int64_t begin_ps = 0, end_ps = 0;
  std::int32_t actor = -1;  ///< queue: the element that was waited for
  path_part spent = path_part::other;
  std::string text;
  /// travel, where the text leaves some out: the ways that chunks went one after the other, each from its first sender to its last receiver.
  std::vector<std::vector<rank_t>> hops{};
};
/// Of a row of the result; empty without a recording.
std::vector<critical_stretch> critical_path(const study_result& result, const study_row& row);
std::vector<critical_stretch> critical_path(const study_result& result);  ///< of the row that is shown

}  // namespace troupe
