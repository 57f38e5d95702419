// SPDX-License-Identifier: Apache-2.0
// What planning adds to a repeated call: planner::plan_for of a call that has its plan already, ns a look-up. The target is < 50 ns.
// As communicators ask, with a rank's memo of its last call, and without: what a rank pays that calls different things in turn.
// Usage: planning [--seconds S]. Tenth percentile and median over batches; one thread, then as many as there are cores at once.
// Asserts nothing.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "engine/planning/planner.hpp"

namespace {

using namespace troupe;
using steady = std::chrono::steady_clock;

double seconds_each = 0.2;

call call_of(collective what, std::size_t count) {
  call c;
  c.what = what;
  c.type = datatype::f32;
  c.count = count;
  return c;
}

void report(const char* what, int ranks, int threads, std::vector<double> ns) {
  std::sort(ns.begin(), ns.end());
  std::printf("%-28s %6d %8d %10.1f %10.1f\n", what, ranks, threads, ns[ns.size() / 10], ns[ns.size() / 2]);
}

/// Every thread with a call of its own object, as ranks have.
void measure(planner& by, const char* what, const call& c, int ranks, int threads, bool memo) {
  const layout placement = layout::flat(ranks);
  std::vector<std::vector<double>> ns(static_cast<std::size_t>(threads));
  const auto look_up = [&](std::size_t me) {
    const call mine = c;
    plan_memo last;
    by.plan_for(mine, placement, last);
    const auto end = steady::now() + std::chrono::duration<double>(seconds_each);
    constexpr int batch = 1000;
    while (ns[me].size() < 10 || steady::now() < end) {
      const auto begin = steady::now();
      for (int i = 0; i < batch; ++i)
        if (!(memo ? by.plan_for(mine, placement, last) : by.plan_for(mine, placement))) std::abort();
      ns[me].push_back(std::chrono::duration<double, std::nano>(steady::now() - begin).count() / batch);
    }
  };
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < static_cast<std::size_t>(threads); ++t) all.emplace_back(look_up, t);
  for (auto& t : all) t.join();
  report((std::string{what} + (memo ? "" : ", no memo")).c_str(), ranks, threads, ns[0]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--seconds") == 0) seconds_each = std::atof(argv[2]);
  else if (argc != 1) return std::fprintf(stderr, "usage: planning [--seconds S]\n"), 2;
  planner by{engine_options{}};
  std::printf("%-28s %6s %8s %10s %10s\n", "# a call whose plan is there", "ranks", "threads", "10% ns", "median ns");
  const int cores = std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
  // A cache with something in it.
  for (std::size_t count = 1; count < 300; ++count)
    by.plan_for(call_of(collective::all_gather, count), layout::flat(2));
  for (const int threads : {1, cores})
    for (const bool memo : {true, false})
      for (const int ranks : {2, 256}) {
        measure(by, "all_reduce, 8 B", call_of(collective::all_reduce, 2), ranks, threads, memo);
        measure(by, "broadcast, 1 MiB", call_of(collective::broadcast, 1 << 18), ranks, threads, memo);
      }
}
