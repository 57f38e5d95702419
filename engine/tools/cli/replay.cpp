// SPDX-License-Identifier: Apache-2.0
// troupe replay FILE…
#include "engine/tools/replay/replay.hpp"

#include <atomic>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <utility>

#include "engine/tools/cli/cli.hpp"
#include "engine/tools/replay/chakra.hpp"
#include "engine/tools/report.hpp"
#include "engine/tools/study/page.hpp"
#include "engine/tools/study/useless_keys.hpp"
#include "memory/error.hpp"
#include "memory/large_pages.hpp"
#include "topology/machine/quantities.hpp"

namespace troupe::cli {

namespace replay_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe replay config/traces/stencil.goal --on flat
  troupe replay config/traces/training.goal --on dgx_h100 --path
  troupe replay config/traces/training.goal --on dgx_h100 --set choreography=ring --set hardware.nvlink.bandwidth=100GB/s
  troupe replay config/traces/training.goal --on dgx_h100 --timeline run.json      (open it in https://ui.perfetto.dev)
  TROUPE_ENGINE_RECORD=run.goal ./app && troupe replay run.goal --on this_machine  (a file a process: run.0.goal, run.1.goal, …)
  troupe replay run.goal --on this_machine --report run.html      (the run as it was, and its replay, on one clock; open it in a browser)
  troupe replay config/traces/training.goal --chakra run && troupe replay run.*.et --on dgx_h100

A trace is a graph of computations, messages and collectives: in GOAL, LogGOPSim's language, with a line for collectives, or as Chakra's
execution traces, ASTRA-sim's, a file a rank: NAME.0.et, NAME.1.et, … (docs/study.md).
The machine, its constants, and how collectives are performed are those of [study] (docs/config.md).)";

struct arguments {
  std::vector<std::string> files;
  std::string machine, eager, json, timeline, report, flops, memory_rate, groups, chakra;
  configuration_options config;
  bool path = false;
};

/// An option that does nothing is a mistake. @param why the rest of the sentence
void refuse_useless(std::initializer_list<std::pair<const char*, bool>> options, const std::string& why) {
  for (const auto& [option, said] : options)
    if (said) usage_error(std::string{option} + " would do nothing " + why);
}

/// Where the trace is written in another form nothing is performed: only what says how it is read counts.
void check_writing(const arguments& a, const configuration& config) {
  const std::string why = "with --chakra, which writes the trace instead of replaying it";
  refuse_useless({{"--on", !a.machine.empty()},
                  {"--eager", !a.eager.empty()},
                  {"--path", a.path},
                  {"--json", !a.json.empty()},
                  {"--timeline", !a.timeline.empty()},
                  {"--report", !a.report.empty()}},
                 why);
  for (const auto& [key, entry] : config.values())
    if (entry.origin.from == config_origin::source::command_line && key.find("score_files.") == std::string::npos &&
        !key.starts_with("engine.choreography_libraries."))
      usage_error(place_of(entry.origin) + ": " + key + " would do nothing " + why);
}

/// The options that say how a trace is read that may be in another form.
void check_reading(const arguments& a) {
  if (names_chakra(a.files.front())) return;
  refuse_useless({{"--flops", !a.flops.empty()}, {"--memory-rate", !a.memory_rate.empty()}},
                 "with a trace in GOAL, whose computations say how long they take");
}

double operations_per_second(const std::string& text) {
  if (text.empty()) return 0;
  const auto rate = parse_count(text);
  if (!rate) usage_error("--flops: \"" + text + "\" is no rate of operations, such as 300T");
  return static_cast<double>(*rate);
}

double bytes_per_second(const std::string& text) {
  if (text.empty()) return 0;
  const auto rate = parse_rate(text);
  if (!rate) usage_error("--memory-rate: it is " + what_no_rate_is(text));
  return static_cast<double>(*rate);
}

/// @param read files that it must not be written to
int write_as_chakra(const application& what, const std::string& name, const std::vector<std::string>& read) {
  const std::vector<std::string> files = write_chakra(what);
  const std::string groups = chakra_groups(what);
  const auto place = [&](std::size_t r) { return name + "." + std::to_string(r) + ".et"; };
  for (std::size_t r = 0; r < files.size(); ++r) check_outputs({{"--chakra", place(r)}}, read);
  if (!groups.empty()) check_outputs({{"--chakra", name + ".groups.json"}}, read);
  for (std::size_t r = 0; r < files.size(); ++r) write_text(place(r), files[r]);
  if (!groups.empty()) write_text(name + ".groups.json", groups);
  std::cout << "# written: " << name << ".0.et to " << name << "." << files.size() - 1 << ".et"
            << (groups.empty() ? "" : ", and their communicators, " + name + ".groups.json") << '\n';
  return exit_ok;
}

int run(const arguments& a) {
  put_heap_on_large_pages(computing_heap);
  const configuration config = read_study_configuration(a.config.file, on_machine(a.machine, a.config));
  check_performed_elsewhere(config, "the trace says what is performed");
  const study_scenario scenario = read_study(config, study_use::machine_and_ways);
  if (a.config.dump)
    return dump(without_useless_keys(with_names_of_machine(config), scenario,
                                     study_use::machine_and_ways));  // the trace says of how many ranks the machine is
  check_reading(a);
  if (!a.chakra.empty()) check_writing(a, config);
  std::vector<std::string> read = files_of(config);
  read.insert(read.end(), a.files.begin(), a.files.end());
  if (!a.groups.empty()) read.push_back(a.groups);
  check_outputs({{"--json", a.json}, {"--timeline", a.timeline}, {"--report", a.report}}, read);
  std::atomic<bool> interrupted{false};
  const interrupt_guard guard{[&] { interrupted = true; }};
  progress_line progress;
  replay_request how;
  how.record = !a.timeline.empty();
  // As LogGOPSim; and as ASTRA-sim, where a send is over when it has left.
  if (!a.eager.empty()) how.eager_bytes = parse_size("--eager", a.eager);
  else if (names_chakra(a.files.front())) how.eager_bytes = ~std::uint64_t{0};
  how.progress = [&](const std::string& text) { progress.show(text); };
  how.go_on = [&] { return !interrupted.load(); };
  trace_reading reading{operations_per_second(a.flops), bytes_per_second(a.memory_rate), a.groups};
  for (const auto& [own, file] : scenario.score_files) reading.own.push_back(own);
  const auto what = std::make_shared<const application>(load_application(a.files, reading));
  if (!a.chakra.empty()) return write_as_chakra(*what, a.chakra, read);
  const replay_result result = run_replay(scenario, what, how);
  progress.clear();
  const bool taken = a.json == "-" || a.timeline == "-" || a.report == "-";  // standard output is for one of them
  std::ostream& table = taken ? std::cerr : std::cout;
  print_replay(table, result);
  if (a.path) print_replay_path(table, result);
  if (!a.json.empty()) write_text(a.json, replay_json(result));
  if (!a.timeline.empty()) write_text(a.timeline, replay_timeline(result));
  if (!a.report.empty()) write_text(a.report, study_page(replay_documents(result)));
  return exit_ok;
}

}  // namespace
}  // namespace replay_command

void add_replay(command program, action& chosen) {
  using namespace replay_command;
  auto a = std::make_shared<arguments>();
  const command sub =
      program.add_command("replay", "perform a recorded application in virtual time, on modelled hardware");
  sub.add_option("files", a->files, "its trace: GOAL, each rank in one of the files; or Chakra, a file a rank")
      .type_name("FILE")
      .required();
  sub.add_option("--on", a->machine, "a machine of `troupe study --presets` (default: the configuration's, or flat)")
      .type_name("MACHINE");
  a->config.add_to(sub, "TOML file with a [study], whose machine it is");
  sub.add_option("--eager", a->eager,
                 "the send of a message above this size ends only when it is received (default: 64K; Chakra: none)")
      .type_name("BYTES");
  sub.add_option("--flops", a->flops,
                 "Chakra: operations a second, for computations that have no duration, such as 300T")
      .type_name("NUMBER");
  sub.add_option("--memory-rate", a->memory_rate,
                 "Chakra: for their bytes of memory, such as 2TB/s; whatever takes longer counts")
      .type_name("RATE");
  sub.add_option("--groups", a->groups, "Chakra: JSON file of communicators' ranks, {\"1\": [0, 2], …}, as ASTRA-sim's")
      .type_name("FILE");
  sub.add_option("--chakra", a->chakra, "instead of replaying it: write the trace as Chakra's, NAME.0.et, NAME.1.et, …")
      .type_name("NAME");
  sub.add_flag("--path", a->path, "print the critical path");
  sub.add_option("--json", a->json, "write everything as JSON; - for standard output").type_name("FILE");
  sub.add_option("--timeline", a->timeline, "write what every rank did when, for Perfetto or chrome://tracing")
      .type_name("FILE");
  sub.add_option("--report", a->report, "write one HTML page: the replay, beside the run itself where it was recorded")
      .type_name("FILE");
  sub.footer(footer);
  sub.when_named([a, &chosen] { chosen = [a] { return run(*a); }; });
}

}  // namespace troupe::cli
