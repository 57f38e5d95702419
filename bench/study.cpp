// SPDX-License-Identifier: Apache-2.0
// How fast the study mode is: chunk steps per second, set-up and memory, by collective, choreography, machine, discipline and who performs
// them (the ranks' states, or the player). See --help.
// Prints a row per run; asserts nothing. Rows run in processes of their own, so that each shows its own peak memory. Seconds are CPU time; of
// several rounds the fastest run counts. What takes less than a hundredth of a second is run again in the same process: the first run of a
// process has its own column, as it also binds symbols, and touches code and copied memory for the first time.

#include "actors/virtual/virtual_run.hpp"
#include "memory/error.hpp"
#include "memory/large_pages.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/score/score_tally.hpp"
#include "topology/machine/hardware.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace {

using namespace troupe;

/// The CPU time of this process. A run is one thread that never waits, so this is what it takes on a core of its own.
struct clock_type {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<clock_type, duration>;
  static time_point now() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return time_point{std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec}};
  }
};

constexpr auto states = performed_by::states, player = performed_by::player;
constexpr std::size_t mib = 1 << 20;

struct task {
  const char* group;
  collective what;
  std::string choreography;
  std::string preset;
  std::string layout;  ///< empty: flat
  int ranks;           ///< 0: the layout's
  std::size_t bytes;   ///< of a block; of v-forms a block between two ranks at most
  performed_by by;
  std::string discipline = "fifo";
  bool slow = false;     ///< not with --quick
  bool uniform = false;  ///< an all_to_all whose blocks are all alike
};

struct row {
  int ranks;
  std::uint64_t steps, messages, events, trace;
  std::int64_t end_ps, waited_ps;
  double write_seconds, set_up_seconds, run_seconds, virtual_us, megabytes;
  double first_seconds;  ///< of the process's first run; the others are of its fastest
};

double seconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double>(clock_type::now() - begin).count();
}

hardware machine_of(const task& t) {
  preset_request request;
  request.ranks = t.ranks, request.layout = t.layout;
  if (t.preset == "fat_tree") request.structure = {{"radix", "64"}};
  hardware on = build_preset(t.preset, request);
  if (t.discipline != "fifo")
    for (const element_class& c : on.classes)
      if (std::ranges::none_of(on.switches, [&](const reducing_switch& s) {
            return s.unit != no_element && &on.class_of(s.unit) == &c;  // where a switch reduces must be fifo
          }))
        on.set(c.name + ".discipline", t.discipline);
  return on;
}

/// Of every pair; a quarter of them send nothing.
std::vector<std::size_t> uneven_counts(int ranks, std::size_t most) {
  std::mt19937_64 random{1};
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks));
  for (std::size_t& c : counts) c = random() % 4 == 0 ? 0 : random() % most;
  return counts;
}

setup setup_of(const task& t, const hardware& on) {
  setup at = flat_setup(t.what, on.ranks);
  if (on.arrangement.size() == on.ranks) at.placement = on.arrangement;
  at.uniform = t.uniform || t.what != collective::all_to_all;
  return at;
}

row run_one(const task& t) {
  row r{};
  auto begin = clock_type::now();
  const hardware on = machine_of(t);
  r.ranks = on.ranks;
  const setup at = setup_of(t, on);
  score notes = lower_syncs(write_score(*find_choreography(t.choreography), at));
  std::vector<std::size_t> counts;
  if (!at.uniform) notes = one_cell_per_step(notes), counts = uneven_counts(on.ranks, t.bytes / 4);
  r.write_seconds = seconds_since(begin);
  virtual_options options;
  options.protocol = *on.protocol("simple");
  options.by = t.by;
  // Asked before the first event, too: until then the run is set up.
  struct look {
    clock_type::time_point begin;
    double set_up = 0;
  } first{clock_type::now()};
  options.context = &first;
  options.go_on = [](void* context, std::uint64_t events) {
    auto& l = *static_cast<look*>(context);
    if (events == 0) l.set_up = seconds_since(l.begin);
    return true;
  };
  call_shape shape;
  shape.element_size = 4;
  if (at.uniform) shape.count = t.bytes / 4;
  else shape.counts = counts;
  const virtual_outcome o = perform_virtually(notes, shape, {}, on, options);
  r.first_seconds = r.run_seconds = seconds_since(first.begin);
  r.set_up_seconds = first.set_up;
  constexpr double short_run = 0.01;
  for (int again = 0; again < 4 && r.run_seconds < short_run; ++again) {
    first = {clock_type::now()};
    static_cast<void>(perform_virtually(notes, shape, {}, on, options));
    const double took = seconds_since(first.begin);
    if (took < r.run_seconds) r.run_seconds = took, r.set_up_seconds = first.set_up;
  }
  r.steps = o.steps, r.messages = o.messages, r.events = o.events, r.trace = o.trace;
  r.end_ps = o.end_ps, r.waited_ps = o.waited_chunk_ps + o.waited_credit_ps;
  r.virtual_us = static_cast<double>(o.end_ps) / 1e6;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  r.megabytes = static_cast<double>(usage.ru_maxrss) / 1024;
  return r;
}

/// In a child, so that the peak memory is this run's alone. A run that is refused says why, and has no ranks.
row run_apart(const task& t) {
  int ends[2];
  row r{};
  if (pipe(ends) != 0) return r;
  const pid_t child = fork();
  if (child == 0) {
    try {
      r = run_one(t);
    } catch (const error& e) {
      std::fprintf(stderr, "study: %s by %s on %s: %s\n", std::string{name(t.what)}.c_str(), t.choreography.c_str(),
                   t.preset.c_str(), e.what());
    }
    const auto written = write(ends[1], &r, sizeof r);
    _exit(written == sizeof r ? 0 : 1);
  }
  close(ends[1]);
  if (read(ends[0], &r, sizeof r) != sizeof r) r = {};
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return r;
}

row fastest_of(const task& t, int rounds) {
  row best = run_apart(t);
  for (int i = 1; i < rounds; ++i) {
    const row again = run_apart(t);
    const double first = std::min(best.first_seconds, again.first_seconds);
    if (again.run_seconds < best.run_seconds) best = again;
    best.first_seconds = first;
  }
  return best;
}

std::vector<task> all_tasks() {
  constexpr auto sum = collective::all_reduce;
  std::vector<task> all{
      {"ring", sum, "ring", "flat", "", 256, mib, states},
      {"ring", sum, "ring", "flat", "", 256, mib, player},
      {"ring", sum, "ring", "flat", "", 512, mib, states},
      {"ring", sum, "ring", "flat", "", 512, mib, player},
      {"ring", sum, "ring", "flat", "", 1024, 16 * mib, player},
      {"ring", sum, "ring", "flat", "", 1024, 16 * mib, states, "fifo", true},
      {"ring", sum, "ring", "flat", "", 2048, 16 * mib, player, "fifo", true},
      {"ring", sum, "ring", "flat", "", 4096, 64 * mib, player, "fifo", true},
      {"tree", sum, "double_binary_tree", "flat", "", 1024, mib, states},
      {"tree", sum, "double_binary_tree", "flat", "", 1024, mib, player},
      {"tree", sum, "double_binary_tree", "flat", "", 4096, mib, states},
      {"tree", sum, "double_binary_tree", "flat", "", 4096, mib, player},
      {"tree", collective::broadcast, "binomial", "flat", "", 65536, mib, player, "fifo", true},
      {"tree", sum, "double_binary_tree", "flat", "", 65536, mib, player, "fifo", true},
      {"doubling", sum, "recursive_doubling", "flat", "", 4096, mib, player},
      {"doubling", sum, "halving_doubling", "flat", "", 4096, mib, player},
      {"hierarchical", sum, "hierarchical", "dgx_h100", "32x8", 0, 16 * mib, player},
      {"hierarchical", sum, "hierarchical", "dgx_h100", "128x8", 0, 16 * mib, player},
      {"hierarchical", sum, "hierarchical_hd", "dgx_h100", "128x8", 0, 16 * mib, player},
      {"hierarchical", sum, "hierarchical_pipeline", "dgx_h100", "128x8", 0, 16 * mib, player},
      {"all_to_all_v", collective::all_to_all, "pairwise", "fat_tree", "", 1024, 64 << 10, player},
      {"all_to_all_v", collective::all_to_all, "direct_full_mesh", "fat_tree", "", 1024, 64 << 10, player},
      {"million", sum, "double_binary_tree", "flat", "", 1 << 20, mib, player},
  };
  for (const char* discipline : {"fifo", "fair", "max_min"}) {
    all.push_back({"discipline", sum, "ring", "flat", "", 1024, 16 * mib, player, discipline});
    all.push_back({"discipline", sum, "recursive_doubling", "flat", "", 4096, mib, player, discipline});
    all.push_back({"discipline", sum, "double_binary_tree", "flat", "", 4096, mib, player, discipline});
    all.push_back({"discipline", sum, "hierarchical", "dgx_h100", "32x8", 0, 16 * mib, player, discipline});
    all.push_back(
        {"discipline", collective::all_to_all, "direct_full_mesh", "fat_tree", "", 512, 64 << 10, player, discipline});
  }
  return all;
}

/// With what a preset has to be asked for so many ranks, or more where it has no choice.
task on_preset(std::string_view preset, int ranks) {
  task t{"every", collective::all_reduce, "", std::string{preset}, "", 0, mib, player};
  const std::string servers = std::to_string(std::max(ranks / 8, 2)) + "x8";
  if (preset == "flat" || preset == "fat_tree") t.ranks = ranks;
  else if (preset == "machine" || preset == "dgx_h100" || preset == "ascend_a2") t.layout = servers;
  return t;  // the others have a size of their own
}

std::vector<task> every_task(int ranks, std::int64_t most_steps) {
  std::vector<task> all;
  for (const preset& p : all_presets()) {
    task t = on_preset(p.name, ranks);
    const hardware on = machine_of(t);
    for (const choreography* c : all_choreographies())
      for (const collective what : c->collectives)
        for (const bool uniform : {true, false}) {
          t.what = what, t.choreography = std::string{c->name}, t.uniform = uniform;
          if (!uniform && what != collective::all_to_all) continue;
          if (!uniform) t.bytes = 64 << 10;
          else t.bytes = what == collective::all_to_all ? 16 << 10 : mib;
          const setup at = setup_of(t, on);
          if (!refusal(*c, at).empty() || tally_of(*c, at).steps() > most_steps) continue;
          all.push_back(t);
        }
  }
  return all;
}

constexpr const char* usage =
    "usage: study [--quick] [--only GROUP,…] [--ranks N] [--most-steps N] [--discipline fifo|fair|max_min]\n"
    "             [--rounds N] [--match TEXT] [--json FILE]\n"
    "GROUP: ring, tree, doubling, hierarchical, all_to_all_v, discipline; only when they are named: million, and "
    "every\n"
    "       (each choreography for each collective that it offers, on --ranks ranks of each preset, as far as a score\n"
    "       has no more than --most-steps, 4200000)\n"
    "TEXT:  only rows of whose \"collective choreography machine ranks-or-layout\" it is a part\n";

bool wanted(const std::string& groups, const char* group, bool when_none) {
  if (groups.empty()) return when_none;
  return ("," + groups + ",").find("," + std::string{group} + ",") != std::string::npos;
}

}  // namespace

int main(int argc, char** argv) {
  troupe::put_heap_on_large_pages(std::size_t{1} << 30);
  bool quick = false;
  std::string file, only, match;
  const char* discipline = nullptr;
  int rounds = 1, ranks = 256;
  std::int64_t most_steps = 4'200'000;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0) return std::fputs(usage, stdout), 0;
    if (std::strcmp(argv[i], "--quick") == 0) quick = true;
    else if (std::strcmp(argv[i], "--discipline") == 0 && i + 1 < argc) discipline = argv[++i];
    else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
    else if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds = std::atoi(argv[++i]);
    else if (std::strcmp(argv[i], "--ranks") == 0 && i + 1 < argc) ranks = std::atoi(argv[++i]);
    else if (std::strcmp(argv[i], "--most-steps") == 0 && i + 1 < argc) most_steps = std::atoll(argv[++i]);
    else if (std::strcmp(argv[i], "--match") == 0 && i + 1 < argc) match = argv[++i];
    else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) file = argv[++i];
    else return std::fprintf(stderr, "study: unknown argument %s\n%s", argv[i], usage), 2;
  }
  std::printf("%-14s %-21s %-11s %7s %-7s %6s %9s %9s %9s %11s %9s %9s %9s %13s %8s\n", "collective", "choreography",
              "machine", "ranks", "links", "by", "steps", "events", "write(s)", "set-up(us/r)", "first(s)", "run(s)",
              "Msteps/s", "virtual(us)", "peak(MB)");
  nlohmann::json rows = nlohmann::json::array();
  std::vector<task> tasks = all_tasks();
  if (wanted(only, "every", false))
    for (task& t : every_task(ranks, most_steps)) tasks.push_back(std::move(t));
  for (task& t : tasks) {
    if (!wanted(only, t.group, std::strcmp(t.group, "million") != 0 && std::strcmp(t.group, "every") != 0)) continue;
    if (quick && t.slow) continue;
    if (discipline != nullptr) t.discipline = discipline;
    const std::string what = std::string{name(t.what)} + (t.what == collective::all_to_all && !t.uniform ? "_v" : "");
    const std::string size = t.ranks > 0 ? std::to_string(t.ranks) : t.layout;
    if ((what + " " + t.choreography + " " + t.preset + " " + size).find(match) == std::string::npos) continue;
    const row r = fastest_of(t, rounds);
    if (r.ranks == 0) continue;
    const char* const by = t.by == states ? "states" : "player";
    const double rate = r.steps == 0 ? 0 : static_cast<double>(r.steps) / r.run_seconds;
    const double set_up = r.ranks == 0 ? 0 : r.set_up_seconds * 1e6 / r.ranks;
    std::printf("%-14s %-21s %-11s %7d %-7s %6s %9llu %9llu %9.2f %11.2f %9.4f %9.4f %9.2f %13.1f %8.0f\n",
                what.c_str(), t.choreography.c_str(), t.preset.c_str(), r.ranks, t.discipline.c_str(), by,
                static_cast<unsigned long long>(r.steps), static_cast<unsigned long long>(r.events), r.write_seconds,
                set_up, r.first_seconds, r.run_seconds, rate / 1e6, r.virtual_us, r.megabytes);
    std::fflush(stdout);
    rows.push_back({{"collective", what},
                    {"choreography", t.choreography},
                    {"machine", t.preset},
                    {"ranks", r.ranks},
                    {"by", by},
                    {"discipline", t.discipline},
                    {"steps", r.steps},
                    {"messages", r.messages},
                    {"events", r.events},
                    {"write_s", r.write_seconds},
                    {"set_up_us_per_rank", set_up},
                    {"first_s", r.first_seconds},
                    {"run_s", r.run_seconds},
                    {"steps_per_s", rate},
                    {"virtual_us", r.virtual_us},
                    {"end_ps", r.end_ps},
                    {"waited_ps", r.waited_ps},
                    {"trace", r.trace},
                    {"peak_mb", r.megabytes}});
  }
  if (!file.empty()) std::ofstream{file} << rows.dump(1) << '\n';
}
