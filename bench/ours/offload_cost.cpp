// SPDX-License-Identifier: Apache-2.0
// Row 35 of the target table: what an offloaded operation costs the threads that call it, in their own CPU time, whatever takes the cores beside. A line
// of JSON a point.
//   offload_cost RANKS SECONDS BYTES...      offload_cost 2 0.5 8 65536 1048576
// A thread a rank. RANKS `join`: a process a rank, with data in memory that all map:
//   troupe launch -n 2 --no-prefix offload_cost join 0.5 8
// RANKS@MS: so long a pause before each operation, as of callers that compute. The NIC's thread looks for a millisecond after it has worked, then naps until
// ten have passed, where there are more cores than ranks; else it sleeps at once.
// An operation is an all_reduce of f32 out of place. All ranks but rank 0 post it; then rank 0 does, which is so the last one and has to wake the NIC's
// thread; when the NIC has performed it, all wait for it in turn. post_us: of the others; post_last_us: of rank 0; wait_us: of all, for what is done.
// Medians, without what looking at the clock takes.

#include "bench/harness/nbc.hpp"
#include "engine/api/troupe.hpp"

#include <barrier>
#include <chrono>
#include <exception>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string_view>
#include <thread>

namespace {

using bench::nbc::seconds_of;

struct samples {
  std::vector<double> post, post_last, wait;
};

/// What `step` takes of the thread's time.
template <class Step>
double cpu_of(Step&& step) {
  const double from = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  step();
  return seconds_of(CLOCK_THREAD_CPUTIME_ID) - from;
}

template <class Barrier>
samples measure(troupe::communicator& comm, std::size_t bytes, double seconds, std::chrono::milliseconds pause,
                std::pmr::memory_resource* memory, Barrier&& barrier) {
  constexpr int batch = 50;  // so that all agree on how many there are
  const bool last = comm.rank() == 0;
  std::pmr::vector<float> in(bytes / sizeof(float), 1.F, memory), out(in.size(), 0.F, memory);
  samples mine;
  troupe::request under_way;
  const auto post = [&] { under_way = comm.all_reduce_async(in, out, troupe::sum); };
  const auto once = [&](bool counts) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    barrier();
    const double others = last ? 0 : cpu_of(post);
    barrier();
    const double own = last ? cpu_of(post) : 0;
    while (!under_way.done()) std::this_thread::sleep_for(std::chrono::microseconds{50});
    barrier();
    const double waited = cpu_of([&] { under_way.wait(); });
    if (!counts) return;
    (last ? mine.post_last : mine.post).push_back(last ? own : others);
    mine.wait.push_back(waited);
  };
  for (int i = 0; i < batch; ++i) once(false);
  // By rank 0's clock, which it tells all.
  const double from = seconds_of(CLOCK_MONOTONIC);
  for (int more = 1; more != 0;) {
    for (int i = 0; i < batch; ++i) once(true);
    more = seconds_of(CLOCK_MONOTONIC) - from < seconds ? 1 : 0;
    comm.broadcast(more, 0);
  }
  for (const float f : out)
    if (f != static_cast<float>(comm.size())) throw std::runtime_error("a wrong sum");
  return mine;
}

double microseconds(std::vector<double> all, double clock) {
  return all.empty() ? 0 : std::max(0.0, bench::nbc::median(std::move(all)) - clock) * 1e6;
}

void print(int ranks, std::size_t bytes, const samples& s, double clock) {
  std::printf(
      "{\"ranks\":%d,\"bytes\":%zu,\"operations\":%zu,\"post_us\":%.3g,\"post_last_us\":%.3g,\"wait_us\":%.3g}\n",
      ranks, bytes, s.post_last.size(), microseconds(s.post, clock), microseconds(s.post_last, clock),
      microseconds(s.wait, clock));
  std::fflush(stdout);
}

/// A process knows its own figures: rank 0's are of the last one to post, rank 1's of another one.
void measure_processes(troupe::engine& engine, const std::vector<std::size_t>& sizes, double seconds,
                       std::chrono::milliseconds pause) {
  troupe::communicator comm = engine.join();
  troupe::communicator others = comm.duplicate();  // who has posted waits there for who has not
  const auto held = engine.memory();
  for (const std::size_t bytes : sizes) {
    const samples mine = measure(comm, bytes, seconds, pause, held.get(), [&] { others.barrier(); });
    double post = comm.rank() == 1 ? bench::nbc::median(mine.post) : 0;
    comm.broadcast(post, 1);
    samples all = mine;
    all.post.assign(1, post);
    if (comm.rank() == 0) print(comm.size(), bytes, all, bench::nbc::cost_of_clock());
  }
}

void measure_threads(troupe::engine& engine, int ranks, const std::vector<std::size_t>& sizes, double seconds,
                     std::chrono::milliseconds pause) {
  for (const std::size_t bytes : sizes) {
    std::barrier<> all(ranks);
    std::mutex mutex;
    samples found;
    engine.run(ranks, [&](troupe::communicator& comm) {
      const samples mine =
          measure(comm, bytes, seconds, pause, std::pmr::new_delete_resource(), [&] { all.arrive_and_wait(); });
      const std::lock_guard lock(mutex);
      for (const auto part : {&samples::post, &samples::post_last, &samples::wait})
        (found.*part).insert((found.*part).end(), (mine.*part).begin(), (mine.*part).end());
    });
    print(ranks, bytes, found, bench::nbc::cost_of_clock());
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) throw std::invalid_argument("usage: offload_cost RANKS[@MS] SECONDS BYTES...");
  const std::string_view given = argv[1], where = given.substr(0, given.find('@'));
  const int ranks = std::atoi(argv[1]);
  const std::chrono::milliseconds pause{where.size() < given.size() ? std::atoi(argv[1] + where.size() + 1) : 0};
  const double seconds = std::atof(argv[2]);
  std::vector<std::size_t> sizes;
  for (int i = 3; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  if ((where != "join" && ranks < 2) || std::ranges::any_of(sizes, [](std::size_t b) { return b < sizeof(float); }))
    throw std::invalid_argument("there are 2 ranks or more, or `join`, and 4 bytes or more");
  troupe::engine_options options;
  options.offload = "always";
  troupe::engine engine{options};
  if (where == "join") measure_processes(engine, sizes, seconds, pause);
  else measure_threads(engine, ranks, sizes, seconds, pause);
} catch (const std::exception& e) {
  std::fprintf(stderr, "offload_cost: %s\n", e.what());
  return 1;
}
