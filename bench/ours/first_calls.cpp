// SPDX-License-Identifier: Apache-2.0
// Row 27 of the target table: what the first call of a kind costs, when nothing of it has been planned, verified or compiled yet.
//   first_calls RANKS COLLECTIVE [BYTES [group|threads]]     BYTES: S of nccl-tests, default 8192. One line of JSON.
// us: the first call, of the slowest rank; later_us: the median of those after it; memory that the first call left behind (heap, resident) and the
// most it had resident while it ran. A process measures one kind: the second kind of a process would find parts of the first.
// group: one thread drives all ranks; threads: a thread each, so that with more ranks than cores the time is that of their turns as well.

#include "bench/harness/buffers.hpp"
#include "bench/harness/measure.hpp"
#include "bench/harness/team.hpp"
#include "engine/api/troupe.hpp"

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

using bench::collective;
using clock_type = std::chrono::steady_clock;

constexpr int later_calls = 9;

/// A line of /proc/self/status in bytes: "VmRSS" now, "VmHWM" the most since start or since forget_peak().
double status_bytes(std::string_view key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return 1024 * std::atof(line.c_str() + key.size() + 1);
  return 0;
}
/// Whether the system could: else the peak is that of the whole process.
bool forget_peak() {
  std::ofstream file("/proc/self/clear_refs");
  return static_cast<bool>(file << 5 << std::flush);
}

struct work {
  collective what;
  bool barrier;
  bench::shape shape;
};

troupe::call_description describe(const work& w, bench::rank_buffers& mine, int rank) {
  namespace calls = troupe::calls;
  constexpr auto f32 = troupe::datatype::f32;
  if (w.barrier) return calls::barrier();
  const float* in = mine.input(0);
  float* out = mine.output(0);
  const std::size_t count = w.shape.count, me = static_cast<std::size_t>(rank);
  troupe::block_list blocks, received;
  if (bench::has_block_counts(w.what)) {
    mine.blocks().advance();
    mine.blocks().list(blocks.counts);
    if (w.what == collective::all_to_all_v) {
      mine.blocks().list_from(me, blocks.counts);
      mine.blocks().list_to(me, received.counts);
    }
  }
  switch (w.what) {
    case collective::all_gather: return calls::all_gather(in, out, count, f32);
    case collective::reduce_scatter: return calls::reduce_scatter(in, out, count, f32);
    case collective::all_to_all: return calls::all_to_all(in, out, count, f32);
    case collective::broadcast: return calls::broadcast(static_cast<void*>(out), count, f32, 0);
    case collective::reduce: return calls::reduce(in, out, count, f32, troupe::sum, 0);
    case collective::gather: return calls::gather(in, out, count, f32, 0);
    case collective::scatter: return calls::scatter(in, out, count, f32, 0);
    case collective::all_gather_v: return calls::all_gather_v(in, out, blocks, f32);
    case collective::reduce_scatter_v: return calls::reduce_scatter_v(in, out, blocks, f32);
    case collective::gather_v: return calls::gather_v(in, blocks.counts[me], out, blocks, f32, 0);
    case collective::scatter_v: return calls::scatter_v(in, blocks, out, blocks.counts[me], f32, 0);
    case collective::all_to_all_v: return calls::all_to_all_v(in, blocks, out, received, f32);
    default: return calls::all_reduce(in, out, count, f32);
  }
}

/// Any other kind: the engine's threads have started and every rank has worked.
troupe::call_description warm_up(const work& w, float& value) {
  if (w.barrier || w.what != collective::all_reduce)
    return troupe::calls::all_reduce(&value, &value, 1, troupe::datatype::f32);
  return troupe::calls::barrier();
}

struct memory {
  double heap = bench::heap_bytes(), resident = status_bytes("VmRSS:");
};

void print(const std::string& name, int ranks, std::string_view mode, const work& w, const std::vector<double>& us,
           const memory& before, const memory& after, double peak, double wrong) {
  std::vector<double> later(us.begin() + 1, us.end());
  std::sort(later.begin(), later.end());
  std::printf(
      "{\"collective\":\"%s\",\"ranks\":%d,\"mode\":\"%s\",\"bytes\":%zu,\"us\":%.6g,\"later_us\":%.6g,\"heap\":%.0f,"
      "\"resident\":%.0f,\"peak\":%.0f,\"wrong\":%.0f}\n",
      name.c_str(), ranks, std::string(mode).c_str(), w.barrier ? 0 : bench::size_of_shape(w.shape), us.front(),
      later[later.size() / 2], after.heap - before.heap, after.resident - before.resident,
      std::max(peak, after.resident) - before.resident, wrong);
}

template <class Once>
double timed(Once once) {
  const auto begin = clock_type::now();
  once();
  return std::chrono::duration<double, std::micro>(clock_type::now() - begin).count();
}

void run_group(const std::string& name, int ranks, const work& w, std::vector<bench::rank_buffers>& all) {
  troupe::engine engine;
  auto comms = engine.communicators(ranks);
  std::vector<float> values(static_cast<std::size_t>(ranks));
  const auto once = [&](auto describe_one) {
    troupe::group together;
    for (std::size_t r = 0; r < comms.size(); ++r) comms[r].join(together, describe_one(r));
    together.wait();
  };
  once([&](std::size_t r) { return warm_up(w, values[r]); });
  const auto call = [&] { once([&](std::size_t r) { return describe(w, all[r], static_cast<int>(r)); }); };
  forget_peak();
  const memory before;
  std::vector<double> us{timed(call)};
  const double peak = status_bytes("VmHWM:");
  const memory after;
  std::size_t wrong = 0;
  for (const auto& each : all) wrong += w.barrier ? 0 : each.wrong();
  for (int i = 0; i < later_calls; ++i) us.push_back(timed(call));
  print(name, ranks, "group", w, us, before, after, peak, static_cast<double>(wrong));
}

void run_threads(const std::string& name, int ranks, const work& w, std::vector<bench::rank_buffers>& all) {
  troupe::engine engine;
  bench::team team(ranks);
  engine.run(ranks, [&](troupe::communicator& c) {
    auto& mine = all[static_cast<std::size_t>(c.rank())];
    float value = 0;
    c.run(warm_up(w, value));
    const bool first = c.rank() == 0;
    if (first) forget_peak();
    const memory before;
    std::vector<double> us;
    double peak = 0;
    memory after;
    double wrong = 0;
    for (int i = 0; i <= later_calls; ++i) {
      team.largest(c.rank(), 0);
      us.push_back(team.largest(c.rank(), timed([&] { c.run(describe(w, mine, c.rank())); })));
      if (i > 0) continue;
      if (first) peak = status_bytes("VmHWM:"), after = {};
      wrong = team.largest(c.rank(), w.barrier ? 0 : static_cast<double>(mine.wrong()));
    }
    if (first) print(name, ranks, "threads", w, us, before, after, peak, wrong);
  });
}

}  // namespace

int main(int argc, char** argv) try {
  const int ranks = argc > 2 ? std::atoi(argv[1]) : 0;
  const std::string name = argc > 2 ? argv[2] : "";
  const std::size_t bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 8192;
  const std::string_view mode = argc > 4 ? argv[4] : "group";
  const auto parsed = bench::parse_collective(name);
  const bool known = name == "barrier" || (parsed && *parsed < collective::send_recv);
  if (ranks < 1 || !known || bytes < 1 || (mode != "group" && mode != "threads")) {
    std::fprintf(stderr, "usage: first_calls RANKS barrier|all_reduce|…|all_to_all_v [BYTES [group|threads]]\n");
    return 2;
  }
  work w{parsed.value_or(collective::all_reduce), name == "barrier", {}};
  w.shape = bench::shape_of(w.what, bytes, ranks);
  std::vector<bench::rank_buffers> all(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    all[static_cast<std::size_t>(r)].shape_for(w.what, w.shape, r, ranks, 1);
    all[static_cast<std::size_t>(r)].rewrite();
  }
  if (mode == "group") run_group(name, ranks, w, all);
  else run_threads(name, ranks, w, all);
} catch (const std::exception& e) {
  std::fprintf(stderr, "first_calls: %s\n", e.what());
  return 1;
}
