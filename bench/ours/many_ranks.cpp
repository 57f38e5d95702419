// SPDX-License-Identifier: Apache-2.0
// Rows 7 and 8 of the target table: what many ranks cost one process. One line of JSON.
//   many_ranks run RANKS [group|threads]   communicators, then barrier, 1 KiB all_reduce, all_to_all of 64 KiB a rank: µs, memory
//   many_ranks idle RANKS SECONDS          processor time of an engine whose ranks have worked once and now do nothing
// group: one thread drives all ranks; threads: a thread each.

#include "engine/api/troupe.hpp"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;
using troupe::communicator;

double seconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double>(clock_type::now() - begin).count();
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

/// Resident bytes, after what was freed has gone back to the system; without pages of files, such as a library's code that is used for the first
/// time (and of memory that processes share, of which there is none here).
double resident() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  double total = 0, pages = 0, of_files = 0;
  file >> total >> pages >> of_files;
  return (pages - of_files) * 4096;
}

enum class work { barrier, all_reduce, all_to_all };
constexpr const char* names[] = {"barrier", "all_reduce", "all_to_all"};
constexpr std::size_t reduced = 1024 / sizeof(float);

/// Inputs and outputs of one rank.
struct buffers {
  buffers(int ranks, int rank)
      : block(std::max<std::size_t>(1, 65536 / sizeof(float) / static_cast<std::size_t>(ranks))),
        ranks_(ranks),
        in(block * static_cast<std::size_t>(ranks)),
        out(in.size()) {
    for (std::size_t j = 0; j < in.size(); ++j) in[j] = static_cast<float>(rank % 1000 + static_cast<int>(j % 1000));
    small_in.assign(reduced, static_cast<float>(rank));
    small_out.assign(reduced, -1);
  }
  void check(work what, int rank) const {
    bool right = true;
    const auto n = static_cast<std::size_t>(ranks_), me = static_cast<std::size_t>(rank);
    if (what == work::all_reduce)
      right = std::all_of(small_out.begin(), small_out.end(), [&](float x) {
        return x == static_cast<float>(ranks_) * static_cast<float>(ranks_ - 1) / 2;
      });
    if (what == work::all_to_all)
      for (std::size_t from = 0; from < n && right; ++from)
        right = out[from * block] == static_cast<float>(from % 1000 + me * block % 1000);
    if (!right)
      std::fprintf(stderr, "many_ranks: wrong result of %s at rank %d\n", names[static_cast<int>(what)], rank),
          std::_Exit(1);
  }
  std::size_t block;
  int ranks_;
  std::vector<float> in, out, small_in, small_out;
};

troupe::call_description describe(work what, buffers& b) {
  namespace calls = troupe::calls;
  if (what == work::barrier) return calls::barrier();
  if (what == work::all_reduce) return calls::all_reduce(b.small_in, b.small_out);
  return calls::all_to_all(b.in.data(), b.out.data(), b.block, troupe::datatype::f32);
}

/// Repeats `once` for about a second, three times at least; the median in µs. The first, which plans, is told apart.
struct timing {
  double first_us = 0, us = 0;
};
timing timed(const std::function<void()>& once) {
  timing t;
  auto begin = clock_type::now();
  once();
  t.first_us = seconds_since(begin) * 1e6;
  std::vector<double> each;
  const auto end = clock_type::now() + std::chrono::milliseconds(700);
  while (each.size() < 3 || (clock_type::now() < end && each.size() < 2000)) {
    begin = clock_type::now();
    once();
    each.push_back(seconds_since(begin) * 1e6);
  }
  std::sort(each.begin(), each.end());
  t.us = each[each.size() / 2];
  return t;
}

struct report {
  std::string text;
  void add(const char* key, double value) {
    char number[64];
    std::snprintf(number, sizeof number, "%s\"%s\":%.6g", text.empty() ? "" : ",", key, value);
    text += number;
  }
  void add(work what, const timing& t) {
    const std::string name = names[static_cast<int>(what)];
    add((name + "_us").c_str(), t.us);
    add((name + "_first_us").c_str(), t.first_us);
  }
};

void run_group(int ranks, report& to) {
  const double before = resident();
  troupe::engine engine;
  const auto begin = clock_type::now();
  auto comms = engine.communicators(ranks);
  to.add("create_us", seconds_since(begin) * 1e6);
  to.add("bytes_per_idle_rank", (resident() - before) / ranks);
  std::vector<buffers> all;
  for (int r = 0; r < ranks; ++r) all.emplace_back(ranks, r);
  const double with_buffers = resident();
  for (const work what : {work::barrier, work::all_reduce, work::all_to_all}) {
    to.add(what, timed([&] {
             troupe::group together;
             for (std::size_t r = 0; r < comms.size(); ++r) comms[r].join(together, describe(what, all[r]));
             together.wait();
           }));
    for (int r = 0; r < ranks; ++r) all[static_cast<std::size_t>(r)].check(what, r);
  }
  to.add("bytes_per_rank_after", (resident() - with_buffers) / ranks);
}

void run_threads(int ranks, report& to) {
  troupe::engine engine;
  engine.run(ranks, [&](communicator& c) {
    buffers mine{ranks, c.rank()};
    for (const work what : {work::barrier, work::all_reduce, work::all_to_all}) {
      c.barrier();
      // The same number of calls at every rank: each rank takes the time of its own, and rank 0's counts.
      const int calls = 10;
      auto begin = clock_type::now();
      c.run(describe(what, mine));
      const double first = seconds_since(begin) * 1e6;
      std::vector<double> each;
      for (int i = 0; i < calls; ++i) {
        begin = clock_type::now();
        c.run(describe(what, mine));
        each.push_back(seconds_since(begin) * 1e6);
      }
      std::sort(each.begin(), each.end());
      mine.check(what, c.rank());
      if (c.rank() == 0) to.add(what, {first, each[each.size() / 2]});
    }
  });
}

void idle(int ranks, double seconds, report& to) {
  troupe::engine engine;
  auto comms = engine.communicators(ranks);
  std::vector<buffers> all;
  for (int r = 0; r < ranks; ++r) all.emplace_back(ranks, r);
  for (const work what : {work::barrier, work::all_reduce, work::all_to_all}) {
    troupe::group together;
    for (std::size_t r = 0; r < comms.size(); ++r) comms[r].join(together, describe(what, all[r]));
    together.wait();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // whoever looked for more work has gone to sleep
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double used = cpu_seconds() - before;
  to.add("seconds", seconds);
  to.add("cpu_seconds", used);
  to.add("cpu_percent", 100 * used / seconds);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view mode = argc > 2 ? argv[1] : "";
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 0;
  report to;
  if (ranks < 1 || (mode != "run" && mode != "idle")) {
    std::fprintf(stderr, "usage: many_ranks run RANKS [group|threads]; many_ranks idle RANKS SECONDS\n");
    return 2;
  }
  to.add("ranks", ranks);
  if (mode == "idle") idle(ranks, argc > 3 ? std::atof(argv[3]) : 5, to);
  else if (argc > 3 && std::strcmp(argv[3], "threads") == 0) run_threads(ranks, to);
  else run_group(ranks, to);
  std::printf("{%s}\n", to.text.c_str());
} catch (const std::exception& e) {
  std::fprintf(stderr, "many_ranks: %s\n", e.what());
  return 1;
}
