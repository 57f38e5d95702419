// SPDX-License-Identifier: Apache-2.0
// troupe route A B
#include "engine/tools/cli/cli.hpp"

#include <iostream>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "topology/machine/routes.hpp"

namespace troupe::cli {

namespace route_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe route 0 3 --layout 1x1x4     inside a card: DMA engines and ring segments
  troupe route 1 6 --layout 2x4       between servers: NICs and the switch
  troupe route 1 6 --layout 2x4 --nic-ports 4 --channel 2 --json)";

struct arguments {
  int from = 0, to = 0, channel = 0, nic_ports = 1;
  std::string placement;
  bool json = false;
};

/// {from, to, channel, layout, elements [name]}, without elements where the ranks share a core group.
std::string json_text(const arguments& a, const machine& on, const route& way) {
  nlohmann::ordered_json elements = nlohmann::ordered_json::array();
  for (const hop& h : way.hops) elements.push_back(on.to_string({h.kind, h.server, h.card, h.index, h.way}));
  const nlohmann::ordered_json document{{"from", a.from},
                                        {"to", a.to},
                                        {"channel", a.channel},
                                        {"layout", on.ranks().to_string()},
                                        {"direct", way.is_direct()},
                                        {"elements", std::move(elements)}};
  return document.dump() + "\n";
}

int route_text(const arguments& a) {
  const machine on{layout::parse(a.placement), {a.nic_ports, true}};
  for (const int rank : {a.from, a.to})
    if (rank < 0 || rank >= on.ranks().size())
      usage_error("there is no rank " + std::to_string(rank) + "; layout " + a.placement + " has ranks 0 to " +
                  std::to_string(on.ranks().size() - 1));
  const route way = route_between(on, a.from, a.to, a.channel);
  std::cout << (a.json ? json_text(a, on, way) : to_string(on, way) + '\n');
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
      .required()
      .type_name("LAYOUT");
  sub.add_option("--channel", a->channel, "default 0").within(0, 63);
  sub.add_option("--nic-ports", a->nic_ports, "per server (default 1)").within(1, 64);
  sub.add_flag("--json", a->json, "as JSON");
  sub.footer(footer);
  sub.when_named([a, &chosen] { chosen = [a] { return route_text(*a); }; });
}

}  // namespace troupe::cli
