// SPDX-License-Identifier: Apache-2.0
// troupe bench: nccl-tests' flags and columns
#include "engine/tools/cli/cli.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <memory>

#include "engine/planning/choreography_wish.hpp"
#include "engine/planning/option_bounds.hpp"
#include "engine/tools/report.hpp"
#include "memory/error.hpp"
#include "memory/kernels/kernels.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe::cli {

namespace bench_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe bench -b 8 -e 64M -f 2 -t 4
  troupe bench --collective all_gather,reduce_scatter -b 1K -e 1M -i 64K -t 8 -d all -o all
  troupe bench --collective broadcast -r -1 -b 64K -e 64K -t 5 -w 0 -n 1
  troupe bench --choreography ring --set channels=1 -t 8 --json ring.json
  troupe bench --collective all -t 8 --one-thread -e 64K
  troupe bench --processes 4 -e 1M                          four ranks, a process each
  troupe bench --processes 2 -t 4 -e 1M                     eight, of which four share a process
  troupe launch --hosts hosts.toml troupe bench -e 1M       on other hosts; so do mpirun, srun and torchrun

Columns are those of nccl-tests: sizes are of the whole buffer of a rank, rounded down to whole blocks; busbw = algbw × 2(n-1)/n
for all_reduce, × (n-1)/n for all_gather, reduce_scatter, gather, scatter and all_to_all, × 1 for broadcast, reduce, scan,
exscan and send_recv. The time runs from the first rank's begin to the last rank's end, over all iterations; -a takes another. Of several
processes, which may be on hosts with other clocks, it is the slowest rank's own.
--stats and JSON have the distribution of at most 10 000 further repetitions, each as long as its slowest rank takes.)";

struct arguments {
  std::string collectives = "all_reduce", choreography, protocol, json, type = "f32", op = "sum", least = "8",
              most = "64M", step, root = "0";
  configuration_options config;
  bool root_said = false, op_said = false;
  std::string data_said;  ///< the first option that came of those that say which data there is
  int iterations = 20, warmup = 5, ranks = 0, processes = 0, check = 1, factor = 2;
  int aggregated = 1, cycles = 1, average = -1, blocking = 1, timeout = 0, cpu_time = 0;
  bool one_thread = false, stats = false;
};

std::vector<std::size_t> sizes_of(const arguments& a) {
  const std::size_t least = parse_size("-b", a.least), most = parse_size("-e", a.most);
  if (least > most) usage_error("-b " + a.least + " is more than -e " + a.most);
  const std::size_t step = a.step.empty() ? 0 : parse_size("-i", a.step);
  if (!a.step.empty() && step == 0) usage_error("-i must be more than 0");
  std::vector<std::size_t> sizes;
  for (std::size_t size = least;;) {
    sizes.push_back(size);
    if (sizes.size() > 100000) usage_error("-b, -e and -i make more than 100 000 sizes; take a larger step");
    const std::size_t next =
        step > 0 ? size + step : std::max<std::size_t>(1, size) * static_cast<std::size_t>(a.factor);
    if (next > most) return sizes;
    size = next;
  }
}

std::vector<job_kind> kinds_of(const std::string& text) {
  std::vector<job_kind> kinds;
  std::istringstream items{text == "all" ? "" : text};
  for (std::string item; std::getline(items, item, ',');) {
    const auto kind = parse_job_kind(item);
    if (!kind) {
      std::string list;
      for (const auto& n : all_job_names()) list += n + ", ";
      const std::vector<std::string_view> names{all_job_names().begin(), all_job_names().end()};
      const auto near = closest(item, names);
      usage_error("--collective: there is no collective \"" + item + "\"; " +
                  (near.empty() ? "there are " + list + "and all" : "did you mean " + std::string{near} + "?"));
    }
    kinds.push_back(*kind);
  }
  if (text == "all")
    for (const auto& n : all_job_names()) kinds.push_back(*parse_job_kind(n));
  return kinds;
}

std::vector<rank_t> roots_of(const arguments& a, const job_kind& kind, int ranks) {
  if (!kind.rooted()) return {0};
  std::vector<rank_t> roots;
  if (a.root == "all" || a.root == "-1")
    for (rank_t r = 0; r < ranks; ++r) roots.push_back(r);
  else {
    if (a.root.empty() || a.root.size() > 6 || a.root.find_first_not_of("0123456789") != std::string::npos ||
        std::stoi(a.root) >= ranks)
      usage_error("-r " + a.root + " is no rank; there are 0 to " + std::to_string(ranks - 1) + ", and all");
    roots.push_back(std::stoi(a.root));
  }
  return roots;
}

/// Sizes that are rounded down to the same blocks make one row; those that are rounded down to nothing none, if others are left.
void add_sizes(job_group& group, job one, const std::vector<std::size_t>& sizes, int ranks) {
  if (one.kind.is_barrier()) return group.jobs.push_back(one);
  const std::size_t before = group.jobs.size();
  std::size_t last = static_cast<std::size_t>(-1);
  for (const std::size_t bytes : sizes) {
    one.bytes = bytes;
    const std::size_t made = shape_of(one, ranks).bytes;
    if (made == last || (made == 0 && bytes != 0)) continue;
    last = made;
    group.jobs.push_back(one);
  }
  if (group.jobs.size() == before) group.jobs.push_back(one);
}

job_group group_of(const arguments& a, const job_kind& kind, int ranks) {
  job_group group{name(kind), {}};
  const auto types = types_of(a.type);
  if (types.empty())
    usage_error("-d " + a.type +
                " is no element type; there are i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64, f8e4m3, f8e5m2, c64, "
                "c128, and all");
  for (const datatype type : types) {
    auto ops = kind.reduces() ? ops_of(a.op, type) : std::vector<op>{sum};
    if (ops.empty() && !parse_op(a.op))
      usage_error(
          "-o " + a.op +
          " is no operation; there are sum, prod, min, max, avg, pre_mul_sum, land, lor, band, bor, bxor, and all");
    if (ops.empty() && types.size() == 1) usage_error("-o " + why_unsupported(type, *parse_op(a.op)));
    for (const op& reduction : ops)
      for (const rank_t root : roots_of(a, kind, ranks)) {
        job one;
        one.kind = kind;
        one.type = type;
        one.reduction = reduction;
        one.root = root;
        one.choreography = a.choreography;
        if (!a.protocol.empty()) one.protocol = *parse_message_protocol(a.protocol);
        add_sizes(group, one, sizes_of(a), ranks);
      }
  }
  return group;
}

void check_choreography(const std::string& wanted, const engine_options& options) {
  if (wanted.empty() || wanted == "auto" || find_choreography(wanted) != nullptr ||
      options.score_files.count(wanted) > 0)
    return;
  std::vector<std::string> files;
  for (const auto& [own, file] : options.score_files) files.push_back(own);
  const std::vector<std::string> known = known_choreographies(files);
  if (wanted.starts_with('^')) {
    if (const std::string wrong = wrong_choreography(wanted, known); !wrong.empty())
      usage_error("--choreography: " + wrong);
    return;
  }
  std::vector<std::string_view> names{"auto"};
  names.insert(names.end(), known.begin(), known.end());
  const auto near = closest(wanted, names);
  usage_error("--choreography: there is no \"" + wanted + "\"; " +
              (near.empty() ? "`troupe list` shows all" : "did you mean " + std::string{near} + "?"));
}

/// How many ranks there are, in how many processes.
void place_ranks(const arguments& a, const engine_options& options, workload& work) {
  work.processes = processes_of("--processes", a.processes);
  if (work.processes == 1) {
    const int one_a_core = std::clamp(discover().usable_cpus(), 2, most_ranks_of_a_process);
    work.ranks = placement_of("--nthreads (-t)", a.ranks, options.layout, one_a_core, most_ranks_of_a_process).size();
    return;
  }
  if (a.one_thread) usage_error("--one-thread drives the ranks of one process, not those of several: leave it out");
  check_job_options(options);
  work.ranks = work.processes * std::max(a.ranks, 1);
  if (work.ranks > most_ranks_of_a_score)
    usage_error("there would be " + std::to_string(work.ranks) + " ranks; scores are for at most " +
                std::to_string(most_ranks_of_a_score));
}

int bench(const arguments& a) {
  const configuration config = read_configuration(a.config.file, a.config.said(), {"engine."});
  if (a.config.dump) return dump(config);
  const engine_options options = config.engine();
  workload work;
  place_ranks(a, options, work);
  work.iterations = a.iterations;
  work.warmup = a.warmup;
  work.check = a.check != 0;
  work.one_thread = a.one_thread;
  work.aggregated = a.aggregated;
  work.cpu_time = a.cpu_time != 0;
  work.timeout = std::chrono::seconds{a.timeout};
  static constexpr std::array whose{time_of::all, time_of::rank_0, time_of::average, time_of::least, time_of::most};
  work.whose = whose[static_cast<std::size_t>(a.average + 1)];
  if (a.blocking == 0)
    usage_error("-z 0: calls are blocking here, every rank waits for its own; -m has several under way at once");
  if (a.cpu_time != 0 && a.average >= 0)
    usage_error("-a would do nothing with -C 1: the process's CPU time is of all ranks");
  if (a.cycles == 0 && !a.json.empty()) usage_error("-N 0 goes on without end, and its JSON would be written then");
  check_choreography(a.choreography, options);
  const auto kinds = kinds_of(a.collectives);
  const auto none = [&](auto has) { return std::none_of(kinds.begin(), kinds.end(), has); };
  if (a.root_said && none([](const job_kind& k) { return k.rooted(); }))
    usage_error("-r would do nothing: " + a.collectives + " has no root");
  if (a.op_said && none([](const job_kind& k) { return k.reduces(); }))
    usage_error("-o would do nothing: " + a.collectives + " reduces nothing");
  if (!a.choreography.empty() && none([](const job_kind& k) { return !k.send_recv; }))
    usage_error("--choreography would do nothing: " + a.collectives + " is performed without one");
  if (!a.data_said.empty() && none([](const job_kind& k) { return !k.is_barrier(); }))
    usage_error(a.data_said + " would do nothing: " + a.collectives + " has no data");
  for (const job_kind& kind : kinds) work.groups.push_back(group_of(a, kind, work.ranks));
  check_choreographies_of(config, work.groups);
  table_style style;
  style.titles = kinds.size() > 1;
  style.spread_columns = a.stats;
  style.cycles = a.cycles;
  if (work.processes > 1 && !place_in_job().started()) return start_processes(work.processes, {}, config.engine());
  return run_table(config, std::move(work), style, a.json);
}

}  // namespace
}  // namespace bench_command

void add_bench(command program, action& chosen) {
  using namespace bench_command;
  auto a = std::make_shared<arguments>();
  const command sub = program.add_command("bench", "measure collectives, with the flags and columns of nccl-tests");
  sub.add_option("--collective", a->collectives, "one, several with commas, or all (default all_reduce)")
      .type_name("COLLECTIVES");
  sub.add_option("-b,--minbytes", a->least, "smallest size (default 8)").type_name("BYTES");
  sub.add_option("-e,--maxbytes", a->most, "largest size (default 64M)").type_name("BYTES");
  const option factor =
      sub.add_option("-f,--stepfactor", a->factor, "each size is so many times the one before (default 2)")
          .within(2, 1 << 20);
  sub.add_option("-i,--stepbytes", a->step, "each size is so much more than the one before")
      .type_name("BYTES")
      .excludes(factor);
  sub.add_option("-n,--iters", a->iterations, "timed iterations (default 20)").within(1, 1000000000);
  sub.add_option("-w,--warmup_iters", a->warmup,
                 "iterations before them, at least: then until times settle; 0: none (default 5)")
      .within(0, 1000000000);
  sub.add_option("-m,--agg_iters", a->aggregated,
                 "calls of a rank that are started and waited for together (default 1)")
      .within(1, 1024);
  sub.add_option("-N,--run_cycles", a->cycles, "run all rows so often; 0: until an interrupt (default 1)")
      .within(0, 1000000000);
  sub.add_option(
         "-a,--average", a->average,
         "time of 0: rank 0, 1: the average rank, 2: the fastest, 3: the slowest (default: from the first rank's "
         "begin to the last rank's end)")
      .within(0, 3);
  sub.add_option("-z,--blocking", a->blocking, "1: calls block (default, and all there is)").within(0, 1);
  sub.add_option("-T,--timeout", a->timeout, "a row's test may take so many seconds (default 0: any)")
      .within(0, 1000000);
  sub.add_option("-C,--report_cputime", a->cpu_time,
                 "1: CPU time of the process, all threads, instead of the time that passes")
      .within(0, 1);
  sub.add_option("-t,--nthreads", a->ranks, "ranks, a thread each (default: one a core, at least 2)")
      .within(1, 1000000, option::in_help::no);
  sub.add_option(
         "--processes", a->processes,
         "processes of this host, each with -t ranks (then default 1); what a launcher has started joins by itself")
      .type_name("N")
      .within(1, most_processes_here, option::in_help::no);
  sub.add_option("-d,--datatype", a->type, "element type, or all (default f32)").type_name("TYPE");
  sub.add_option("-o,--op", a->op, "reduction, or all (default sum)").type_name("OP");
  sub.add_option("-r,--root", a->root, "root; -1 or all: every rank in turn (default 0)").type_name("RANK");
  sub.add_option("-c,--check", a->check, "0: do not check results (default 1)").within(0, 1);
  sub.add_option("--choreography", a->choreography, "force one; see `troupe list`").type_name("CHOREOGRAPHY");
  sub.add_option("--protocol", a->protocol, "force one: simple, direct, ll or ll128")
      .type_name("PROTOCOL")
      .one_of(wanted_protocols);
  a->config.add_to(sub, "take the engine's options from this file");
  sub.add_option("-J,--json,--output_file", a->json, "write the rows as JSON; - for standard output").type_name("FILE");
  sub.add_flag("--stats", a->stats, "columns for the least, median, 99th percentile and largest time of a repetition");
  sub.add_flag("--one-thread", a->one_thread, "one thread drives all ranks, with groups");
  sub.footer(footer);
  sub.when_named([a, sub, &chosen] {
    a->root_said = sub.came("--root");
    a->op_said = sub.came("--op");
    for (const char* of_data : {"-d", "-f", "-i", "-e", "-b"})
      if (sub.came(of_data)) a->data_said = of_data;
    chosen = [a] { return bench(*a); };
  });
}

}  // namespace troupe::cli
