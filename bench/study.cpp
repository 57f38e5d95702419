// SPDX-License-Identifier: Apache-2.0
// How fast the study mode is: chunk steps per second, and memory, by choreography, ranks and who performs them (the ranks' states, or the
// player). Usage: study [--quick] [--discipline fifo|fair|max_min] [--json FILE]
// Prints a row per run; asserts nothing. Rows run in processes of their own, so that each shows its own peak memory.

#include "actors/virtual/virtual_run.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace {

using namespace troupe;
using clock_type = std::chrono::steady_clock;

struct row {
  char choreography[32];
  int ranks;
  std::uint64_t steps, messages, events;
  double write_seconds, run_seconds, virtual_us, megabytes;
};

double seconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double>(clock_type::now() - begin).count();
}

row run_one(const char* choreography, int ranks, std::size_t bytes, performed_by by, const char* discipline) {
  row r{};
  std::snprintf(r.choreography, sizeof r.choreography, "%s", choreography);
  r.ranks = ranks;
  auto begin = clock_type::now();
  const score notes =
      lower_syncs(write_score(*find_choreography(choreography), flat_stage(collective::all_reduce, ranks)));
  hardware on = flat_hardware(ranks);
  on.set("link.discipline", discipline);
  r.write_seconds = seconds_since(begin);
  begin = clock_type::now();
  virtual_options options;
  options.protocol = *on.protocol("simple");
  options.by = by;
  const call_shape shape{bytes / 4, {}, {}, {}, 4};
  const virtual_outcome o = perform_virtually(notes, shape, {}, on, options);
  r.run_seconds = seconds_since(begin);
  r.steps = o.steps, r.messages = o.messages, r.events = o.events;
  r.virtual_us = static_cast<double>(o.end_ps) / 1e6;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  r.megabytes = static_cast<double>(usage.ru_maxrss) / 1024;
  return r;
}

/// In a child, so that the peak memory is this run's alone.
row run_apart(const char* choreography, int ranks, std::size_t bytes, performed_by by, const char* discipline) {
  int ends[2];
  row r{};
  if (pipe(ends) != 0) return r;
  const pid_t child = fork();
  if (child == 0) {
    r = run_one(choreography, ranks, bytes, by, discipline);
    const auto written = write(ends[1], &r, sizeof r);
    _exit(written == sizeof r ? 0 : 1);
  }
  close(ends[1]);
  if (read(ends[0], &r, sizeof r) != sizeof r) std::snprintf(r.choreography, sizeof r.choreography, "failed");
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return r;
}

}  // namespace

int main(int argc, char** argv) {
  bool quick = false;
  std::string file;
  const char* discipline = "fifo";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) quick = true;
    else if (std::strcmp(argv[i], "--discipline") == 0 && i + 1 < argc) discipline = argv[++i];
    else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) file = argv[++i];
  }
  struct task {
    const char* choreography;
    int ranks;
    std::size_t bytes;
    performed_by by;
  };
  constexpr auto states = performed_by::states, player = performed_by::player;
  constexpr std::size_t mib = 1 << 20;
  std::vector<task> tasks{{"ring", 256, mib, states},
                          {"ring", 256, mib, player},
                          {"ring", 512, mib, states},
                          {"ring", 512, mib, player},
                          {"ring", 1024, 16 * mib, player},
                          {"double_binary_tree", 1024, mib, states},
                          {"double_binary_tree", 1024, mib, player},
                          {"double_binary_tree", 4096, mib, states},
                          {"double_binary_tree", 4096, mib, player}};
  if (!quick) {
    tasks.push_back({"ring", 1024, 16 * mib, states});
    tasks.push_back({"ring", 2048, 16 * mib, player});
    tasks.push_back({"ring", 4096, 64 * mib, player});
    tasks.push_back({"recursive_doubling", 4096, mib, player});
    tasks.push_back({"double_binary_tree", 65536, mib, player});
  }
  std::printf("%-20s %8s %7s %10s %10s %10s %9s %9s %12s %14s %9s\n", "choreography", "ranks", "by", "steps",
              "messages", "events", "write(s)", "run(s)", "Msteps/s", "virtual(us)", "peak(MB)");
  nlohmann::json rows = nlohmann::json::array();
  for (const task& t : tasks) {
    const row r = run_apart(t.choreography, t.ranks, t.bytes, t.by, discipline);
    const char* const by = t.by == states ? "states" : "player";
    const double rate = static_cast<double>(r.steps) / r.run_seconds;
    std::printf("%-20s %8d %7s %10llu %10llu %10llu %9.2f %9.2f %12.2f %14.1f %9.0f\n", r.choreography, r.ranks, by,
                static_cast<unsigned long long>(r.steps), static_cast<unsigned long long>(r.messages),
                static_cast<unsigned long long>(r.events), r.write_seconds, r.run_seconds, rate / 1e6, r.virtual_us,
                r.megabytes);
    std::fflush(stdout);
    rows.push_back({{"choreography", r.choreography},
                    {"ranks", r.ranks},
                    {"by", by},
                    {"discipline", discipline},
                    {"steps", r.steps},
                    {"messages", r.messages},
                    {"events", r.events},
                    {"write_s", r.write_seconds},
                    {"run_s", r.run_seconds},
                    {"steps_per_s", rate},
                    {"virtual_us", r.virtual_us},
                    {"peak_mb", r.megabytes}});
  }
  if (!file.empty()) std::ofstream{file} << rows.dump(1) << '\n';
}
