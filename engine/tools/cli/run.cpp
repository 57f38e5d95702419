// SPDX-License-Identifier: Apache-2.0
// troupe run FILE
#include "engine/tools/cli/cli.hpp"

#include <iostream>
#include <memory>

#include "memory/error.hpp"

namespace troupe::cli {

namespace run_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe run config/quickstart.toml
  troupe run config/quickstart.toml --set choreography=ring --set credits=2
  troupe run config/quickstart.toml --set run.type=bf16 --set run.0.sizes=8,1M
  TROUPE_ENGINE_CREDITS=1 troupe run config/quickstart.toml --dump-config
  troupe run config/quickstart.toml --json result.json
  troupe run config/two_servers.toml --routes
  troupe run config/two_processes.toml              ranks in processes of this host
  troupe run config/two_processes.toml --set workload.hosts=hosts.toml
  mpirun -n 2 troupe run config/two_processes.toml  what a launcher has started joins by itself

Columns are those of nccl-tests, and the choreography that was performed. #wrong comes from a separate, untimed run with
inputs for which only one result is right.)";

struct arguments {
  configuration_options config;
  std::string json;
  bool routes = false;
};

int run(const arguments& a) {
  const configuration config = read_configuration(a.config.file, a.config.said(), {"engine.", "workload."});
  const job_place place = join_place();
  const workload work = read_workload(config, place.started() ? place.processes : 0);
  if (a.config.dump) return dump(config);
  if (work.groups.empty())
    throw error(errc::bad_config,
                a.config.file +
                    ": there is nothing to run; add, for example, [[workload.run]] with collective = \"all_reduce\"");
  check_choreographies_of(config, work.groups);
  if (work.processes > 1 || !work.hosts.empty()) {
    check_job_options(config.engine());
    if (a.routes)
      usage_error("--routes are ways through a layout's elements, which processes do not have: leave it out");
    if (!place.started()) return start_processes(work.processes, work.hosts, config.engine());
  }
  return run_table(config, work, {true, work.groups.size() > 1, a.routes}, a.json);
}

}  // namespace
}  // namespace run_command

void add_run(command program, action& chosen) {
  using namespace run_command;
  auto a = std::make_shared<arguments>();
  const command sub = program.add_command("run", "run and check the workload of a configuration file");
  sub.add_option("file", a->config.file, "TOML file (docs/config.md)").required().type_name("FILE");
  a->config.add_to(sub, "");
  sub.add_flag(
      "--routes", a->routes,
      "print the ways that messages took through the layout, and what passed each element (engine.trace_routes)");
  sub.add_option("--json", a->json, "write the rows as JSON; - for standard output").type_name("FILE");
  sub.footer(footer);
  sub.when_named([a, &chosen] { chosen = [a] { return run(*a); }; });
}

}  // namespace troupe::cli
