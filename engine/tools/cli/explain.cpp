// SPDX-License-Identifier: Apache-2.0
// troupe explain COLLECTIVE
#include "engine/tools/explain.hpp"
#include "engine/tools/explain_measured.hpp"

#include <cstdio>
#include <iostream>
#include <memory>
#include <utility>

#include "engine/tools/cli/cli.hpp"
#include "engine/tools/study/explain_on.hpp"
#include "engine/world/join.hpp"
#include "memory/error.hpp"
#include "memory/large_pages.hpp"

namespace troupe::cli {

namespace explain_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe explain all_reduce --ranks 8 --bytes 1M
  troupe explain all_to_all --layout 2x4 --bytes 64K --type bf16
  troupe explain all_gather_v --ranks 8 --bytes 1M
  troupe explain all_reduce --ranks 4 --bytes 64K --measure
  troupe explain all_reduce --ranks 8 --bytes 1M --processes 4       (of one host, two ranks in each: who reaches whom, and how)
  troupe explain all_reduce --ranks 16 --bytes 1M --processes 2x4    (two hosts with four processes each)
  troupe explain all_reduce --ranks 8 --bytes 1M --processes 2x4x1   (two pods of four hosts with a process each)
  troupe explain all_reduce --bytes 1M --on gh200_16            (a machine of `troupe study --presets`, in virtual time)
  troupe explain reduce --ranks 7 --root 3 --bytes 8 --determinism topology_stable --json)";

struct arguments {
  std::string collective, bytes = "1M", type = "f32", op = "sum", placement, processes, level, preset;
  configuration_options config;
  int ranks = 0, root = 0;
  bool in_place = false, as_json = false, measure = false, root_said = false, op_said = false, type_said = false,
       bytes_said = false;
  repetition_options times;
};

job_kind kind_of(const std::string& text) {
  if (const auto kind = parse_job_kind(text)) return *kind;
  const std::vector<std::string_view> names{all_job_names().begin(), all_job_names().end()};
  const auto near = closest(text, names);
  std::string list;
  for (const auto n : names) list += (list.empty() ? "" : ", ") + std::string{n};
  usage_error("there is no collective \"" + text + "\"; " +
              (near.empty() ? "there are " + list : "did you mean " + std::string{near} + "?"));
}

int explain_send_recv(bool as_json) {
  if (as_json) std::cout << R"({"collective": "send_recv", "chosen": null, "candidates": []})" << '\n';
  else
    std::cout << "send_recv: there is nothing to choose; every message goes from its sender to its receiver, without a "
                 "choreography\n";
  return exit_ok;
}

/// The job that the call is one of.
call call_of(const arguments& a, const job_kind& kind, const engine_options& options, int ranks, job& one) {
  one.kind = kind;
  one.bytes = parse_size("--bytes", a.bytes);
  if (const auto types = types_of(a.type); types.size() == 1) one.type = types.front();
  else
    usage_error("--type \"" + a.type +
                "\" is no element type; there are i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64, f8e4m3, f8e5m2, "
                "c64, c128");
  call what;
  what.what = kind.what;
  what.type = one.type;
  if (const auto ops = ops_of(a.op, one.type); ops.size() == 1) what.reduction = ops.front();
  else usage_error("--op \"" + a.op + "\" is no operation on " + a.type);
  if (a.root >= ranks)
    usage_error("--root " + std::to_string(a.root) + ": there is no root " + std::to_string(a.root) + " among " +
                plural(static_cast<std::size_t>(ranks), "rank") + ", which are counted from 0");
  if (kind.rooted()) what.root = one.root = a.root;
  one.reduction = what.reduction;
  one.places = a.in_place ? job_places::in : job_places::out;
  one.kind.v_form = false;  // of a v-form the blocks are equal, too: only how it is performed differs
  what.count = shape_of(one, ranks).count;
  one.kind.v_form = kind.v_form;
  if (kind.v_form) one.counts.assign(static_cast<std::size_t>(block_count(kind.what, ranks)), what.count);
  what.uniform = !kind.v_form || ranks == 1;  // the only block is as large as itself
  if (!what.uniform) what.counts.assign(static_cast<std::size_t>(ranks), what.count);
  what.in_place = a.in_place;
  what.level = options.level;
  if (kind.rooted() && what.uniform) what.agreement = options.agreement;
  return what;
}

/// The options' wishes, and those that are tried whatever a study says.
void check_modelled_keys(const arguments& a) {
  for (const std::string& assignment : a.config.assignments) {
    const std::string key = in_study(assignment.substr(0, assignment.find('=')));
    for (const auto& [useless, right] :
         {std::pair{"study.collective", "name it behind `explain`"},
          {"study.preset", "say --on"},
          {"study.sizes", "say --bytes"},
          {"study.choreography", "all are tried; `troupe study` performs the one that it names"},
          {"study.protocol", "all that the machine has are tried; `troupe study` takes the one that it names"}})
      if (key == useless) usage_error("--set " + key + " would do nothing with --on: " + right);
  }
}

/// The same question about a machine that one does not have.
int explain_modelled(const arguments& a) {
  put_heap_on_large_pages(computing_heap);
  if (a.measure) usage_error("--measure performs on this machine, --on models another one: take one of them");
  check_modelled_keys(a);
  assignments all_said = a.config.said();
  const auto say = [&](const std::string& key, const std::string& value, const char* option) {
    all_said.push_back({"study." + key + "=" + value, option});
  };
  say("collective", a.collective, "COLLECTIVE");
  say("preset", a.preset, "--on");
  say("choreography", "auto", "COLLECTIVE");  // all are tried
  if (a.type_said) say("type", a.type, "--type");
  if (a.op_said) say("op", a.op, "--op");
  if (a.root_said) say("root", std::to_string(a.root), "--root");
  if (a.ranks > 0) say("ranks", std::to_string(a.ranks), "--ranks");
  if (!a.placement.empty()) say("layout", a.placement, "--layout");
  if (!a.processes.empty()) usage_error("--processes is of this machine, --on models another one: take one of them");
  if (!a.level.empty())
    usage_error("--determinism would do nothing with --on: what a study may combine in any order --set any_order=true "
                "says");
  if (a.in_place) say("in_place", "true", "--in-place");
  configuration config = read_study_configuration(a.config.file, all_said);
  // Elements that a file counts, and a barrier, have no size.
  if (a.bytes_said || !(config.has("study.counts") || a.collective == name(collective::barrier)))
    config = with_study_value(std::move(config), {"study.sizes=" + a.bytes, "--bytes"});
  for (const auto& [some, table] : {std::pair{!config.jobs().empty(), "job"}, {!config.nodes().empty(), "node"}})
    if (some)
      throw error(errc::bad_config, "[[study." + std::string{table} +
                                        "]] would do nothing here: what is explained is " + "one collective");
  const study_scenario call = read_study(config);
  if (a.config.dump) return dump_study(config, call);
  progress_line line;
  const auto all = explain_on(call, [&](const std::string& text) { line.show(text); });
  line.clear();
  std::cout << (a.as_json ? to_json(call, all) + '\n' : to_text(call, all));
  return exit_ok;
}

/// Keys that only count where something is performed.
void check_planning_keys(const arguments& a) {
  if (a.measure) return;
  for (const std::string& assignment : a.config.assignments) {
    const std::string key = configuration::full_key(assignment.substr(0, assignment.find('=')));
    for (const char* performing :
         {"engine.workers", "engine.spin", "engine.deadline", "engine.trace_routes", "engine.nic_ports"})
      if (key == performing) usage_error("--set " + key + " would do nothing: nothing is performed without --measure");
  }
}

int explain_call(const arguments& a) {
  const job_kind kind = kind_of(a.collective);
  if (a.root_said && !kind.rooted()) usage_error("--root would do nothing: " + name(kind) + " has no root");
  if (a.op_said && !kind.reduces()) usage_error("--op would do nothing: " + name(kind) + " reduces nothing");
  if (!a.preset.empty()) return explain_modelled(a);
  if (kind.send_recv) return explain_send_recv(a.as_json);
  const interrupt_guard guard;
  assignments said = a.config.said();
  check_planning_keys(a);
  if (!a.level.empty()) said.push_back({"engine.determinism=" + a.level, "--determinism"});
  if (!a.placement.empty()) said.push_back({"engine.layout=" + a.placement, "--layout"});
  const configuration config = read_configuration(a.config.file, said, {"engine."});
  if (a.config.dump) return dump(config);
  const engine_options options = config.engine();
  if (layout::leaves_places_open(options.layout) && a.ranks == 0) usage_error("say how many: --ranks N, or --layout");
  if (!a.processes.empty() && (a.measure || !layout::leaves_places_open(options.layout)))
    usage_error(a.measure ? "--measure performs in one process; measure several with `troupe bench --processes N`"
                          : "--processes is a layout of its own: leave " +
                                (a.placement.empty() ? "engine.layout" : std::string{"--layout"}) + " out");
  layout placement = !a.processes.empty() ? placement_in_processes(a.processes, a.ranks)
                                          : placement_of("--ranks", a.ranks, options.layout, 0,
                                                         a.measure ? most_ranks_of_a_process : most_ranks_of_a_score);
  placement.reduces = layout::reduction_of(options.layout);
  job one;
  const call what = call_of(a, kind, options, placement.size(), one);
  check_choreographies_of(config, {{name(kind), {one}}});
  planner by{options};
  const std::vector<std::size_t> counts(static_cast<std::size_t>(block_count(what.what, placement.size())), what.count);
  explanation e = explain(by, what, placement, what.uniform ? nullptr : &counts);
  e.stages = options.stages;
  e.transport = name_of_transport(options.transport);
  if (a.measure) {
    engine on{options};
    progress_line line;
    measure_candidates(e, on, one, {a.times.budget_ms, a.times.rounds},
                       [&](const std::string& text) { line.show(text); });
  }
  std::cout << (a.as_json ? to_json(e) : to_text(e));
  if (a.as_json) std::cout << '\n';
  return exit_ok;
}

}  // namespace
}  // namespace explain_command

void add_explain(command program, action& chosen) {
  using namespace explain_command;
  auto a = std::make_shared<arguments>();
  const command sub =
      program.add_command("explain", "why a call is performed as it is: all candidates, predicted times, who wins");
  sub.add_option("collective", a->collective, "all_reduce, all_gather, all_to_all_v … (v-forms: with equal blocks)")
      .required()
      .type_name("COLLECTIVE");
  sub.add_option("--ranks", a->ranks, "number of ranks").within(1, most_ranks_of_a_score);
  sub.add_option("--bytes", a->bytes, "size as nccl-tests counts it (default 1M)").type_name("BYTES");
  sub.add_option("--type", a->type, "element type (default f32)").type_name("TYPE");
  sub.add_option("--op", a->op, "reduction (default sum)").type_name("OP");
  sub.add_option("--root", a->root, "default 0").within(0, most_ranks_of_a_score - 1);
  sub.add_option("--layout", a->placement, "such as 2x4").type_name("LAYOUT");
  sub.add_option("--processes", a->processes,
                 "ranks live in so many processes: 4, hosts x processes of each: 2x4, or pods in front: 2x4x1")
      .type_name("N");
  sub.add_option("--determinism", a->level, "fast, run_stable, size_stable or topology_stable").type_name("LEVEL");
  sub.add_flag("--in-place", a->in_place, "input and output are one buffer");
  a->config.add_to(sub, "take the options from this file");
  sub.add_option("--on", a->preset,
                 "on this modelled machine, in virtual time, instead of here; --set then takes keys of [study]")
      .type_name("PRESET");
  const option measure = sub.add_flag("--measure", a->measure,
                                      "perform every candidate, and show what was measured beside what was predicted");
  a->times.add_to(sub, "--measure", measure);
  sub.add_flag("--json", a->as_json, "as JSON");
  sub.footer(footer);
  sub.when_named([a, sub, &chosen] {
    a->root_said = sub.came("--root");
    a->op_said = sub.came("--op");
    a->type_said = sub.came("--type");
    a->bytes_said = sub.came("--bytes");
    chosen = [a] { return explain_call(*a); };
  });
}

}  // namespace troupe::cli
