// SPDX-License-Identifier: Apache-2.0
// The [study] of a configuration.
#include "engine/planning/nccl_selection.hpp"
#include "engine/tools/study/study.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "engine/tools/study/this_machine.hpp"
#include "engine/tools/study/useless_keys.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "topology/machine/quantities.hpp"

namespace troupe {

namespace {

constexpr std::string_view prefix = "study.";

class study_reader {
public:
  explicit study_reader(const configuration& from) : from_(from) {}

  study_scenario read() {
    study_scenario s;
    read_call(s);
    read_performing(s);
    read_preset(s);
    read_constants(s);
    read_stragglers(s);
    for (const auto& [key, entry] : from_.values())
      if (key.starts_with(prefix) && entry.origin.from != config_origin::source::initial) {
        s.as_said[key] = study_value_text(entry.value);
        s.places.try_emplace(key, place_of(entry.origin));
      }
    read_jobs(from_, s);
    read_flow(from_, s);
    return s;
  }

  /// As its preset has it.
  hardware machine() const {
    study_scenario s;
    read_preset(s);
    return build_study_machine(s.preset_name, s.request).on;
  }

private:
  [[noreturn]] void fail(const std::string& key, const std::string& sentence) const {
    const auto& all = from_.values();
    const auto at = all.find(std::string{prefix} + key);
    const std::string place = at == all.end() ? "" : place_of(at->second.origin) + ": ";
    throw error(errc::bad_config, place + std::string{prefix} + key + ": " + sentence);
  }

  const config_value& value(const std::string& key) const { return from_.at(std::string{prefix} + key).value; }
  std::string text(const std::string& key) const { return std::get<std::string>(value(key)); }
  int number(const std::string& key) const { return static_cast<int>(std::get<std::int64_t>(value(key))); }
  bool flag(const std::string& key) const { return std::get<bool>(value(key)); }
  std::uint64_t bytes(const std::string& key) const {
    const config_value& v = value(key);
    if (const auto* n = std::get_if<std::int64_t>(&v)) return static_cast<std::uint64_t>(*n);
    return static_cast<std::uint64_t>(parse_bytes(std::get<std::string>(v)));
  }
  picoseconds time(const std::string& key, const std::string& said) const {
    if (const auto t = parse_time(said)) {
      if (*t > longest_setting)
        fail(key, "\"" + said + "\" is too long; it may be at most " + to_text(longest_setting));
      return *t;
    }
    fail(key, "\"" + said + "\" is no time; write, for example, \"25us\"");
  }
  picoseconds time(const std::string& key) const { return time(key, text(key)); }

  void read_call(study_scenario& s) const {
    s.title = text("title");
    const auto kind = parse_job_kind(text("collective"));
    if (!kind || kind->send_recv)
      fail("collective", "there is no collective \"" + text("collective") +
                             "\" to study; take a collective, such as all_reduce, or a v-form");
    s.kind = *kind;
    s.sizes.clear();
    for (const std::int64_t n : std::get<std::vector<std::int64_t>>(value("sizes")))
      s.sizes.push_back(static_cast<std::size_t>(n));
    if (s.kind.is_barrier()) s.sizes = {0};
    if (from_.has("study.counts")) read_counts(s);
    const auto types = types_of(text("type"));
    if (types.size() != 1) fail("type", "there is no element type \"" + text("type") + "\"; take, for example, f32");
    s.type = types.front();
    if (s.kind.reduces()) {
      const auto ops = ops_of(text("op"), s.type);
      if (ops.size() != 1)
        fail("op", text("op") + " is no operation of " + std::string{name(s.type)} + "; take, for example, sum");
      s.reduction = ops.front();
    }
    s.root = number("root");
    s.in_place = flag("in_place");
  }

  void read_counts(study_scenario& s) const {
    if (!s.kind.v_form) fail("counts", name(s.kind) + " has blocks of one size; counts are for the v-forms");
    const auto unit = static_cast<std::size_t>(number("unit"));
    for (const auto& row : std::get<std::vector<std::vector<std::int64_t>>>(value("counts")))
      for (const std::int64_t c : row) s.counts.push_back(static_cast<std::size_t>(c) * unit);
    s.sizes = {0};
  }

  void read_performing(study_scenario& s) const {
    s.choreography = text("choreography");
    read_own_choreographies(s);
    const bool selected = s.choreography == "hccl" || s.choreography == "nccl";
    if (s.choreography != "auto" && !selected && find_choreography(s.choreography) == nullptr &&
        s.score_files.find(s.choreography) == s.score_files.end()) {
      std::vector<std::string> files;
      for (const auto& [own, file] : s.score_files) files.push_back(own);
      fail("choreography", "there is no choreography \"" + s.choreography + "\"; " +
                               which_choreographies(s.choreography, files, {"auto", "hccl", "nccl"}));
    }
    s.protocol = text("protocol");
    s.channels = number("channels");
    s.slices = number("slices");
    s.slices_per_step = number("slices_per_step");
    s.chunk_bytes = bytes("chunk_bytes");
    s.credits = number("credits");
    s.streams = number("streams");
    s.through_scratch = flag("through_scratch");
    s.contiguous = flag("contiguous");
    if (s.contiguous && (s.channels > 1 || s.slices > 1 || s.kind.v_form))
      fail("contiguous",
           "blocks lie beside each other in L2 only where they are whole and alike: one channel, one slice, no v-form");
    read_hccl(s);
    read_nccl(s);
    s.carry = text("payload") == "real" ? payload::real : payload::none;
    s.by = text("performed_by") == "states"   ? performed_by::states
           : text("performed_by") == "player" ? performed_by::player
                                              : performed_by::automatic;
    if (s.by == performed_by::player && s.carry == payload::real)
      fail("performed_by", "the player moves no bytes; take payload = \"none\", or the states");
    s.any_order = flag("any_order");
    s.compute = time("compute");
    s.compute_blocks = number("compute_blocks");
    s.compute_dma_bytes = bytes("compute_dma_bytes");
    s.overlap = flag("overlap");
  }

  /// Those of the engine, too: one configuration says what both perform.
  void read_own_choreographies(study_scenario& s) const {
    s.score_files = from_.load_own_choreographies().score_files;
    for (const auto& [own, entry] : from_.under("study.score_files")) {
      const auto& file = std::get<std::string>(entry.value);
      const auto [at, fresh] = s.score_files.try_emplace(own, file);
      if (!fresh && at->second != file)
        fail("score_files." + own, "it is " + file + ", and engine.score_files." + own + " is " + at->second +
                                       "; call one of them otherwise");
    }
  }

  void read_hccl(study_scenario& s) const {
    // With jobs it is no matter of the collective: they know no hccl (read_jobs()).
    if (s.choreography == "hccl" && from_.jobs().empty() && !has_hccl_selection(s.kind.what))
      fail("choreography",
           "HCCL's selection is of all_to_all, all_reduce, all_gather and reduce_scatter, not of " + name(s.kind));
    s.hccl.what = s.kind.what;
    s.hccl.device = *parse_hccl_device(text("hccl.device"));
    s.hccl.ccl_buffer = bytes("hccl.buffer");
    s.hccl.super_pod = flag("hccl.super_pod");
    s.hccl.aiv = flag("hccl.aiv");
    s.hccl.aicpu_unfolded = flag("hccl.aicpu_unfolded");
    s.hccl.one_level = flag("hccl.one_level");
    s.hccl.level0 = *parse_hccl_level(text("hccl.level0"));
    s.hccl.level1 = *parse_hccl_level(text("hccl.level1"));
  }

  void read_nccl(study_scenario& s) const {
    const bool chooses = !s.kind.v_form && has_nccl_selection(s.kind.what);
    if (s.choreography == "nccl" && from_.jobs().empty() && !chooses && s.kind.what != collective::all_to_all)
      fail("choreography", "NCCL's tuning model is of all_reduce, all_gather, reduce_scatter, broadcast and reduce, "
                           "and an all_to_all is a group of sends and "
                           "receives; there is nothing for " +
                               name(s.kind));
    s.nccl = from_.nccl("study.nccl.");
  }

  void read_preset(study_scenario& s) const {
    s.preset_name = text("preset");
    s.request.ranks = number("ranks");
    s.request.layout = text("layout");
    for (const auto& [key, entry] : from_.under("study.structure"))
      s.request.structure.emplace_back(key, std::get<std::string>(entry.value));
    // The constants of this machine are those that an engine of the same configuration would load.
    const auto& given = s.request.structure;
    if (const std::string file = std::get<std::string>(from_.at("engine.tuning").value);
        s.preset_name == this_machine_preset && !file.empty() &&
        std::none_of(given.begin(), given.end(), [](const auto& pair) { return pair.first == "tuning"; }))
      s.request.structure.emplace_back("tuning", file);
  }

  void read_constants(study_scenario& s) const {
    for (const auto& [key, entry] : from_.under("study.hardware")) {
      s.overrides.emplace_back(key, std::get<std::string>(entry.value));
      s.places["study.hardware." + key] = place_of(entry.origin);
    }
  }

  void read_stragglers(study_scenario& s) const {
    for (const auto& [element, entry] : from_.under("study.slow")) {
      s.slow.emplace_back(element, std::get<double>(entry.value));
      s.places["study.slow." + element] = place_of(entry.origin);
    }
    for (const auto& [element, entry] : from_.under("study.faults")) {
      s.faults.emplace_back(element, std::get<std::string>(entry.value));
      s.places["study.faults." + element] = place_of(entry.origin);
    }
    for (const auto& [rank, entry] : from_.under("study.skew")) {
      int r = 0;
      const auto [end, failure] = std::from_chars(rank.data(), rank.data() + rank.size(), r);
      if (failure != std::errc{} || end != rank.data() + rank.size() || r < 0)
        fail("skew." + rank, "name a rank by its number: 3 = \"100us\"");
      s.skew.emplace_back(r, time("skew." + rank, std::get<std::string>(entry.value)));
    }
    s.skew_spread = time("skew_spread");
    s.seed = static_cast<std::uint64_t>(std::get<std::int64_t>(value("seed")));
  }

  const configuration& from_;
};

}  // namespace

std::string which_choreographies(std::string_view wanted, const std::vector<std::string>& files,
                                 std::vector<std::string_view> besides) {
  for (const choreography* c : all_choreographies()) besides.push_back(c->name);
  besides.insert(besides.end(), files.begin(), files.end());
  const auto near = closest(wanted, besides);
  return (near.empty() ? "`troupe list` shows all built in; " : "did you mean " + std::string{near} + "? ") +
         "[study.score_files] or [engine.score_files] names score files of your own, [engine.choreography_libraries] "
         "libraries";
}

std::string study_value_text(const config_value& v) {
  if (const auto* b = std::get_if<bool>(&v)) return *b ? "true" : "false";
  if (const auto* n = std::get_if<std::int64_t>(&v)) return std::to_string(*n);
  if (const auto* t = std::get_if<std::string>(&v)) return *t;
  if (const auto* d = std::get_if<double>(&v)) return std::to_string(*d);
  std::string list;
  if (const auto* row = std::get_if<std::vector<std::int64_t>>(&v))
    for (const auto n : *row) list += (list.empty() ? "" : ",") + std::to_string(n);
  return list;
}

namespace {

/// As a variable's name has it.
std::string without_dots_and_blanks(std::string_view name) {
  std::string made;
  for (const char c : name)
    made += std::isalnum(static_cast<unsigned char>(c)) != 0
                ? static_cast<char>(std::tolower(static_cast<unsigned char>(c)))
                : '_';
  return made;
}

/// "link.latency" for "link_latency"; `said` itself if no constant is called so.
std::string constant_meant(const hardware& machine, const std::string& said) {
  for (const auto& [name, value] : machine.settings())
    if (without_dots_and_blanks(name) == said) return name;
  return said;
}

/// "up 3" for "up_3".
std::string element_meant(const hardware& machine, const std::string& said) {
  for (const hardware_element& e : machine.elements)
    if (without_dots_and_blanks(e.name) == said) return e.name;
  return said;
}

}  // namespace

configuration with_names_of_machine(const configuration& from) {
  configuration named = from;
  std::optional<hardware> machine;
  for (const char* table : {"study.hardware", "study.slow", "study.faults"})
    for (const auto& [said, entry] : from.under(table)) {
      if (entry.origin.from != config_origin::source::environment) continue;
      if (!machine) machine = study_reader{from}.machine();
      const bool constant = std::string_view{table} == "study.hardware";
      const std::string name = constant ? constant_meant(*machine, said) : element_meant(*machine, said);
      try {
        if (constant) machine->set(name, std::get<std::string>(entry.value));
      } catch (const error& wrong) {
        throw error(wrong.code_value(), place_of(entry.origin) + ": " + wrong.what());
      }
      named.rename(std::string{table} + "." + said, std::string{table} + "." + name);
    }
  return named;
}

study_scenario read_study(const configuration& from, study_use use) {
  const configuration named = with_names_of_machine(from);
  study_scenario read = study_reader{named}.read();
  refuse_useless_keys(named, read, use);
  return read;
}

std::string said_at(const study_scenario& scenario, const std::string& key) {
  const auto found = scenario.places.find(key);
  return found == scenario.places.end() ? std::string{} : found->second + ": ";
}

std::string key_told_of(std::string_view sentence) {
  if (sentence.starts_with("study.")) return std::string{sentence.substr(0, sentence.find_first_of(": "))};
  if (sentence.starts_with("layout: ")) return "study.layout";
  if (sentence.starts_with("preset ") || sentence.starts_with("there is no preset ")) return "study.preset";
  return {};
}

}  // namespace troupe
