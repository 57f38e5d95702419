// SPDX-License-Identifier: Apache-2.0
// What a small operation between rank actors costs, without peers and in seconds: for work on the actors and on who waits how.
//   mailbox_latency [--ranks 2,4,8] [--bytes 8] [--seconds 0.3] [--workers N] [--choreography C] [--protocol P] [--only WHAT,…] [--count]
// WHAT: all_reduce (a thread per rank), group (one thread drives all ranks), ping_pong (half a round trip), send_recv (round a ring).
// Default: all of them; all_reduce by mailbox, that is protocol simple and choreography recursive_doubling; "auto" lets the planner choose.
// µs per operation as rank 0 sees it: least, median, 99th percentile, mean. "switches": task switches of the process per operation, by choice
// (somebody slept) and forced. --count adds calls of malloc per operation; counting slows what it counts, so take times without it.
// Row 21 of the target table is the comparison with peers: ./dev bench --rows 21.

#include "bench/harness/team.hpp"
#include "engine/api/troupe.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// -- calls of malloc ----------------------------------------------------------------------------------------------------

namespace {
std::atomic<bool> counting{false};
std::atomic<std::size_t> allocations{0};
}  // namespace

// Takes the place of libc's in the whole process, so CAF's allocations are counted as well as those by operator new. Not in a
// sanitizer's build, which has a malloc of its own, and not where libc is not glibc: there --count shows 0.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" void* __libc_malloc(std::size_t);
extern "C" void* malloc(std::size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
#endif

namespace {

using clock_type = std::chrono::steady_clock;
using troupe::communicator;

struct settings {
  std::vector<int> ranks{2, 4, 8};
  std::size_t bytes = 8;
  double seconds = 0.3;
  int workers = -1;
  std::string choreography = "recursive_doubling", protocol = "simple";
  std::vector<std::string> only{"all_reduce", "group", "ping_pong", "send_recv"};
  bool count = false;
  troupe::call_options how;  ///< of all_reduce
};

struct usage {
  double slept = 0, forced = 0;
  std::size_t allocated = allocations.load();
  usage() {
    rusage now{};
    getrusage(RUSAGE_SELF, &now);
    slept = static_cast<double>(now.ru_nvcsw), forced = static_cast<double>(now.ru_nivcsw);
  }
};

void print(const char* what, int ranks, const settings& s, std::vector<double> us, const usage& before,
           const usage& after) {
  std::sort(us.begin(), us.end());
  const auto calls = static_cast<double>(us.size());
  double total = 0;
  for (const double each : us) total += each;
  char counted[32] = "–";
  if (s.count)
    std::snprintf(counted, sizeof counted, "%.1f", static_cast<double>(after.allocated - before.allocated) / calls);
  std::printf("%-11s %5d %8zu %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %8s\n", what, ranks, s.bytes, us.front(),
              us[us.size() / 2], us[us.size() * 99 / 100], total / calls, (after.slept - before.slept) / calls,
              (after.forced - before.forced) / calls, counted);
  std::fflush(stdout);
}

/// Calls for about `seconds`, back to back, the same number at every rank; rank 0 notes when each was done.
template <class Call>
void measure(const char* what, int rank, int ranks, int per_call, const settings& s, bench::team& all, Call call) {
  std::size_t calls = 16;
  for (;; calls *= 2) {
    const auto begin = clock_type::now();
    for (std::size_t i = 0; i < calls; ++i) call();
    const double took = all.largest(rank, std::chrono::duration<double>(clock_type::now() - begin).count());
    if (took < s.seconds / 8) continue;
    calls = std::max<std::size_t>(100, static_cast<std::size_t>(static_cast<double>(calls) * s.seconds / took));
    break;
  }
  std::vector<double> us(rank == 0 ? calls : 0);
  all.largest(rank, 0);
  const usage before;
  counting = s.count;
  auto last = clock_type::now();
  for (std::size_t i = 0; i < calls; ++i) {
    call();
    if (rank != 0) continue;
    const auto now = clock_type::now();
    us[i] = std::chrono::duration<double, std::micro>(now - last).count() / per_call;
    last = now;
  }
  all.largest(rank, 0);
  counting = false;
  if (rank == 0) print(what, ranks, s, us, before, usage{});
}

void with_threads(std::string_view what, int ranks, const settings& s) {
  troupe::engine_options options;
  options.workers = s.workers;
  troupe::engine engine(options);
  bench::team all(ranks);
  engine.run(ranks, [&](communicator& c) {
    const std::size_t count = std::max<std::size_t>(1, s.bytes / sizeof(float));
    std::vector<float> in(count, 1), out(count);
    const int me = c.rank(), n = c.size(), next = (me + 1) % n, previous = (me + n - 1) % n;
    constexpr auto f32 = troupe::datatype::f32;
    const std::span<const float> from(in);
    const std::span<float> to(out);
    if (what == "all_reduce")
      measure("all_reduce", me, n, 1, s, all,
              [&] { c.run(troupe::calls::all_reduce(in.data(), out.data(), count, f32, troupe::sum, s.how)); });
    if (what == "send_recv") measure("send_recv", me, n, 1, s, all, [&] { c.send_recv(from, next, to, previous); });
    if (what == "ping_pong")
      measure("ping_pong", me, n, 2, s, all, [&] {
        if (me == 0) c.send(from, next);
        c.recv(to, previous);
        if (me == 1) c.send(from, next);
      });
  });
}

void with_one_thread(int ranks, const settings& s) {
  troupe::engine_options options;
  options.workers = s.workers;
  troupe::engine engine(options);
  auto comms = engine.communicators(ranks);
  const std::size_t count = std::max<std::size_t>(1, s.bytes / sizeof(float));
  std::vector<std::vector<float>> in(comms.size(), std::vector<float>(count, 1)), out = in;
  bench::team alone(1);
  measure("group", 0, ranks, 1, s, alone, [&] {
    troupe::group together;
    for (std::size_t r = 0; r < comms.size(); ++r)
      comms[r].join(together, troupe::calls::all_reduce(in[r].data(), out[r].data(), count, troupe::datatype::f32,
                                                        troupe::sum, s.how));
    together.wait();
  });
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

/// Throws std::runtime_error for what it does not know.
settings parse(int argc, char** argv) {
  settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    if (key == "--count") {
      s.count = true;
      continue;
    }
    if (i + 1 == argc) throw std::runtime_error("unknown option, or no value: " + key);
    const std::string value = argv[++i];
    if (key == "--ranks") {
      s.ranks.clear();
      for (const auto& part : parts_of(value)) s.ranks.push_back(std::atoi(part.c_str()));
    } else if (key == "--bytes") s.bytes = std::strtoull(value.c_str(), nullptr, 10);
    else if (key == "--seconds") s.seconds = std::atof(value.c_str());
    else if (key == "--workers") s.workers = std::atoi(value.c_str());
    else if (key == "--choreography") s.choreography = value;
    else if (key == "--protocol") s.protocol = value;
    else if (key == "--only") s.only = parts_of(value);
    else throw std::runtime_error("unknown option " + key);
  }
  for (const int n : s.ranks)
    if (n < 1) throw std::runtime_error("--ranks needs numbers above 0");
  if (s.bytes == 0 || !(s.seconds > 0)) throw std::runtime_error("--bytes and --seconds need numbers above 0");
  for (const auto& what : s.only)
    if (what != "all_reduce" && what != "group" && what != "ping_pong" && what != "send_recv")
      throw std::runtime_error("--only knows all_reduce, group, ping_pong, send_recv; not " + what);
  if (s.choreography != "auto") s.how.choreography = s.choreography;
  if (s.protocol != "auto") {
    const auto parsed = troupe::parse_message_protocol(s.protocol);
    if (!parsed) throw std::runtime_error("no protocol is called " + s.protocol);
    s.how.protocol = *parsed;
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::puts(
        "usage: mailbox_latency [--ranks 2,4,8] [--bytes 8] [--seconds 0.3] [--workers N] [--choreography C|auto]\n"
        "                       [--protocol P|auto] [--only all_reduce,group,ping_pong,send_recv] [--count]\n"
        "us per operation as rank 0 sees it, task switches and (--count) calls of malloc per operation");
    return 0;
  }
  const settings s = parse(argc, argv);
  std::printf("%-11s %5s %8s %9s %9s %9s %9s %9s %9s %8s\n", "# what", "ranks", "bytes", "least us", "median", "99%",
              "mean", "slept/op", "forced/op", "mallocs");
  for (const auto& what : s.only)
    for (const int ranks : s.ranks) {
      if (what == "group") with_one_thread(ranks, s);
      else if (what != "ping_pong" || ranks == 2) with_threads(what, ranks, s);
    }
} catch (const std::exception& e) {
  std::fprintf(stderr, "mailbox_latency: %s\n", e.what());
  return 1;
}
