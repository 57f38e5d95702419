// SPDX-License-Identifier: Apache-2.0
// troupe route A B
#include "engine/tools/cli/cli.hpp"

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/tools/study/study.hpp"
#include "topology/machine/routes.hpp"

namespace troupe::cli {

namespace route_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe route 0 3 --layout 1x1x4     inside a card: DMA engines and ring segments
  troupe route 1 6 --layout 2x4       between servers: NICs and the switch
  troupe route 1 6 --layout 2x4 --nic-ports 4 --channel 2 --json
  troupe route 0 9 --on dgx_h100 --layout 2x8               (a machine of `troupe study --presets`)
  troupe route 0 6 --on config/machines/torus.toml --set structure.x=8      (or of one's own)

Where messages choose among several ways (hardware.routing = adaptive) it is the channel's own.)";

struct arguments {
  int from = 0, to = 0, channel = 0, nic_ports = 1;
  std::string placement, machine;
  configuration_options config;
  bool json = false, ports_said = false;
};

/// The elements of a way, by name; none: the ranks share a core group, or are one.
struct named_way {
  std::string places;  ///< the layout
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
  if (a.placement.empty()) usage_error("say where the ranks are: --layout LAYOUT, or --on MACHINE");
  const machine on{layout::parse(a.placement), {a.nic_ports, true}};
  check_ranks(a, on.ranks().size(), "layout " + a.placement);
  named_way way{on.ranks().to_string()};
  for (const hop& h : route_between(on, a.from, a.to, a.channel).hops)
    way.elements.push_back(on.to_string({h.kind, h.server, h.card, h.index, h.way}));
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
  const hardware on = study_machine_of(read_study(config)).on;
  check_ranks(a, on.ranks, on.name);
  named_way way{on.arrangement.to_string(), on.name};
  std::vector<element_index> elements;
  if (a.from != a.to) on.route(a.from, a.to, a.channel, elements);
  for (const element_index e : elements) way.elements.push_back(on.elements[static_cast<std::size_t>(e)].name);
  return way;
}

int print_route(const arguments& a) {
  named_way way;
  if (a.machine.empty() && a.config.file.empty()) way = way_by_layout(a);
  else {
    if (a.ports_said)
      usage_error("--nic-ports would do nothing with " + std::string{a.machine.empty() ? "--config" : "--on"} +
                  ": the machine says which ports there are");
    assignments said = on_machine(a.machine, a.config);
    if (!a.placement.empty()) said.push_back({"study.layout=" + a.placement, "--layout"});
    const configuration config = read_study_configuration(a.config.file, said);
    check_keys(config);
    if (a.config.dump) return dump_study(config, read_study(config));
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
  sub.add_option("--on", a->machine, "through this modelled machine, a preset of a study or a file, instead of here")
      .type_name("MACHINE");
  a->config.add_to(sub, "TOML file with a [study], whose machine it is");
  sub.add_option("--channel", a->channel, "default 0").within(0, 63);
  sub.add_option("--nic-ports", a->nic_ports, "per server (default 1)").within(1, 64);
  sub.add_flag("--json", a->json, "as JSON");
  sub.footer(footer);
  sub.when_named([a, sub, &chosen] {
    a->ports_said = sub.came("--nic-ports");
    chosen = [a] { return print_route(*a); };
  });
}

}  // namespace troupe::cli
