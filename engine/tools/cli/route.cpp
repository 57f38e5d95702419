// SPDX-License-Identifier: Apache-2.0
// troupe route A B
#include "engine/tools/cli/cli.hpp"

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/tools/explain.hpp"
#include "engine/tools/study/study.hpp"
#include "topology/machine/routes.hpp"
#include "topology/reach.hpp"

namespace troupe::cli {

namespace route_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe route 0 3 --layout 1x1x4     inside a card: DMA engines and ring segments
  troupe route 1 6 --layout 2x4       between servers: NICs and the switch
  troupe route 1 6 --layout 2x4 --nic-ports 4 --channel 2 --json
  troupe route 0 5 --processes 2x2 --ranks 8     between ranks of two hosts with two processes each
  troupe route 0 9 --on dgx_h100 --layout 2x8               (a machine of `troupe study --presets`)
  troupe route 0 6 --on config/machines/torus.toml --set structure.x=8      (or of one's own)

Where messages choose among several ways (hardware.routing = adaptive) it is the channel's own.)";

struct arguments {
  int from = 0, to = 0, channel = 0, nic_ports = 1, ranks = 0;
  std::string placement, machine, processes;
  configuration_options config;
  bool json = false, ports_said = false, channel_said = false;
};

/// The elements of a way, by name; none: the ranks share a core group, or are one.
struct named_way {
  std::string places;  ///< the layout, or --processes
  std::string machine{};
  std::vector<std::string> elements{};
};

/// {from, to, channel, machine (with --on), layout, direct, elements [name]}
std::string json_text(const arguments& a, const named_way& way) {
  nlohmann::ordered_json document{{"from", a.from}, {"to", a.to}, {"channel", a.channel}};
  if (!way.machine.empty()) document["machine"] = way.machine;
  document["layout"] = way.places;
  document["direct"] = way.elements.empty();
  document["elements"] = way.elements;
  return document.dump() + "\n";
}

std::string plain_text(const arguments& a, const named_way& way) {
  std::string text = "rank " + std::to_string(a.from);
  for (const std::string& element : way.elements) text += " → " + element;
  return text + " → rank " + std::to_string(a.to) + (way.elements.empty() ? " (direct)\n" : "\n");
}

void check_ranks(const arguments& a, int ranks, const std::string& where) {
  for (const int rank : {a.from, a.to})
    if (rank < 0 || rank >= ranks)
      usage_error("there is no rank " + std::to_string(rank) + "; " + where + " has ranks 0 to " +
                  std::to_string(ranks - 1));
}

/// Of this machine's engine, by the layout alone.
named_way way_by_layout(const arguments& a) {
  for (const auto& [option, said] :
       {std::pair{"--set", !a.config.assignments.empty()}, {"--dump-config", a.config.dump}})
    if (said)
      usage_error(std::string{option} +
                  " would do nothing without --on or --config, which name a machine of the study");
  if (a.placement.empty()) usage_error("say where the ranks are: --layout LAYOUT, --processes N, or --on MACHINE");
  const machine on{layout::parse(a.placement), {a.nic_ports, true}};
  check_ranks(a, on.ranks().size(), "layout " + a.placement);
  named_way way{on.ranks().to_string()};
  for (const hop& h : route_between(on, a.from, a.to, a.channel).hops)
    way.elements.push_back(on.to_string({h.kind, h.server, h.card, h.index, h.way}));
  return way;
}

/// Of a job of several processes, by where the ranks live.
named_way way_in_processes(const arguments& a) {
  for (const auto& [option, said] : {std::pair{"--layout", !a.placement.empty()},
                                     {"--on", !a.machine.empty()},
                                     {"--channel", a.channel_said},
                                     {"--nic-ports", a.ports_said},
                                     {"--dump-config", a.config.dump}})
    if (said) usage_error(std::string{option} + " would do nothing with --processes, which is a layout of its own");
  for (const std::string& assignment : a.config.assignments)
    if (configuration::full_key(assignment.substr(0, assignment.find('='))) != "engine.transport")
      usage_error("--set " + assignment +
                  " would do nothing: with --processes a way depends on engine.transport alone");
  const configuration config = read_configuration(a.config.file, a.config.said(), {"engine."});
  const layout placement = placement_in_processes(a.processes, a.ranks);
  check_ranks(a, placement.size(), "--processes " + a.processes);
  named_way way{a.processes};
  const auto at = [&](int rank) {
    const residence& home = placement.homes[static_cast<std::size_t>(rank)];
    return std::pair{"process " + std::to_string(home.process), "host " + std::to_string(home.host)};
  };
  const auto [from, host] = at(a.from);
  const auto [to, other_host] = at(a.to);
  const reach_map all{placement};
  switch (all.between(a.from, a.to)) {
    case reach::process: break;
    case reach::segment: way.elements = {from, "memory that processes of " + host + " map", to}; break;
    case reach::network:
      way.elements = {from + " of " + host, name_of_transport(config.engine().transport)};
      if (const int borders = all.borders_between(a.from, a.to); borders > 0)
        way.elements.push_back(borders == 1 ? "a border of groups" : std::to_string(borders) + " borders of groups");
      way.elements.push_back(to + " of " + other_host);
  }
  return way;
}

/// What has a say in where messages go; the rest of [study] says what is performed.
void check_keys(const configuration& config) {
  for (const auto& [key, entry] : config.values()) {
    const bool of_machine = key == "study.preset" || key == "study.ranks" || key == "study.layout" ||
                            key == "engine.tuning" || key.starts_with("study.structure.") ||
                            key.ends_with(".directions");
    if (!of_machine && entry.origin.from == config_origin::source::command_line)
      usage_error(place_of(entry.origin) + ": " + key + " would do nothing: no way depends on it");
  }
}

named_way way_on(const arguments& a, const configuration& config) {
  const hardware on = study_machine_of(read_study(config, study_use::machine_and_ways)).on;
  check_ranks(a, on.ranks, on.name);
  named_way way{on.arrangement.to_string(), on.name};
  std::vector<element_index> elements;
  if (a.from != a.to) on.route(a.from, a.to, a.channel, elements);
  for (const element_index e : elements) way.elements.push_back(on.elements[static_cast<std::size_t>(e)].name);
  return way;
}

int print_route(const arguments& a) {
  named_way way;
  if (!a.processes.empty()) way = way_in_processes(a);
  else if (a.ranks > 0) usage_error("--ranks would do nothing without --processes");
  else if (a.machine.empty() && a.config.file.empty()) way = way_by_layout(a);
  else {
    if (a.ports_said)
      usage_error("--nic-ports would do nothing with " + std::string{a.machine.empty() ? "--config" : "--on"} +
                  ": the machine says which ports there are");
    assignments said = on_machine(a.machine, a.config);
    if (!a.placement.empty()) said.push_back({"study.layout=" + a.placement, "--layout"});
    const configuration config = read_study_configuration(a.config.file, said);
    check_keys(config);
    if (a.config.dump) return dump_study(config, read_study(config, study_use::machine_and_ways));
    way = way_on(a, config);
  }
  std::cout << (a.json ? json_text(a, way) : plain_text(a, way));
  return exit_ok;
}

}  // namespace
}  // namespace route_command

void add_route(command program, action& chosen) {
  using namespace route_command;
  auto a = std::make_shared<arguments>();
  const command sub = program.add_command("route", "print the elements that a chunk passes between two ranks");
  sub.add_option("from", a->from, "rank").required().type_name("A");
  sub.add_option("to", a->to, "rank").required().type_name("B");
  sub.add_option("--layout", a->placement,
                 "such as 2x4 (servers × cards), 2x2x4 (× core groups) or 2x2x4x1 (pods in front)")
      .type_name("LAYOUT");
  sub.add_option("--processes", a->processes,
                 "ranks live in so many processes: 4, hosts x processes of each: 2x4, or pods in front: 2x4x1")
      .type_name("N");
  sub.add_option("--ranks", a->ranks, "of all processes together (default: one each)").within(1, most_ranks_of_a_score);
  sub.add_option("--on", a->machine, "through this modelled machine, a preset of a study or a file, instead of here")
      .type_name("MACHINE");
  a->config.add_to(sub, "TOML file with a [study], whose machine it is");
  sub.add_option("--channel", a->channel, "default 0").within(0, 63);
  sub.add_option("--nic-ports", a->nic_ports, "per server (default 1)").within(1, 64);
  sub.add_flag("--json", a->json, "as JSON");
  sub.footer(footer);
  sub.when_named([a, sub, &chosen] {
    a->ports_said = sub.came("--nic-ports");
    a->channel_said = sub.came("--channel");
    chosen = [a] { return print_route(*a); };
  });
}

}  // namespace troupe::cli
