// SPDX-License-Identifier: Apache-2.0
// The options of an engine, from what a configuration says; and what of it can be wrong only when the choreographies are known.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "engine/api/engine.hpp"
#include "engine/config/configuration.hpp"
#include "engine/planning/choreography_library.hpp"
#include "engine/planning/choreography_wish.hpp"
#include "engine/planning/hccl_selection.hpp"
#include "engine/planning/nccl_selection.hpp"
#include "engine/planning/option_bounds.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace troupe {

namespace {

[[noreturn]] void refuse(const config_entry& entry, const std::string& sentence) {
  throw error(errc::bad_config, place_of(entry.origin) + ": " + sentence);
}

}  // namespace

void configuration::check_choreography(const std::string& what, const config_entry& entry) const {
  const auto& wanted = std::get<std::string>(entry.value);
  const auto own = under("engine.score_files");
  if (wanted == "auto" || find_choreography(wanted) != nullptr || own.find(wanted) != own.end()) return;
  if (wanted.empty()) refuse(entry, what + " is empty; \"auto\" lets the planner choose");
  std::vector<std::string> files;
  for (const auto& [name, file] : own) files.push_back(name);
  if (const std::string wrong = wrong_choreography(wanted, known_choreographies(files)); !wrong.empty())
    refuse(entry, what + ": " + wrong);
}

namespace {

std::int64_t duration_of(const config_entry& entry) {
  const auto& text = std::get<std::string>(entry.value);
  return text == "none" ? -1 : parse_duration(text);
}

std::size_t bytes_of(const config_entry& entry) {
  if (const auto* number = std::get_if<std::int64_t>(&entry.value)) return static_cast<std::size_t>(*number);
  return static_cast<std::size_t>(parse_bytes(std::get<std::string>(entry.value)));
}

fault_options faults_of(const configuration& c) {
  const auto real = [&](const char* key) { return std::get<double>(c.at(std::string{"engine.faults."} + key).value); };
  fault_options f;
  f.seed = static_cast<std::uint64_t>(std::get<std::int64_t>(c.at("engine.faults.seed").value));
  f.drop = real("drop");
  f.duplicate = real("duplicate");
  f.reorder = real("reorder");
  f.delay = real("delay");
  const std::int64_t longest = duration_of(c.at("engine.faults.longest_delay"));
  f.longest_delay = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::nanoseconds{std::max<std::int64_t>(longest, 0)});
  f.kill_after = std::get<std::int64_t>(c.at("engine.faults.kill_after").value);
  f.kill_rank = static_cast<int>(std::get<std::int64_t>(c.at("engine.faults.kill_rank").value));
  return f;
}

/// A key that the command line sets and that does nothing is a mistake. In a file, or the environment, it may be meant for another command.
void check_command_line(const configuration& c, const engine_options& o) {
  const auto by_planner = [&](const char* name) {
    return o.planner == name ? "" : " would do nothing: the planner is " + o.planner + "; set engine.planner=" + name;
  };
  const fault_options& f = o.faults;
  const bool by_chance = f.drop > 0 || f.duplicate > 0 || f.reorder > 0 || f.delay > 0;
  const bool servers = !layout::leaves_places_open(o.layout) && layout::parse(o.layout).server_count() > 1;
  struct rule {
    std::string_view keys;  ///< what they begin with
    std::string wrong;      ///< empty: they count
  };
  const rule rules[]{
      {"engine.nic_ports",
       servers ? ""
               : " would do nothing: only messages between servers pass NICs; set engine.layout, for example to 2x4"},
      {"engine.hccl.", by_planner("hccl")},
      {"engine.nccl.", by_planner("nccl")},
      {"engine.faults.seed",
       by_chance
           ? ""
           : " would do nothing: no fault is left to chance; set engine.faults.drop, duplicate, reorder or delay"},
      {"engine.faults.longest_delay",
       f.delay > 0 ? "" : " would do nothing: nothing is delayed; set engine.faults.delay"},
      {"engine.faults.kill_rank", f.kill_after >= 0 ? "" : " kills nobody without engine.faults.kill_after"},
  };
  for (const auto& [key, entry] : c.values())
    if (entry.origin.from == config_origin::source::command_line)
      for (const rule& one : rules)
        if (key.starts_with(one.keys) && !one.wrong.empty()) refuse(entry, key + one.wrong);
}

}  // namespace

configuration::own_choreographies configuration::load_own_choreographies() const {
  own_choreographies own;
  for (const auto& [name, entry] : under("engine.choreography_libraries")) {
    const std::string& file = own.libraries[name] = std::get<std::string>(entry.value);
    try {
      load_choreographies(file.c_str());
    } catch (const error& wrong) {
      refuse(entry, "engine.choreography_libraries." + name + ": " + wrong.what());
    }
  }
  for (const auto& [name, entry] : under("engine.score_files")) {
    const std::string& file = own.score_files[name] = std::get<std::string>(entry.value);
    if (std::error_code ignored; !std::filesystem::is_regular_file(file, ignored))
      refuse(entry, "engine.score_files." + name + ": there is no file " + file +
                        "; `troupe show … --json` writes one (paths are relative to the configuration file)");
  }
  return own;
}

nccl_options configuration::nccl(const std::string& table) const {
  const auto text = [&](const char* key) { return std::get<std::string>(at(table + key).value); };
  const auto flag = [&](const char* key) { return std::get<bool>(at(table + key).value); };
  const auto real = [&](const char* key) { return std::get<double>(at(table + key).value); };
  nccl_options o;
  o.version = *parse_nccl_version(text("version"));
  o.device = *parse_nccl_device(text("device"));
  o.host = *parse_nccl_host(text("host"));
  o.nvlink = flag("nvlink");
  o.ll128 = flag("ll128");
  o.channels = static_cast<int>(std::get<std::int64_t>(at(table + "channels").value));
  o.inside = real("inside");
  o.between = real("between");
  o.nvls = flag("nvls");
  o.collnet = flag("collnet");
  return o;
}

engine_options configuration::engine() const {
  const auto text = [&](const char* key) { return std::get<std::string>(at(key).value); };
  const auto number = [&](const char* key) { return static_cast<int>(std::get<std::int64_t>(at(key).value)); };
  const auto tier_size_of = [&](const char* key, std::size_t most) {
    const std::size_t bytes = bytes_of(at(key));
    if (const std::string fault = card_size_fault(key, bytes, most); !fault.empty()) refuse(at(key), fault);
    return bytes;
  };
  engine_options o;
  o.layout = text("engine.layout");
  try {
    if (!layout::leaves_places_open(o.layout)) layout::parse(o.layout);
    layout::reduction_of(o.layout);
  } catch (const error& wrong) {
    refuse(at("engine.layout"), std::string{"engine.layout: "} + wrong.what());
  }
  o.nic_ports = number("engine.nic_ports");
  o.card.l0 = tier_size_of("engine.card.l0", card_sizes::most_l0);
  o.card.l2 = tier_size_of("engine.card.l2", card_sizes::most_l2);
  // Before names are looked up.
  own_choreographies own = load_own_choreographies();
  o.choreography_libraries = std::move(own.libraries);
  o.score_files = std::move(own.score_files);
  o.choreography = text("engine.choreography");
  check_choreography("engine.choreography", at("engine.choreography"));
  for (const auto& [name, entry] : under("engine.choreography_of")) {
    if (!parse_collective(name)) {
      std::string all;
      for (const collective each : all_collectives) all += (all.empty() ? "" : ", ") + std::string{troupe::name(each)};
      refuse(entry, "engine.choreography_of." + name + ": there is no collective " + name + "; there are " + all +
                        " (v-forms belong to these)");
    }
    check_choreography("engine.choreography_of." + name, entry);
    o.choreography_of[name] = std::get<std::string>(entry.value);
  }
  o.planner = text("engine.planner");
  o.hccl.device = *parse_hccl_device(text("engine.hccl.device"));
  o.hccl.buffer = bytes_of(at("engine.hccl.buffer"));
  o.hccl.super_pod = std::get<bool>(at("engine.hccl.super_pod").value);
  o.hccl.aiv = std::get<bool>(at("engine.hccl.aiv").value);
  o.hccl.aicpu_unfolded = std::get<bool>(at("engine.hccl.aicpu_unfolded").value);
  o.hccl.one_level = std::get<bool>(at("engine.hccl.one_level").value);
  o.hccl.level0 = *parse_hccl_level(text("engine.hccl.level0"));
  o.hccl.level1 = *parse_hccl_level(text("engine.hccl.level1"));
  o.nccl = nccl("engine.nccl.");
  o.protocol = text("engine.protocol");
  o.tuning = text("engine.tuning");
  o.channels = number("engine.channels");
  o.chunk_bytes = bytes_of(at("engine.chunk_bytes"));
  o.slices_per_step = number("engine.slices_per_step");
  o.credits = number("engine.credits");
  o.streams = number("engine.streams");
  o.through_scratch = std::get<bool>(at("engine.through_scratch").value);
  o.scratch_bytes = bytes_of(at("engine.scratch_bytes"));
  if (o.scratch_bytes < 4096)
    refuse(at("engine.scratch_bytes"),
           "engine.scratch_bytes is " + std::to_string(o.scratch_bytes) + "; staging needs at least 4096 (\"4K\")");
  o.level = *parse_determinism(text("engine.determinism"));
  o.agreement = *parse_agreement_time(text("engine.agreement"));
  o.offload = text("engine.offload");
  o.nic = text("engine.nic");
  o.stages = text("engine.stages");
  if (const std::int64_t deadline = duration_of(at("engine.deadline")); deadline >= 0)
    o.deadline = std::chrono::nanoseconds{deadline};
  o.workers = number("engine.workers");
  o.spin = number("engine.spin");
  o.trace_routes = std::get<bool>(at("engine.trace_routes").value);
  o.record = text("engine.record");
  o.tls_certificate = text("engine.tls_certificate");
  o.tls_key = text("engine.tls_key");
  o.tls_authority = text("engine.tls_authority");
  o.lanes = number("engine.lanes");
  o.transport = text("engine.transport");
  o.log_level = text("engine.log_level");
  o.faults = faults_of(*this);
  check_command_line(*this, o);
  // The engine must not read the environment once more: a value that was set to the default would look as if it had not been.
  o.environment = !environment_read_;
  return o;
}

engine engine::from_file(const std::string& path) { return troupe::engine(configuration::load(path).engine()); }

}  // namespace troupe
