// troupe explain COLLECTIVE
#include "engine/explain.hpp"

#include <iostream>
#include <memory>

#include "engine/cli/cli.hpp"
#include "memory/error.hpp"

namespace troupe::cli {

namespace {

constexpr const char* footer = R"(Examples:
  troupe explain all_reduce --ranks 8 --bytes 1M
  troupe explain all_to_all --layout 2x4 --bytes 64K --type bf16
  troupe explain reduce --ranks 7 --root 3 --bytes 8 --determinism topology_stable --json)";

struct arguments {
  std::string collective, bytes = "1M", type = "f32", op = "sum", placement, config, level;
  std::vector<std::string> assignments;
  int ranks = 0, root = 0;
  bool in_place = false, as_json = false;
};

call call_of(const arguments& a, const engine_options& options, int ranks) {
  const auto kind = parse_job_kind(a.collective);
  if (!kind || kind->send_recv || kind->v_form) parse_collective_option(a.collective);
  job one;
  one.kind = *kind;
  one.bytes = parse_size("--bytes", a.bytes);
  if (const auto types = types_of(a.type); types.size() == 1) one.type = types.front();
  else usage_error("--type \"" + a.type + "\" is no element type; there are i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64, f8e4m3, f8e5m2");
  call what;
  what.what = kind->what;
  what.type = one.type;
  if (const auto ops = ops_of(a.op, one.type); ops.size() == 1) what.reduction = ops.front();
  else usage_error("--op \"" + a.op + "\" is no operation on " + a.type);
  if (kind->rooted()) what.root = a.root;
  what.count = shape_of(one, ranks).count;
  what.in_place = a.in_place;
  what.level = options.level;
  return what;
}

int explain_call(const arguments& a) {
  auto assignments = a.assignments;
  if (!a.level.empty()) assignments.push_back("engine.determinism=" + a.level);
  if (!a.placement.empty()) assignments.push_back("engine.layout=" + a.placement);
  const engine_options options = read_configuration(a.config, assignments).engine();
  if (options.layout.empty() && a.ranks == 0) usage_error("say how many: --ranks N, or --layout");
  const layout placement = options.layout.empty() ? layout::flat(a.ranks) : layout::parse(options.layout);
  if (a.ranks > 0 && a.ranks != placement.size())
    usage_error("--ranks is " + std::to_string(a.ranks) + ", but the layout " + options.layout + " places " +
                std::to_string(placement.size()) + "; leave --ranks out");
  const call what = call_of(a, options, placement.size());
  planner by{options};
  const explanation e = explain(by, what, placement);
  std::cout << (a.as_json ? to_json(e) : to_text(e));
  if (a.as_json) std::cout << '\n';
  return exit_ok;
}

}  // namespace

void add_explain(CLI::App& program, action& chosen) {
  auto a = std::make_shared<arguments>();
  CLI::App* sub = program.add_subcommand("explain", "why a call is performed as it is: all candidates, predicted times, who wins");
  sub->add_option("collective", a->collective, "all_reduce, all_gather …")->required()->type_name("COLLECTIVE");
  sub->add_option("--ranks", a->ranks, "number of ranks")->check(CLI::Range(1, 65536));
  sub->add_option("--bytes", a->bytes, "size as nccl-tests counts it (default 1M)")->type_name("BYTES");
  sub->add_option("--type", a->type, "element type (default f32)")->type_name("TYPE");
  sub->add_option("--op", a->op, "reduction (default sum)")->type_name("OP");
  sub->add_option("--root", a->root, "default 0")->check(CLI::NonNegativeNumber);
  sub->add_option("--layout", a->placement, "such as 2x4")->type_name("LAYOUT");
  sub->add_option("--determinism", a->level, "fast, run_stable, size_stable or topology_stable")->type_name("LEVEL");
  sub->add_flag("--in-place", a->in_place, "input and output are one buffer");
  sub->add_option("--config", a->config, "take the engine's options from this file")->type_name("FILE");
  sub->add_option("--set", a->assignments, "override a value: key=value; may be repeated")->type_name("KEY=VALUE")->expected(1)->take_all();
  sub->add_flag("--json", a->as_json, "as JSON");
  sub->footer(footer);
  sub->callback([a, &chosen] { chosen = [a] { return explain_call(*a); }; });
}

}  // namespace troupe::cli
