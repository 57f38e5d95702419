// SPDX-License-Identifier: Apache-2.0
// troupe nicd
#include "engine/tools/cli/cli.hpp"

#include <algorithm>
#include <iostream>
#include <memory>

#include "actors/ports/nic/nic_host.hpp"
#include "engine/world/join.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe::cli {

namespace nicd_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe nicd &
  TROUPE_ENGINE_NIC=host TROUPE_ENGINE_OFFLOAD=auto troupe launch -n 4 ./app
  troupe nicd --listen unix:@mine &
  TROUPE_ENGINE_NIC=unix:@mine TROUPE_ENGINE_OFFLOAD=always troupe bench --processes 2 --collective all_reduce -b 1M -e 1M
  troupe launch --nicd -n 4 ./app        one for this job, which ends with it

It is the NIC of all processes of this host and user whose engines name it: what they offload between each other is performed here, on one thread, for
any number of jobs. It has to be there when they join, and of the same version. Each host needs its own.

It says on standard output where it listens, and then nothing. An interrupt or SIGTERM ends it: what is under way fails in the processes with an error
that says so, and so do later calls that would be offloaded. docs/offload.md tells more.)";

int serve_at(const std::string& listen) {
  actors::nic_host_service service{listen.empty() ? actors::usual_nic_address() : listen, build_of_links(),
                                   std::max(1, static_cast<int>(discover().usable_cpus()))};
  const interrupt_guard guard([&] { service.stop(); });
  std::cout << "listens at " << service.address() << std::endl;
  service.serve();
  return exit_interrupted;
}

}  // namespace
}  // namespace nicd_command

void add_nicd(command program, action& chosen) {
  using namespace nicd_command;
  auto listen = std::make_shared<std::string>();
  const command sub = program.add_command("nicd", "be the NIC of this host's processes (engine.nic)");
  sub.add_option("--listen", *listen, "unix:@name; the default is where engine.nic = \"host\" looks for it")
      .type_name("ADDRESS");
  sub.footer(footer);
  sub.when_named([listen, &chosen] { chosen = [listen] { return serve_at(*listen); }; });
}

}  // namespace troupe::cli
