// SPDX-License-Identifier: Apache-2.0
// troupe experts
#include "engine/tools/experts/expert_study.hpp"

#include <atomic>
#include <iostream>
#include <memory>

#include "engine/tools/cli/cli.hpp"
#include "engine/tools/report.hpp"
#include "memory/error.hpp"
#include "memory/large_pages.hpp"
#include "topology/machine/quantities.hpp"

namespace troupe::cli {

namespace experts_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe experts                                                       8 ranks of 8 KiB tokens, a port of 10 GB/s each
  troupe experts --set hardware.link.bandwidth=100GB/s                 of 100 GB/s
  troupe experts --on dgx_h100 --ranks 32 --experts 64 --top-k 4       what a token that goes once to a server saves
  troupe experts --skew 0.8 --capacity 1.25 --parts 4
  troupe experts --only all --timeline run.json                        (open it in https://ui.perfetto.dev)
  troupe experts --skew 0.8 --report experts.html                      (who got how many tokens; open it in a browser)

Where tokens go is drawn (--seed), so that imbalance and drops are counted. docs/experts.md says what is modelled.)";

struct arguments {
  expert_layers model;
  std::string machine, compute = "50us", dense = "0us", json, timeline, goal, report;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> only;
  configuration_options config;
  int ranks = 0, parts = 2;
  int hidden = 4096;
};

std::int64_t nanoseconds(const char* option, const std::string& text) {
  const auto time = parse_time(text);
  if (!time) usage_error(std::string{option} + ": \"" + text + "\" is no time, such as 50us");
  return time->count() / 1000;
}

study_scenario scenario_of(const arguments& a, const configuration& config) {
  check_performed_elsewhere(config, "experts are what is performed");
  study_scenario s = read_study(config, study_use::machine_and_ways);
  if (a.ranks > 0) s.request.ranks = a.ranks;
  return s;
}

int run(arguments& a) {
  put_heap_on_large_pages(computing_heap);
  const configuration config = read_study_configuration(a.config.file, on_machine(a.machine, a.config));
  const study_scenario scenario = scenario_of(a, config);
  if (a.config.dump) return dump_study(config, scenario);
  const bool one = a.only.size() == 1;
  if (!one && !(a.timeline.empty() && a.goal.empty()))
    usage_error("--timeline and --goal are of one way for the tokens: say --only");
  check_outputs({{"--json", a.json}, {"--timeline", a.timeline}, {"--goal", a.goal}, {"--report", a.report}},
                files_of(config));

  a.model.places = study_machine_of(scenario).on.arrangement;
  a.model.hidden = static_cast<std::size_t>(a.hidden);
  a.model.expert_ns = nanoseconds("--compute", a.compute);
  a.model.dense_ns = nanoseconds("--dense", a.dense);
  a.model.seed = a.seed.value_or(1);
  std::atomic<bool> interrupted{false};
  const interrupt_guard guard{[&] { interrupted = true; }};
  progress_line progress;
  replay_request how;
  how.record = !a.timeline.empty();
  how.progress = [&](const std::string& text) { progress.show(text); };
  how.go_on = [&] { return !interrupted.load(); };
  const expert_study made = run_experts(scenario, a.model, a.parts, a.only, how);
  progress.clear();
  const bool taken = a.json == "-" || a.timeline == "-" || a.goal == "-" || a.report == "-";
  print_experts(taken ? std::cerr : std::cout, made);
  if (!a.json.empty()) write_text(a.json, experts_json(made));
  if (!a.timeline.empty()) write_text(a.timeline, replay_timeline(made.rows.front().run));
  if (!a.report.empty()) write_text(a.report, experts_page(made));
  if (!a.goal.empty()) write_text(a.goal, write_goal(*made.rows.front().run.what));
  return exit_ok;
}

}  // namespace
}  // namespace experts_command

void add_experts(command program, action& chosen) {
  using namespace experts_command;
  auto a = std::make_shared<arguments>();
  constexpr int many = 1 << 20;
  const command sub = program.add_command(
      "experts", "an iteration of a model with layers of experts, in virtual time, by several ways");
  sub.add_option("--on", a->machine, "a machine of `troupe study --presets` (default: the configuration's, or flat)")
      .type_name("MACHINE");
  sub.add_option("--ranks", a->ranks, "default: as many as the machine has").type_name("N").within(1, many);
  sub.add_option("--layers", a->model.layers, "layers with experts").type_name("N").within(1, 10000).shows_default();
  sub.add_option("--experts", a->model.experts, "of a layer").type_name("N").within(1, many).shows_default();
  sub.add_option("--top-k", a->model.top_k, "experts of a token").type_name("N").within(1, 64).shows_default();
  sub.add_option("--tokens", a->model.tokens, "of a rank").type_name("N").within(1, many).shows_default();
  sub.add_option("--hidden", a->hidden, "elements of a token, two bytes each")
      .type_name("N")
      .within(1, many)
      .shows_default();
  sub.add_option("--capacity", a->model.capacity,
                 "a rank sends an expert this times its even share at most; 0: no limit")
      .type_name("FACTOR")
      .within(0.0, 1e6)
      .shows_default();
  sub.add_option("--skew", a->model.skew, "the i-th most popular expert is chosen as 1/i^SKEW")
      .type_name("SKEW")
      .within(0.0, 10.0)
      .shows_default();
  sub.add_option("--compute", a->compute,
                 "forward, of a layer's experts of a rank at average load; backward takes twice that")
      .type_name("TIME")
      .shows_default();
  sub.add_option("--dense", a->dense, "forward, of the rest of a layer").type_name("TIME").shows_default();
  sub.add_option("--parts", a->parts, "of the tokens, that travel and are computed in turn; 1: no such way")
      .type_name("N")
      .within(1, 1024)
      .shows_default();
  sub.add_option("--routings", a->model.routings, "so many are drawn; layers take turns at them")
      .type_name("N")
      .within(1, 10000)
      .shows_default();
  sub.add_option("--seed", a->seed, "of the routings (default: 1)").type_name("N");
  sub.add_option("--only", a->only, "plain, bytes, by_server, parts, all").type_name("WAY,…").separated_by(',');
  a->config.add_to(sub, "TOML file with a [study], whose machine it is");
  sub.add_option("--json", a->json, "write everything as JSON; - for standard output").type_name("FILE");
  sub.add_option("--timeline", a->timeline, "write what every rank did when, for Perfetto or chrome://tracing")
      .type_name("FILE");
  sub.add_option("--report", a->report,
                 "write one HTML page: the first way beside the fastest other, tokens by rank and expert, a heat map")
      .type_name("FILE");
  sub.add_option("--goal", a->goal, "write the iteration as a trace for `troupe replay`").type_name("FILE");
  sub.footer(footer);
  sub.when_named([a, &chosen] { chosen = [a] { return run(*a); }; });
}

}  // namespace troupe::cli
