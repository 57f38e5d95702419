// SPDX-License-Identifier: Apache-2.0
// The [[study.job]] tables of a configuration.
#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <sstream>

#include "engine/tools/study/study.hpp"
#include "engine/tools/study/useless_keys.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "topology/machine/quantities.hpp"

namespace troupe {

namespace {

constexpr std::size_t most_jobs = 4096;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::vector<std::string_view> parts_of(std::string_view text, char between) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const auto end = std::min(text.find(between, at), text.size());
    parts.push_back(trimmed(text.substr(at, end - at)));
    at = end + 1;
  }
  return parts;
}

/// The values of one table, defaults filled in.
class job_reader {
public:
  job_reader(const configuration& from, const study_scenario& study, std::size_t index)
      : table_(from.jobs()[index]), study_(study) {
    said_.name = text("name", "job " + std::to_string(index));
    said_.place = place_of(from.origin_of_job(index));
    for (const auto& [key, entry] : table_) said_.places[key] = place_of(entry.origin);
  }

  study_job read() const {
    study_job j = said_;
    j.ranks = static_cast<int>(number("ranks", 0));
    if (has("on")) j.on = ranks(text("on", ""));
    if (j.ranks > 0 && !j.on.empty())
      fail("ranks", "it says both how many ranks there are and with `on` which; say one of them");
    j.layout = text("layout", "");
    j.choreography = choreography(text("choreography", study_.choreography), "choreography");
    j.protocol = text("protocol", study_.protocol);
    j.calls = calls();
    const auto types = has("type") ? types_of(text("type", "")) : std::vector{study_.type};
    if (types.size() != 1)
      fail("type", "there is no element type \"" + text("type", "") + "\"; take, for example, f32");
    j.type = types.front();
    j.reduction = study_.reduction;
    if (has("op")) {
      const auto ops = ops_of(text("op", ""), j.type);
      if (ops.size() != 1)
        fail("op",
             text("op", "") + " is no operation of " + std::string{troupe::name(j.type)} + "; take, for example, sum");
      j.reduction = ops.front();
    }
    j.root = static_cast<rank_t>(number("root", 0));
    j.start = time("start");
    j.compute = time("compute");
    j.period = time("period");
    j.rounds = static_cast<int>(number("rounds", 1));
    if (const auto* value = find("share")) j.share = std::get<bool>(*value);
    if (const std::string by = text("by", ""); !by.empty()) j.by_nics = by == "nics";
    return j;
  }
  std::int64_t copies() const { return number("copies", 1); }
  [[noreturn]] void fail(std::string_view key, const std::string& sentence) const {
    throw error(errc::bad_config, said_.at(key) + sentence);
  }

private:
  const config_value* find(std::string_view key) const {
    const auto found = table_.find(key);
    return found == table_.end() ? nullptr : &found->second.value;
  }
  /// An empty text is as good as none.
  bool has(std::string_view key) const { return !text(key, "").empty(); }
  std::string text(std::string_view key, const std::string& initial) const {
    const auto* value = find(key);
    return value == nullptr || std::get<std::string>(*value).empty() ? initial : std::get<std::string>(*value);
  }
  std::int64_t number(std::string_view key, std::int64_t initial) const {
    const auto* value = find(key);
    return value == nullptr ? initial : std::get<std::int64_t>(*value);
  }
  picoseconds time(std::string_view key) const {
    const std::string said = text(key, "0");
    const auto t = parse_time(said);
    if (!t) fail(key, "\"" + said + "\" is no time; write, for example, \"25us\"");
    if (*t > longest_setting) fail(key, "\"" + said + "\" is too long; it may be at most " + to_text(longest_setting));
    return *t;
  }

  int integer(std::string_view key, std::string_view said, std::string_view all) const {
    int value = 0;
    const auto [end, failure] = std::from_chars(said.data(), said.data() + said.size(), value);
    if (failure != std::errc{} || end != said.data() + said.size() || value < 0)
      fail(key, "\"" + std::string{all} + "\" is no list of ranks; write, for example, \"0-7, 16-30:2, 33\"");
    return value;
  }

  /// "0-7, 16-30:2, 33"
  std::vector<int> ranks(const std::string& said) const {
    std::vector<int> all;
    for (const std::string_view item : parts_of(said, ',')) {
      const auto colon = item.find(':');
      const auto dash = item.find('-');
      const int first = integer("on", trimmed(item.substr(0, std::min(dash, colon))), said);
      const int last = dash == std::string_view::npos
                           ? first
                           : integer("on", trimmed(item.substr(dash + 1, colon - dash - 1)), said);
      const int step = colon == std::string_view::npos ? 1 : integer("on", trimmed(item.substr(colon + 1)), said);
      if (step < 1 || last < first)
        fail("on", "\"" + std::string{item} + "\" is no range of ranks; write first-last or first-last:step");
      if (static_cast<std::size_t>((last - first) / step) + all.size() >= std::size_t{1} << 24)
        fail("on", "\"" + std::string{item} + "\" are too many ranks");
      for (int r = first; r <= last; r += step) all.push_back(r);
    }
    return all;
  }

  std::string choreography(const std::string& wanted, std::string_view key) const {
    if (wanted == "auto" || find_choreography(wanted) != nullptr || study_.score_files.contains(wanted)) return wanted;
    if (wanted == "hccl" || wanted == "nccl") {
      const std::string why =
          wanted + " is a selection of the study's one collective; a job names a choreography, or auto";
      if (key == "choreography" && !has(key))
        throw error(errc::bad_config, said_at(study_, "study.choreography") + "study.choreography: " + why);
      fail(key, why);
    }
    std::vector<std::string> files;
    for (const auto& [own, file] : study_.score_files) files.push_back(own);
    fail(key, "there is no choreography \"" + wanted + "\"; " + which_choreographies(wanted, files, {"auto"}));
  }

  /// "all_reduce 4M, all_gather 64K by ring, barrier"
  std::vector<study_call> calls() const {
    std::vector<study_call> all;
    const std::string said = text("calls", "");
    for (const std::string_view item : parts_of(said, ',')) all.push_back(call(std::string{item}));
    return all;
  }
  study_call call(const std::string& said) const {
    std::istringstream in{said};
    std::string what, size, by, how, more;
    in >> what;
    study_call c;
    const auto kind = parse_job_kind(what);
    if (!kind || kind->send_recv || kind->v_form) {
      std::vector<std::string_view> names;
      for (const std::string& n : all_job_names())
        if (parse_collective(n)) names.push_back(n);
      const auto near = closest(what, names);
      fail("calls", (what.empty() ? "there is a call without a name" : "a job performs no \"" + what + "\"") +
                        (near.empty() ? "; write, for example, \"all_reduce 4M, all_gather 64K by ring\""
                                      : "; did you mean " + std::string{near} + "?"));
    }
    c.kind = *kind;
    if (!c.kind.is_barrier()) {
      in >> size;
      const std::int64_t bytes = parse_bytes(size);
      if (bytes < 0)
        fail("calls", "\"" + said + "\" " + (size.empty() ? "has no size" : "has the size \"" + size + "\"") +
                          "; write, for example, \"" + what + " 4M\"");
      c.bytes = static_cast<std::size_t>(bytes);
    }
    if (in >> by) {
      if (by != "by" || !(in >> how) || (in >> more))
        fail("calls", "\"" + said + "\": behind the size comes nothing, or `by` and a choreography");
      c.choreography = choreography(how, "calls");
    }
    return c;
  }

  const config_table& table_;
  const study_scenario& study_;
  study_job said_;  ///< its name and places
};

/// What only a study of one collective listens to.
void refuse_what_does_nothing(const configuration& from) {
  static constexpr std::array<const char*, 15> useless{
      "collective", "sizes",           "counts",  "unit",    "root",           "in_place",
      "slices",     "slices_per_step", "payload", "compute", "compute_blocks", "compute_dma_bytes",
      "overlap",    "skew_spread",     "seed"};
  refuse_keys(from, useless, "the study has jobs, and each says what it performs, and when");
  for (const auto& [rank, entry] : from.under("study.skew"))
    throw error(errc::bad_config, place_of(entry.origin) + ": study.skew." + rank +
                                      " would do nothing: the study has jobs, whose `start` says when they begin");
  for (const char* key : {"offload", "jobs"})
    if (const auto said = from.under("study.structure"); said.contains(key))
      throw error(errc::bad_config, place_of(said.at(key).origin) + ": study.structure." + key +
                                        " would do nothing beside [[study.job]]: say `by` and `copies` there");
}

}  // namespace

std::string study_job::at(std::string_view key) const {
  const auto found = places.find(key);
  return (found == places.end() ? place : found->second) + ": " + name + ": " +
         (key.empty() ? std::string{} : std::string{key} + ": ");
}

void read_jobs(const configuration& from, study_scenario& s) {
  if (from.jobs().empty()) return;
  refuse_what_does_nothing(from);
  std::set<std::string> names;
  for (std::size_t i = 0; i < from.jobs().size(); ++i) {
    const job_reader reader{from, s, i};
    const study_job one = reader.read();
    const std::int64_t copies = reader.copies();
    if (copies > 1 && !one.on.empty() && !one.share)
      reader.fail("copies", "copies on the same ranks must share; say share = true, or how many ranks each has");
    if (s.jobs.size() + static_cast<std::size_t>(copies) > most_jobs)
      reader.fail("copies", "there are at most " + std::to_string(most_jobs) + " jobs");
    for (std::int64_t c = 0; c < copies; ++c) {
      s.jobs.push_back(one);
      if (copies > 1) s.jobs.back().name += "." + std::to_string(c);
      if (!names.insert(s.jobs.back().name).second)
        reader.fail("name", "two jobs are called \"" + s.jobs.back().name + "\"; give each a name of its own");
    }
    for (const auto& [key, entry] : from.jobs()[i])
      s.as_said["study.job." + std::to_string(i) + "." + key] = study_value_text(entry.value);
  }
}

}  // namespace troupe
