// SPDX-License-Identifier: Apache-2.0
// troupe replay FILE…
#include "engine/tools/replay/replay.hpp"

#include <atomic>
#include <iostream>
#include <memory>

#include "engine/tools/cli/cli.hpp"
#include "engine/tools/report.hpp"
#include "memory/error.hpp"

namespace troupe::cli {

namespace {

constexpr const char* footer = R"(Examples:
  troupe replay config/traces/stencil.goal --on flat
  troupe replay config/traces/training.goal --on dgx_h100 --path
  troupe replay config/traces/training.goal --on dgx_h100 --set choreography=ring --set hardware.nvlink.bandwidth=100GB/s
  troupe replay config/traces/training.goal --on dgx_h100 --timeline run.json      (open it in https://ui.perfetto.dev)
  TROUPE_ENGINE_RECORD=run.goal ./app && troupe replay run.goal --on this_machine  (a file a process: run.0.goal, run.1.goal, …)

A trace is a graph of computations, messages and collectives in GOAL, LogGOPSim's language, with a line for collectives (docs/study.md).
The machine, its constants, and how collectives are performed are those of [study] (docs/config.md).)";

struct arguments {
  std::vector<std::string> files;
  std::string machine, eager = "64K", json, timeline;
  configuration_options config;
  bool path = false;
};

/// What says what is performed, which is here the trace's to say.
void check_keys(const configuration& from) {
  if (!from.jobs().empty())
    throw error(errc::bad_config, "[[study.job]] would do nothing here: the trace says what is performed");
  for (const char* key : {"collective", "sizes", "counts", "type", "op", "root", "in_place", "payload", "compute",
                          "overlap", "skew_spread"}) {
    const auto at = from.values().find(std::string{"study."} + key);
    if (at != from.values().end() && at->second.origin.from == config_origin::source::command_line)
      throw error(errc::bad_config, to_string(at->second.origin) + ": study." + key +
                                        " would do nothing here: the trace says what is performed");
  }
}

int run(const arguments& a) {
  std::vector<std::string> assignments;
  if (!a.machine.empty()) assignments.push_back("study.preset=" + a.machine);
  for (const std::string& assignment : a.config.assignments) assignments.push_back(in_study(assignment));
  const configuration config = read_configuration(a.config.file, assignments, {"study.", "engine.tuning"});
  check_keys(config);
  const study_scenario scenario = read_study(config);
  if (a.config.dump) return dump(config);
  for (const std::string* path : {&a.json, &a.timeline})
    if (!path->empty()) check_writable(*path);
  std::atomic<bool> interrupted{false};
  const interrupt_guard guard{[&] { interrupted = true; }};
  progress_line progress;
  replay_request how;
  how.eager_bytes = parse_size("--eager", a.eager);
  how.progress = [&](const std::string& text) { progress.show(text); };
  how.go_on = [&] { return !interrupted.load(); };
  const auto what = std::make_shared<const application>(load_application(a.files));
  const replay_result result = run_replay(scenario, what, how);
  progress.clear();
  std::ostream& table = a.json == "-" ? std::cerr : std::cout;
  print_replay(table, result);
  if (a.path) print_replay_path(table, result);
  if (!a.json.empty()) write_text(a.json, replay_json(result));
  if (!a.timeline.empty()) write_text(a.timeline, replay_timeline(result));
  return exit_ok;
}

}  // namespace

void add_replay(command program, action& chosen) {
  auto a = std::make_shared<arguments>();
  const command sub =
      program.add_command("replay", "perform a recorded application in virtual time, on modelled hardware");
  sub.add_option("files", a->files, "its trace in GOAL; each rank is in one of the files").type_name("FILE").required();
  sub.add_option("--on", a->machine, "a machine of `troupe study --presets` (default: the configuration's, or flat)")
      .type_name("MACHINE");
  a->config.add_to(sub, "TOML file with a [study], whose machine it is");
  sub.add_option("--eager", a->eager, "the send of a message above this size ends only when it is received")
      .type_name("BYTES")
      .shows_default();
  sub.add_flag("--path", a->path, "print the critical path");
  sub.add_option("--json", a->json, "write everything as JSON; - for standard output").type_name("FILE");
  sub.add_option("--timeline", a->timeline, "write what every rank did when, for Perfetto or chrome://tracing")
      .type_name("FILE");
  sub.footer(footer);
  sub.when_named([a, &chosen] { chosen = [a] { return run(*a); }; });
}

}  // namespace troupe::cli
