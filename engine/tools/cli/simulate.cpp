// SPDX-License-Identifier: Apache-2.0
// troupe simulate
#include "engine/tools/cli/cli.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

#include <nlohmann/json.hpp>

#include "engine/tools/report.hpp"
#include "engine/tools/simulate/campaign.hpp"
#include "engine/tools/simulate/job.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe::cli {

namespace simulate_command {
namespace {

using namespace simulate;

constexpr const char* footer = R"(Examples:
  troupe simulate --seeds 1-10000
  troupe simulate --seeds 1-1000000 --ranks 2-4 --faults lose,delay,kill
  troupe simulate --seed 1234 --trace              everything that happens in one run
  troupe simulate --seeds 1-5000 --mutant drop_stopped
  troupe simulate --mutant list
  troupe simulate --processes 2-5 --seeds 1-10000  a job of several processes, and who is lost

Random programs (collectives of all kinds, sends and receives, splits and what is called in their parts, blocking and not) on random
plans, performed by the very states that an engine runs, in one thread under a virtual clock. The seed says what is called and what goes wrong: messages lost, doubled, late
and overtaking each other, ranks killed, cancelled, stopped by deadlines and aborts, ranks that leave or call something else.
In one seed of six the ranks are on several hosts (--ranks must allow for four ranks, or two with NICs), where calls go in tiers and hosts are lost; in one of six NICs perform,
half of those for several processes of a host, some as a process of their own, which is killed at times.

Checked at every event: results, buffers that were given back, credits, and that every error is true and the same everywhere; and
that everything ends. A failing seed is made smaller and told with everything that happened. The same seed with the same --ranks, --operations and
--faults gives the same run. A mutant breaks the protocol on purpose; then exit code 1 is right, and 2 that
it never acted. How often it did is said, too.

With --processes each rank lives in a simulated process of its own, all joined by connections: processes are killed, stopped, cut off, and
connections reset. Survivors' operations must end with peer_lost that names such a process, with no wrong byte and no hang. In six
of ten jobs there are several ranks a process, and communicators are split, shrunk and revoked: all who are left must agree on it.

Faults: all, none, or some of lose, twice, delay, kill, abort, cancel, deadline, leave, mismatch, throw, refuse, with commas
between; with --processes all or none.
Exit code 1 if a seed fails.)";

struct arguments {
  std::string seeds = "1-10000", seed, ranks = "1-5", faults = "all", mutant, json;
  std::string processes;
  int operations = 8, jobs = 0;
  std::size_t failures = 5;
  bool trace = false, no_shrink = false, strict = false;
  std::string idle;  ///< an option that does nothing beside another one that came, and why
};

/// Nothing: it is none that is not negative, or too large.
std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "A-B" or "A".
std::pair<std::uint64_t, std::uint64_t> range_of(const std::string& option, const std::string& text) {
  const std::size_t dash = text.find('-');
  const auto first = parse_number(std::string_view{text}.substr(0, dash));
  const auto last = dash == std::string::npos ? first : parse_number(std::string_view{text}.substr(dash + 1));
  if (!first || !last)
    usage_error(option + ": \"" + text + "\" is neither a number nor two with a dash between, as 7 or 1-100");
  if (*last < *first) usage_error(option + ": " + text + " ends before it begins; write the smaller number first");
  return {*first, *last};
}

[[noreturn]] void refuse_mutant(const std::string& text, const std::vector<std::string_view>& names) {
  const auto near = closest(text, names);
  usage_error("--mutant: there is none called \"" + text + '"' +
              (near.empty() ? "" : "; did you mean " + std::string{near} + "?") +
              " (troupe simulate --mutant list names all)");
}

mutant mutant_of(const std::string& text) {
  if (text.empty()) return mutant::none;
  if (const auto found = parse_mutant(text)) return *found;
  std::vector<std::string_view> names;
  for (const mutant_entry& m : all_mutants()) names.push_back(m.name);
  for (const job_mutant m : all_job_mutants)
    if (text == name(m)) usage_error("--mutant: " + text + " breaks jobs of several processes; say --processes, too");
  refuse_mutant(text, names);
}

/// With --processes.
job_mutant job_mutant_of(const std::string& text) {
  if (text.empty()) return job_mutant::none;
  std::vector<std::string_view> names;
  for (const job_mutant m : all_job_mutants) {
    if (text == name(m)) return m;
    names.push_back(name(m));
  }
  if (parse_mutant(text)) usage_error("--mutant: " + text + " would do nothing with --processes");
  refuse_mutant(text, names);
}

int list_mutants() {
  const auto line = [](std::string name, std::string_view what) {
    name.resize(std::max<std::size_t>(name.size() + 2, 26), ' ');
    std::cout << name << what << '\n';
  };
  for (const mutant_entry& m : all_mutants()) line(std::string{m.name}, m.what);
  std::cout << "\nwith --processes:\n";
  for (const job_mutant m : all_job_mutants) line(std::string{name(m)}, meaning(m));
  return exit_ok;
}

/// The first and the last.
std::pair<std::uint64_t, std::uint64_t> seeds_of(const arguments& a) {
  if (a.seed.empty()) return range_of("--seeds", a.seeds);
  const auto one = parse_number(a.seed);
  if (!one) usage_error("--seed: \"" + a.seed + "\" is no number");
  return {*one, *one};
}

campaign_options options_of(const arguments& a) {
  campaign_options o;
  const auto [least, most] = range_of("--ranks", a.ranks);
  if (least < 1 || most > 16) usage_error("--ranks: simulated communicators have 1 … 16 ranks, not " + a.ranks);
  o.limits.least_ranks = static_cast<int>(least);
  o.limits.most_ranks = static_cast<int>(most);
  if (a.operations < 1 || a.operations > 64) usage_error("--operations: must be 1 … 64");
  o.limits.most_items = a.operations;
  o.limits.faults = parse_faults(a.faults);
  o.each.broken = mutant_of(a.mutant);
  o.each.strict = a.strict;
  std::tie(o.first, o.last) = seeds_of(a);
  o.most_failures = a.failures;
  o.threads = a.jobs > 0 ? a.jobs : std::max(1, static_cast<int>(discover().usable_cpus()));
  return o;
}

nlohmann::json json_of(const shrunk& small) {
  return {{"scenario", small.what.to_string()},
          {"fault", small.fault},
          {"attempts", small.attempts},
          {"trace", small.trace}};
}

void print(const shrunk& small) {
  std::cout << "the smallest that was found to fail alike (" << small.attempts << " attempts):\n"
            << small.what.to_string() << '\n';
  for (const std::string& line : small.trace) std::cout << line << '\n';
}

/// Of a mutant that never acts nothing is shown by a run in which all is right.
std::string acts_of_mutant(const arguments& a, std::uint64_t times) {
  if (a.mutant.empty()) return {};
  if (times == 0)
    return "the mutant " + a.mutant + " never acted, so nothing was broken; take more seeds, or --faults all\n";
  return "the mutant " + a.mutant + " acted " + plural(times, "time") + '\n';
}

int code_of(const arguments& a, bool all_right, std::uint64_t mutations) {
  if (!all_right) return exit_wrong;
  return a.mutant.empty() || mutations > 0 ? exit_ok : exit_usage;
}

/// One run, told from the beginning to the end.
int run_one(const arguments& a, const campaign_options& o) {
  plan_source plans;
  const scenario s = make_scenario(o.first, o.limits, plans);
  simulation_options each = o.each;
  each.trace = a.trace;
  const simulation_result r = simulation(s, plans, each).run();
  nlohmann::json document{{"seed", o.first},  {"scenario", s.to_string()}, {"ok", r.ok()},
                          {"fault", r.fault}, {"events", r.events},        {"trace", r.trace}};
  std::ostream& out = a.json == "-" ? std::cerr : std::cout;
  out << s.to_string() << '\n';
  for (const std::string& line : r.trace) out << line << '\n';
  out << (r.ok() ? "all right" : "FAILED: " + r.fault) << " (" << plural(r.events, "event") << ", " << r.performed
      << " performed, " << r.failed << " failed)\n"
      << acts_of_mutant(a, r.mutations);
  if (!r.ok() && !a.no_shrink) {
    const shrunk small = shrink(s, plans, o.each);
    if (a.json != "-") print(small);
    document["shrunk"] = json_of(small);
  }
  if (!a.json.empty()) write_text(a.json, document.dump(2) + "\n");
  return code_of(a, r.ok(), r.mutations);
}

std::string repeat_command(const arguments& a, std::uint64_t seed) {
  std::string text = "troupe simulate --seed " + std::to_string(seed) + " --trace";
  const arguments usual;
  if (a.ranks != usual.ranks) text += " --ranks " + a.ranks;
  if (a.operations != usual.operations) text += " --operations " + std::to_string(a.operations);
  if (a.faults != usual.faults) text += " --faults " + a.faults;
  if (!a.mutant.empty()) text += " --mutant " + a.mutant;
  if (a.strict) text += " --strict";
  return text;
}

int run_many(const arguments& a, campaign_options o) {
  std::atomic<bool> interrupted{false};
  const interrupt_guard guard{[&] { interrupted = true; }};
  progress_line progress;
  const auto begun = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(); };
  const std::uint64_t total = o.last - o.first + 1;
  o.progress = [&](std::uint64_t done, std::size_t failed) {
    const double rate = static_cast<double>(done) / std::max(seconds(), 1e-3);
    progress.show(std::to_string(done) + " of " + std::to_string(total) + " seeds, " +
                  std::to_string(static_cast<long>(rate)) + " a second" +
                  (failed > 0 ? ", " + std::to_string(failed) + " FAILED" : ""));
    return !interrupted.load();
  };
  const campaign_result r = run_campaign(o);
  progress.clear();
  std::ostream& out = a.json == "-" ? std::cerr : std::cout;
  nlohmann::json document{
      {"first", o.first},         {"last", o.last},     {"seeds", r.seeds},     {"events", r.events},
      {"performed", r.performed}, {"failed", r.failed}, {"seconds", seconds()}, {"failing", nlohmann::json::array()}};
  if (!a.mutant.empty()) document["mutations"] = r.mutations;
  for (const failing_seed& f : r.failures) {
    out << "seed " << f.seed << ": " << f.fault << "\n  again: " << repeat_command(a, f.seed) << '\n';
    document["failing"].push_back({{"seed", f.seed}, {"fault", f.fault}});
  }
  if (!r.failures.empty() && !a.no_shrink) {
    plan_source plans;
    const shrunk small = shrink(make_scenario(r.failures.front().seed, o.limits, plans), plans, o.each);
    if (a.json != "-") print(small);
    document["shrunk"] = json_of(small);
  }
  std::ostringstream rate;
  rate.precision(1);
  rate << std::fixed << seconds();
  out << plural(r.seeds, "seed") << " in " << rate.str() << " s (" << r.events << " events; of the ranks' operations "
      << r.performed << " performed, " << r.failed << " failed as they should): "
      << (r.failures.empty() ? "all right" : plural(r.failures.size(), "seed") + " FAILED") << '\n'
      << acts_of_mutant(a, r.mutations);
  if (!a.json.empty()) write_text(a.json, document.dump(2) + "\n");
  if (interrupted) return exit_interrupted;
  return code_of(a, r.failures.empty(), r.mutations);
}

std::string repeat_job_command(const arguments& a, std::uint64_t seed) {
  return "troupe simulate --processes " + a.processes + " --seed " + std::to_string(seed) + " --trace" +
         (a.faults == "none" ? " --faults none" : "") + (a.mutant.empty() ? "" : " --mutant " + a.mutant);
}

/// Jobs of several processes. A failing one is told whole: there is nothing in it to be taken out.
int run_processes(const arguments& a) {
  job_campaign c;
  const auto [least, most] = range_of("--processes", a.processes);
  if (least < 2 || most > 16) usage_error("--processes: simulated jobs have 2 … 16 processes, not " + a.processes);
  c.each.least_processes = static_cast<int>(least);
  c.each.most_processes = static_cast<int>(most);
  if (a.faults != "all" && a.faults != "none")
    usage_error("--faults: with --processes what goes wrong is all or none, not \"" + a.faults + "\"");
  c.each.faults = a.faults == "all";
  c.each.broken = job_mutant_of(a.mutant);
  std::tie(c.first, c.last) = seeds_of(a);
  c.most_failures = a.failures;
  if (!a.json.empty()) check_writable(a.json);
  const auto begun = std::chrono::steady_clock::now();
  const job_campaign_result r = run_jobs(c);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  std::ostream& out = a.json == "-" ? std::cerr : std::cout;
  nlohmann::json document{{"first", c.first},
                          {"last", c.last},
                          {"seeds", r.seeds},
                          {"events", r.events},
                          {"performed", r.performed},
                          {"failed", r.failed},
                          {"communicators", r.divisions},
                          {"shrinks", r.shrinks},
                          {"seconds", seconds},
                          {"failing", nlohmann::json::array()}};
  if (a.trace || !r.failures.empty()) {
    plan_source plans;
    c.each.trace = true;
    const std::uint64_t told = r.failures.empty() ? c.first : r.failures.front().first;
    const simulate::job_result one = simulate_job(told, plans, c.each);
    out << "seed " << told << ": " << one.story << '\n';
    for (const std::string& line : one.trace) out << line << '\n';
  }
  for (const auto& [seed, fault] : r.failures) {
    out << "seed " << seed << ": " << fault << "\n  again: " << repeat_job_command(a, seed) << '\n';
    document["failing"].push_back({{"seed", seed}, {"fault", fault}});
  }
  std::ostringstream rate;
  rate.precision(1);
  rate << std::fixed << seconds;
  out << plural(r.seeds, "seed") << " in " << rate.str() << " s (" << r.events << " events; of the ranks' operations "
      << r.performed << " performed, " << r.failed << " failed as they should; " << plural(r.divisions, "communicator")
      << ", " << plural(r.shrinks, "shrink")
      << "): " << (r.failures.empty() ? "all right" : plural(r.failures.size(), "seed") + " FAILED") << '\n';
  if (!a.json.empty()) write_text(a.json, document.dump(2) + "\n");
  return r.failures.empty() ? exit_ok : exit_wrong;
}

int run(const arguments& a) {
  if (a.mutant == "list") return list_mutants();
  if (a.trace && a.seed.empty()) usage_error("--trace tells one run; name it with --seed N");
  if (!a.idle.empty()) usage_error(a.idle);
  if (!a.processes.empty()) return run_processes(a);
  const campaign_options o = options_of(a);
  if (!a.json.empty()) check_writable(a.json);
  return a.seed.empty() ? run_many(a, o) : run_one(a, o);
}

}  // namespace
}  // namespace simulate_command

void add_simulate(command program, action& chosen) {
  using namespace simulate_command;
  auto a = std::make_shared<arguments>();
  const command sub = program.add_command("simulate", "the protocol under simulated faults, from seeds");
  const option seeds = sub.add_option("--seeds", a->seeds, "which runs").type_name("A-B").shows_default();
  sub.add_option("--seed", a->seed, "one run").type_name("N").excludes(seeds);
  sub.add_flag("--trace", a->trace, "with --seed: tell everything that happens");
  const option ranks = sub.add_option("--ranks", a->ranks, "ranks of a communicator").type_name("A-B").shows_default();
  sub.add_option("--processes", a->processes, "a job of so many simulated processes").type_name("A-B").excludes(ranks);
  sub.add_option("--operations", a->operations, "most calls of a rank").type_name("N").shows_default();
  sub.add_option("--faults", a->faults, "what may go wrong").type_name("LIST").shows_default();
  sub.add_option("--mutant", a->mutant, "break the protocol on purpose; \"list\" names all ways").type_name("NAME");
  sub.add_option("--failures", a->failures, "stop after so many failing seeds; 0: never")
      .type_name("N")
      .within(0, 1'000'000'000, option::in_help::no)
      .shows_default();
  sub.add_option("--jobs", a->jobs, "threads; 0: one a core")
      .type_name("N")
      .within(0, 1024, option::in_help::no)
      .shows_default();
  sub.add_flag("--strict", a->strict,
               "look at all buffers that were given back after every event, not only at the end");
  sub.add_flag("--no-shrink", a->no_shrink, "do not make a failing run smaller");
  sub.add_option("--json", a->json, "write what was found as JSON; - for standard output").type_name("FILE");
  sub.footer(footer);
  sub.when_named([a, sub, &chosen] {
    for (const char* option : {"--operations", "--strict", "--no-shrink", "--jobs"})
      if (sub.came("--processes") && sub.came(option))
        a->idle = std::string{option} + " would do nothing with --processes";
    for (const char* option : {"--jobs", "--failures"})
      if (sub.came("--seed") && sub.came(option))
        a->idle = std::string{option} + " would do nothing with --seed, which is one run";
    chosen = [a] { return run(*a); };
  });
}

}  // namespace troupe::cli
