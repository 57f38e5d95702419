// SPDX-License-Identifier: Apache-2.0
// What an exchange of a few bytes by an ll_session costs: 8 bytes from each rank to each, against the bare exchange of two flags between two threads, and
// against our own all_to_all, in the same run; and a sum of one f32, against all_reduce.
// Usage: ll_session [--ranks N] [--seconds S]. Ways alternate, round by round; a line for each: minimum, 10th percentile and median over batches, µs per
// exchange, and the ratio of the 10th percentiles to the flags'. Threads are pinned where each has a core. Asserts nothing.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>

#include "engine/api/troupe.hpp"

namespace {

using steady = std::chrono::steady_clock;
constexpr int batch = 1000, rounds = 5;

struct alignas(128) padded {
  std::atomic<std::uint64_t> value{0};
};
padded flags[2];

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

struct way {
  const char* what;
  std::function<void(int rank)> once;  ///< an exchange
  bool of_two = false;
  std::vector<double> us{};
};

/// All ranks come here; rank 0 takes the time of batches, and says after each whether there is another one.
void measure(troupe::communicator& comm, way& what, double seconds, std::atomic<int>& go) {
  const auto end = steady::now() + std::chrono::duration<double>(seconds);
  for (bool more = true; more;) {
    comm.barrier();
    const auto start = steady::now();
    for (int i = 0; i < batch; ++i) what.once(comm.rank());
    if (comm.rank() == 0) {
      what.us.push_back(std::chrono::duration<double, std::micro>(steady::now() - start).count() / batch);
      go.store(steady::now() < end);
    }
    comm.barrier();
    more = go.load() != 0;
  }
}

double tenth(std::vector<double>& us) {
  std::sort(us.begin(), us.end());
  return us[us.size() / 10];
}

}  // namespace

int main(int argc, char** argv) {
  int ranks = 2;
  double seconds = 0.2;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 < argc && std::strcmp(argv[i], "--ranks") == 0) ranks = std::atoi(argv[i + 1]);
    else if (i + 1 < argc && std::strcmp(argv[i], "--seconds") == 0) seconds = std::atof(argv[i + 1]);
    else return std::fprintf(stderr, "usage: ll_session [--ranks N] [--seconds S]\n"), 2;
  }
  if (ranks < 1 || ranks > 64) return std::fprintf(stderr, "ll_session: --ranks is 1 to 64\n"), 2;
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<way> ways;
  std::atomic<int> go{0};
  troupe::engine engine;
  engine.run(ranks, [&](troupe::communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    if (n <= std::thread::hardware_concurrency()) pin(comm.rank());
    troupe::ll_session session{comm, {.elements = n, .element_bytes = 8}};
    std::vector<std::uint64_t> mine(n, me), came(n);
    std::uint64_t at = 0;
    float sum = 0;
    // Each rank's own, on its own thread; those of rank 0 are kept.
    std::vector<way> own{
        {"bare flag exchange, 2 threads",
         [&](int rank) {
           flags[rank].value.store(++at, std::memory_order_release);
           while (flags[1 - rank].value.load(std::memory_order_acquire) < at) {}
         },
         true},
        {"ll_session, 8 B each to each",
         [&](int) {
           for (std::size_t i = 1; i < n; ++i) {
             const std::size_t to = me + i < n ? me + i : me + i - n;
             session.send(static_cast<troupe::rank_t>(to), me, mine[to]);
           }
           for (std::size_t i = 1; i < n; ++i) {
             const std::size_t from = me + i < n ? me + i : me + i - n;
             came[from] = session.recv<std::uint64_t>(from);
           }
           ++mine[0];
           session.end_epoch();
         }},
        {"all_to_all, 8 B each to each", [&](int) { comm.all_to_all(mine, came); }},
        {"ll_session, sum of an f32",
         [&](int) {
           session.bcast(me, static_cast<float>(me));
           sum = session.recv_reduce<float>(0, n, 1, std::identity{}, std::plus<>{});
           session.end_epoch();
         }},
        {"all_reduce, an f32", [&](int) { comm.all_reduce(static_cast<const float&>(sum), sum, troupe::sum); }},
    };
    for (int round = 0; round < rounds; ++round)
      for (way& each : own)
        if (!each.of_two || n == 2) measure(comm, each, seconds / rounds, go);
    if (me == 0) ways = std::move(own);
  });
  std::printf("%-32s %10s %10s %10s %8s\n", "# what", "min us", "10% us", "median us", "/flags");
  const double bare = n == 2 ? tenth(ways.front().us) : 0;
  for (way& each : ways) {
    if (each.us.empty()) continue;
    const double low = tenth(each.us);
    std::printf("%-32s %10.3f %10.3f %10.3f %8s\n", each.what, each.us.front(), low, each.us[each.us.size() / 2],
                bare > 0 ? std::to_string(low / bare).substr(0, 4).c_str() : "-");
  }
}
