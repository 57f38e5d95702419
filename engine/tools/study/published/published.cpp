// SPDX-License-Identifier: Apache-2.0
// Runs the published figures and prints them.
#include "engine/tools/study/published/published.hpp"

#include <cmath>
#include <cstdio>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "memory/error.hpp"

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

configuration configured(const std::string& path, const std::string& set) {
  configuration c;
  c.add_file(path);
  std::istringstream words{set};
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos)
      throw error(errc::bad_config, path + ": \"" + word + "\" is no assignment; write key=value");
    c.set("study." + word.substr(0, equals), word.substr(equals + 1));
  }
  return c;
}

std::string number_text(double value) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  char text[48];
  std::snprintf(text, sizeof text, size >= 1e6 ? "%.4g" : size >= 1000 ? "%.0f" : size >= 100 ? "%.1f" : "%.3g", value);
  return text;
}

std::string with_unit(double value, const std::string& unit) {
  if (unit.empty() || unit == "x" || unit == "%") return number_text(value) + unit;
  return number_text(value) + " " + unit;
}

const char* sign_of(published_figure::sense says) {
  switch (says) {
    case published_figure::sense::at_least: return ">= ";
    case published_figure::sense::at_most: return "<= ";
    case published_figure::sense::about: break;
  }
  return "";
}

/// Columns, not bytes: texts hold "µ" and "×".
std::string padded(std::string text, std::size_t width) {
  std::size_t columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  if (columns < width) text.append(width - columns, ' ');
  return text;
}

void print_wrapped(std::ostream& to, const std::string& text, const std::string& indent, std::size_t width) {
  std::istringstream words{text};
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > width) to << indent << line << '\n', line.clear();
    line += (line.empty() ? "" : " ") + word;
  }
  if (!line.empty()) to << indent << line << '\n';
}

std::string explained(const published_row& row) {
  if (!row.failure.empty()) return "failed: " + row.failure;
  if (!row.figure.modelled) return "not reproduced: " + row.figure.remark;
  return row.ours.note + (row.ours.note.empty() || row.figure.remark.empty() ? "" : "; ") + row.figure.remark;
}

}  // namespace

std::string_view name(published_kind kind) noexcept {
  switch (kind) {
    case published_kind::printed: return "printed";
    case published_kind::derived: return "derived";
    case published_kind::assumed: break;
  }
  return "assumed";
}

// -- runs -------------------------------------------------------------------------------------------------------------

const study_result& study_runs::run(const std::string& file, const std::string& set) {
  const auto key = std::pair{file, set};
  if (const auto at = made_.find(key); at != made_.end()) return at->second;
  return made_.emplace(key, run_study(read_study(configured(folder_ + "/" + file, set)), options_)).first->second;
}

const study_row& study_lookup::row(const std::string& set, std::size_t bytes) const {
  const study_result& r = runs_.run(file_, set + " sizes=" + std::to_string(bytes));
  if (r.rows.size() != 1) throw error(errc::bad_config, file_ + ": one size gave " + plural(r.rows.size(), "row"));
  return r.rows.front();
}

std::vector<published_figure> all_published_figures() {
  std::vector<published_figure> all;
  for (auto* const of : {spec1_figures, spec2_figures, spec3_figures, spec4_figures, spec5_figures})
    for (published_figure& f : of()) all.push_back(std::move(f));
  return all;
}

double published_row::error_percent() const {
  const double off = ours.value - figure.published;
  if (figure.says == published_figure::sense::at_least && off >= 0) return 0;
  if (figure.says == published_figure::sense::at_most && off <= 0) return 0;
  return figure.published == 0 ? 100 * off : 100 * off / std::abs(figure.published);
}

std::vector<published_row> run_published(const std::vector<published_figure>& figures, study_runs& runs,
                                         const std::function<void(const std::string&)>& progress) {
  std::vector<published_row> rows;
  for (const published_figure& f : figures) {
    if (progress) progress(f.id);
    published_row row{f, {}, {}};
    try {
      row.ours = f.ours(study_lookup{runs, f.file});
      if (!std::isfinite(row.ours.value)) row.failure = "the runs give no number";
    } catch (const error& wrong) {
      if (wrong.code_value() == errc::cancelled) throw;
      row.failure = wrong.what();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// -- reports ----------------------------------------------------------------------------------------------------------

namespace {

void print_side_by_side(std::ostream& to, const side_by_side& row) {
  const auto both = [](const std::string& ours, const std::string& says) {
    return padded(says.empty() ? ours : ours + "  " + says, 23) + ' ';
  };
  to << "    " << padded(row.algorithm, 24) << padded(row.layout, 7)
     << both(std::to_string(row.rounds), row.says.rounds)
     << both(with_unit(row.times.front().second, "us"), row.says.latency)
     << both(with_unit(row.bandwidth_percent, "%"), row.says.bandwidth)
     << both(std::to_string(row.tokens), row.says.synchronisation);
  std::string times;
  for (const auto& [bytes, us] : row.times) times += padded(number_text(us), 10);
  to << times.erase(times.find_last_not_of(' ') + 1) << '\n';
}

/// Of the rows that have a place in it.
void print_side_by_side(std::ostream& to, const std::vector<published_row>& rows) {
  bool first = true;
  for (const published_row& row : rows) {
    if (!row.ours.beside) continue;
    if (std::exchange(first, false)) {
      to << "#\n# Side by side: in numbers what the simulated runs have, behind them what the source says. Rounds: "
            "messages "
            "with data that follow one another.\n# Latency: of the smallest call. Bandwidth: of the largest call's "
            "time, "
            "what ports and wires need at least. Tokens: empty messages that a\n# rank sends. Times in us.\n#   "
         << padded("algorithm", 24) << padded("layout", 7) << padded("rounds", 24) << padded("latency", 24)
         << padded("bandwidth", 24) << padded("tokens", 24);
      for (const auto& [bytes, us] : row.ours.beside->times) to << padded(bytes_text(bytes), 10);
      to << '\n';
    }
    print_side_by_side(to, *row.ours.beside);
  }
}

json side_by_side_json(const std::optional<side_by_side>& row) {
  if (!row) return {};
  json times = json::object();
  for (const auto& [bytes, us] : row->times) times[std::to_string(bytes)] = us;
  return {{"algorithm", row->algorithm},
          {"layout", row->layout},
          {"rounds", row->rounds},
          {"latency_us", row->times.front().second},
          {"bandwidth_percent", row->bandwidth_percent},
          {"tokens", row->tokens},
          {"time_us", times},
          {"says",
           {{"rounds", row->says.rounds},
            {"latency", row->says.latency},
            {"bandwidth", row->says.bandwidth},
            {"synchronisation", row->says.synchronisation}}}};
}

}  // namespace

void print_published(std::ostream& to, const std::vector<published_row>& rows) {
  to << "# Published figures, and the same cases in virtual time. Formula: the source's own, where it has one.\n"
        "# What stands under \"published\" is printed in the source; or, marked d, derived from its text and constants "
        "by a formula or a reading\n"
        "# that it does not have itself; or, marked a, its formula with constants that are assumed because it gives "
        "none.\n";
  std::string file;
  for (const published_row& row : rows) {
    const published_figure& f = row.figure;
    if (f.file != file) {
      file = f.file;
      to << "#\n# config/studies/" << file << "\n#   " << padded("source", 24) << padded("what", 56)
         << padded("published", 14) << padded("ours", 12) << padded("error", 9) << "formula\n";
    }
    const bool failed = !row.failure.empty();
    char off[24];
    std::snprintf(off, sizeof off, "%+.1f%%", row.error_percent());
    const char* mark = f.kind == published_kind::printed ? "  " : f.kind == published_kind::derived ? "d " : "a ";
    to << "  " << mark << padded(f.source, 23) << ' ' << padded(f.what, 55) << ' '
       << padded(sign_of(f.says) + with_unit(f.published, f.unit), 13) << ' '
       << padded(failed ? "-" : with_unit(row.ours.value, f.unit), 11) << ' ' << padded(failed ? "-" : off, 8) << ' '
       << (row.ours.formula ? with_unit(*row.ours.formula, f.unit) : "") << '\n';
    print_wrapped(to, explained(row), "      ", 120);
  }
  print_side_by_side(to, rows);
}

std::string published_json(const std::vector<published_row>& rows) {
  json list = json::array();
  for (const published_row& row : rows) {
    const published_figure& f = row.figure;
    const bool failed = !row.failure.empty();
    constexpr const char* senses[] = {"about", "at_least", "at_most"};
    json one{{"id", f.id},
             {"source", f.source},
             {"what", f.what},
             {"file", f.file},
             {"published", f.published},
             {"kind", name(f.kind)},
             {"modelled", f.modelled},
             {"says", senses[static_cast<std::size_t>(f.says)]},
             {"unit", f.unit}};
    one["ours"] = failed ? json{} : json(row.ours.value);
    one["formula"] = row.ours.formula ? json(*row.ours.formula) : json{};
    one["error_percent"] = failed ? json{} : json(row.error_percent());
    one["note"] = row.ours.note;
    one["remark"] = f.remark;
    one["failure"] = row.failure;
    one["side_by_side"] = side_by_side_json(row.ours.beside);
    list.push_back(std::move(one));
  }
  return list.dump(2) + "\n";
}

}  // namespace troupe
