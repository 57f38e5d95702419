// SPDX-License-Identifier: Apache-2.0
#pragma once
// The figures that papers published about the systems of topology/presets/, beside what the study mode makes of the same cases:
// `troupe study --published`. A figure names its study (config/studies/) and derives one number from simulated runs of it. Neither
// a constant nor a formula belongs to a figure: constants belong to the preset, and a formula is shown beside, never as ours.
//
//   {.id = "fig14", .source = "spec 1, fig. 14", .what = "CSC-AG over Ring-AG at 4096 KB", .file = "spec1_fig14.toml",
//    .published = 2.15, .unit = "x",
//    .ours = [](const study_lookup& of) -> measured {
//      return {of.time_us("choreography=ring", 4'096'000) / of.time_us("choreography=csc", 4'096'000)}; },
//    .remark = "…why ours differs, in plain words"}

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tools/study/study.hpp"

namespace troupe {

/// Runs of studies, each made once. Not thread-safe.
class study_runs {
public:
  /// @param folder where the studies lie
  explicit study_runs(std::string folder, study_run_options options = {})
      : folder_(std::move(folder)), options_(std::move(options)) {}
  /// @param set "choreography=ring sizes=8M": assignments as of --set, separated by spaces.
  const study_result& run(const std::string& file, const std::string& set);

private:
  std::string folder_;
  study_run_options options_;
  std::map<std::pair<std::string, std::string>, study_result> made_;
};

/// The runs of one figure's study.
class study_lookup {
public:
  study_lookup(study_runs& runs, std::string file) : runs_(runs), file_(std::move(file)) {}

  /// All sizes of the file.
  const study_result& run(const std::string& set = {}) const { return runs_.run(file_, set); }
  /// One size alone, whether the file names it or not.
  const study_row& row(const std::string& set, std::size_t bytes) const;
  double time_us(const std::string& set, std::size_t bytes) const { return row(set, bytes).time_us; }
  /// The same figure may need the runs of another file.
  study_lookup in(std::string file) const { return {runs_, std::move(file)}; }

private:
  study_runs& runs_;
  std::string file_;
};

/// A row of a source's table that compares algorithms: its words, and what the runs have in their place.
struct side_by_side {
  struct words {
    std::string rounds, latency, bandwidth, synchronisation;  ///< empty: the source has none
  };
  std::string algorithm, layout;
  words says;
  int rounds = 0;                ///< messages with data that follow one another
  int tokens = 0;                ///< empty messages that a rank sends
  double bandwidth_percent = 0;  ///< of the largest call's time, what ports and wires need at least
  std::vector<std::pair<std::size_t, double>> times;  ///< bytes, µs; the first is latency alone
};

struct measured {
  double value = 0;                 ///< in the figure's unit, from simulated runs
  std::optional<double> formula{};  ///< what the source's own formula gives for the same case, where it has one
  std::string note{};               ///< what this run showed besides: "meet at 48 KiB"; stands before the remark
  std::optional<side_by_side> beside{};
};

/// Where the number in the column "published" comes from. Only the first is the source's word.
enum class published_kind : std::uint8_t {
  printed,  ///< in the source
  derived,  ///< from the source's text or with its printed constants, by a formula that it does not evaluate there, or by our reading of it
  assumed,  ///< the source's formula with constants that it does not give
};
/// "printed", "derived", "assumed".
std::string_view name(published_kind kind) noexcept;

struct published_figure {
  enum class sense : std::uint8_t { about, at_least, at_most };

  std::string id;      ///< unique: "spec1.fig14"
  std::string source;  ///< "spec 1, fig. 14"
  std::string what;    ///< "CSC-AG over Ring-AG at 4096 KB"
  std::string file;    ///< of config/studies
  double published = 0;
  std::string unit;  ///< "x", "GB/s", "us", "%", "days", "KiB"; empty: a plain number
  std::function<measured(const study_lookup&)> ours;
  std::string remark{};       ///< why ours differs, or what the figure assumes
  sense says = sense::about;  ///< "more than 20 %": at_least
  published_kind kind = published_kind::printed;
  bool modelled =
      true;  ///< false: the model lacks what the figure is about, and the remark says what; the row shows how far off that is
};

// -- the figures, a file a source --

std::vector<published_figure> spec1_figures();
std::vector<published_figure> spec2_figures();
std::vector<published_figure> spec3_figures();
std::vector<published_figure> spec4_figures();
std::vector<published_figure> side_by_side_figures();  ///< of spec 4
std::vector<published_figure> spec5_figures();
/// All of them, in this order.
std::vector<published_figure> all_published_figures();

// -- the table --

struct published_row {
  published_figure figure;
  measured ours;
  std::string failure;  ///< why there is no value; empty: there is one
  /// Percent by which ours is off; 0 where a bound is kept.
  double error_percent() const;
};
/// @param progress is told the figure's id. A figure that cannot be run becomes a row with its failure.
/// @throws error(cancelled)
std::vector<published_row> run_published(const std::vector<published_figure>& figures, study_runs& runs,
                                         const std::function<void(const std::string&)>& progress = {});
void print_published(std::ostream& to, const std::vector<published_row>& rows);
/// [{id, source, what, file, published, kind, modelled, says, unit, ours, formula, error_percent, note, remark, failure, side_by_side: {algorithm,
/// layout, rounds, latency_us, bandwidth_percent, tokens, time_us: {bytes: µs}, says: {rounds, latency, bandwidth, synchronisation}} or null}]
std::string published_json(const std::vector<published_row>& rows);

}  // namespace troupe
