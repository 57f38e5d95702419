// SPDX-License-Identifier: Apache-2.0
// troupe route A B
#include "engine/tools/cli/cli.hpp"

#include <iostream>
#include <memory>

#include "topology/machine/routes.hpp"

namespace troupe::cli {

namespace {

constexpr const char* footer = R"(Examples:
  troupe route 0 3 --layout 1x1x4     inside a card: DMA engines and ring segments
  troupe route 1 6 --layout 2x4       between servers: NICs and the switch
  troupe route 1 6 --layout 2x4 --nic-ports 4 --channel 2)";

struct arguments {
  int from = 0, to = 0, channel = 0, nic_ports = 1;
  std::string placement;
};

int route_text(const arguments& a) {
  const machine on{layout::parse(a.placement), {a.nic_ports, true}};
  for (const int rank : {a.from, a.to})
    if (rank < 0 || rank >= on.ranks().size())
      usage_error("there is no rank " + std::to_string(rank) + "; layout " + a.placement + " has ranks 0 to " +
                  std::to_string(on.ranks().size() - 1));
  std::cout << to_string(on, route_between(on, a.from, a.to, a.channel)) << '\n';
  return exit_ok;
}

}  // namespace

void add_route(command program, action& chosen) {
  auto a = std::make_shared<arguments>();
  const command sub = program.add_command("route", "print the elements that a chunk passes between two ranks");
  sub.add_option("from", a->from, "rank").required().type_name("A");
  sub.add_option("to", a->to, "rank").required().type_name("B");
  sub.add_option("--layout", a->placement, "such as 2x4 (servers × cards) or 2x2x4 (× core groups)")
      .required()
      .type_name("LAYOUT");
  sub.add_option("--channel", a->channel, "default 0").within(0, 63);
  sub.add_option("--nic-ports", a->nic_ports, "per server (default 1)").within(1, 64);
  sub.footer(footer);
  sub.when_named([a, &chosen] { chosen = [a] { return route_text(*a); }; });
}

}  // namespace troupe::cli
