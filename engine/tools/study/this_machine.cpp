// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/this_machine.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "engine/planning/planner.hpp"
#include "engine/tools/study/machine_file.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe {

namespace {

/// For reports, and until a run says how large its buffers are.
constexpr double shown_bytes = 1 << 20;

picoseconds of_ns(double ns) { return picoseconds{std::llround(ns * 1000)}; }
std::uint64_t of_rate(double bytes_per_second) {
  return static_cast<std::uint64_t>(std::llround(std::max(1.0, bytes_per_second)));
}

tuning constants_for(const preset_request& wanted) {
  engine_options options;
  for (const auto& [key, value] : wanted.structure)
    if (key == "tuning") options.tuning = value;
  return load_tuning(options);
}

std::string told(const tuning& costs) {
  return costs.measured.empty() ? "assumed constants (engine/planning/tuning.hpp); `troupe tune` measures them"
                                : "troupe tune, " + costs.measured + (costs.file.empty() ? "" : ", " + costs.file);
}

/// By the engine's own planner and these constants.
decltype(study_machine::on_board) boards_of(const tuning& costs) {
  return [costs, by = std::shared_ptr<planner>{}](
             const call& what, int ranks, const std::vector<std::size_t>* counts) mutable -> std::optional<board_call> {
    if (!by) by = std::make_shared<planner>(engine_options{}, costs);
    const std::shared_ptr<const plan> made = by->plan_for(what, layout::flat(ranks), counts);
    if (!made || !made->on_board()) return std::nullopt;
    return board_call{made->choreography, std::string{name(made->protocol())}, of_ns(made->predicted_seconds * 1e9)};
  };
}

hardware build_this_machine(const preset_request& wanted) { return machine_of(constants_for(wanted), wanted).on; }

}  // namespace

const std::vector<preset>& study_presets() {
  static const std::vector<preset> all = [] {
    std::vector<preset> list = all_presets();
    list.push_back(
        {this_machine_preset,
         "this computer: its cores by hwloc, its costs by `troupe tune`; ranks of one process, through the actors",
         "cores|tuning", build_this_machine});
    return list;
  }();
  return all;
}

study_machine build_study_machine(std::string_view name, const preset_request& wanted) {
  if (is_machine_file(name)) return {load_machine(std::string{name}, wanted), {}, {}};
  hardware made = build_preset(study_presets(), name, wanted);  // also refuses what the preset does not take
  if (name != this_machine_preset) return {std::move(made), {}, {}};
  return machine_of(constants_for(wanted), wanted);
}

study_machine machine_of(const tuning& costs, const preset_request& wanted) {
  if (!wanted.layout.empty())
    throw error(errc::bad_config, "preset this_machine has no layout: its ranks are threads of one process; say ranks");
  const host& here = discover();
  tuning constants = costs;
  const int cores = constants.machine.cores = wanted.number("cores", std::max(1, costs.machine.cores), 1, 4096);
  const int ranks = wanted.ranks > 0 ? wanted.ranks : std::max(2, cores);

  hardware h{std::string{this_machine_preset}, ranks};
  h.about = constants.machine.cpu + ", " + plural(static_cast<std::size_t>(cores), "core") + ", " + told(constants);
  h.arrangement = layout::flat(ranks);
  h.protocols = plain_protocols();
  std::erase_if(h.protocols, [](const protocol_costs& p) { return p.name != "simple"; });
  element_class core;
  core.name = "core";
  core.role = element_role::core;
  core.source = "hwloc: " + here.describe();
  const class_id of_core = h.add_class(core);
  element_class mailbox;
  mailbox.name = "mailbox";
  mailbox.source =
      "a chunk is a reference and takes no time on its way; its receiver's core works for it (host.receive)";
  const class_id of_mailbox = h.add_class(mailbox);
  const int used = std::min(cores, ranks);
  for (int c = 0; c < used; ++c) h.add(of_core, "core " + std::to_string(c));
  for (int r = 0; r < ranks; ++r) {
    h.add(of_mailbox, "mailbox " + std::to_string(r), r);
    h.place(r, {.core = r % used, .dma = no_element});
  }
  h.way = [used](int, int to, int, std::vector<element_index>& way) { way.assign({used + to}); };

  h.host.launch = of_ns(constants.actor_operation_seconds(ranks) * 1e9);
  h.host.step = of_ns(constants.actor_step_ns);
  h.host.receive = of_ns(constants.actor_message_ns);
  h.host.receive_in_place = false;
  h.host.source = told(constants);
  study_machine made{std::move(h),
                     [constants, used](double bytes_of_all, datatype type, host_costs& of) {
                       const machine_constants m = constants.through_actors(std::max(1.0, bytes_of_all / used), type);
                       of.copy_rate = of_rate(m.copy_rate);
                       of.reduce_rate = of_rate(m.reduce_rate);
                     },
                     boards_of(constants)};
  made.rates(shown_bytes * used, datatype::f32, made.on.host);
  made.on.validate();
  return made;
}

}  // namespace troupe
