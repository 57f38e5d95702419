// SPDX-License-Identifier: Apache-2.0
// What a small all-reduce over slots costs, against the bare exchange of two flags between two threads in the same run.
// Usage: slot_lanes [--seconds S] [--json FILE]. One line per measurement: minimum, 10th percentile and median over batches, µs per
// operation, and the ratio of the 10th percentiles to the flag exchange's. f32 sum, out of place, input changed for every operation. Asserts nothing.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include "actors/ports/slots/slot_performer.hpp"
#include "actors/waiting/slot_waiting.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"

namespace {

using namespace troupe;
using steady = std::chrono::steady_clock;

double seconds_each = 0.3;
double flag_us = 0;

struct row {
  std::string what;
  std::size_t bytes;
  double least;
  double tenth;  ///< 10th percentile: what an undisturbed machine gives most of the time
  double median;
  std::size_t batches;
};
std::vector<row> rows;

void report(const std::string& what, std::size_t bytes, std::vector<double>& us) {
  std::sort(us.begin(), us.end());
  rows.push_back({what, bytes, us.front(), us[us.size() / 10], us[us.size() / 2], us.size()});
  const row& r = rows.back();
  std::printf("%-34s %8zu %10.3f %10.3f %10.3f %8.2f %8zu\n", what.c_str(), bytes, r.least, r.tenth, r.median,
              flag_us > 0 ? r.tenth / flag_us : 1.0, r.batches);
  std::fflush(stdout);
}

void pin(int core) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core) % std::max(1U, std::thread::hardware_concurrency()), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#else
  (void)core;
#endif
}

/// Runs `body(thread, batch operations)` on `threads` threads in batches of equal length; thread 0 takes the time. The other threads
/// learn the number of batches only as they go, by a flag that is read once a batch.
template <class Body>
std::vector<double> batches(int threads, bool pinned, int batch, Body body) {
  std::vector<double> us;
  std::atomic<long> allowed{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t)
    others.emplace_back([&, t] {
      if (pinned) pin(t);
      for (long mine = 0;; ++mine) {
        while (allowed.load(std::memory_order_acquire) <= mine) {
          if (over.load(std::memory_order_acquire) && allowed.load(std::memory_order_acquire) <= mine) return;
          if (threads > 2) std::this_thread::yield();
        }
        body(t, batch);
      }
    });
  const auto inner = [&] {
    if (pinned) pin(0);
    const auto end = steady::now() + std::chrono::duration<double>(seconds_each);
    for (int warm = 3; steady::now() < end || us.size() < 5; warm -= warm > 0) {
      allowed.fetch_add(1, std::memory_order_release);
      const auto start = steady::now();
      body(0, batch);
      const double taken = std::chrono::duration<double, std::micro>(steady::now() - start).count() / batch;
      if (warm == 0) us.push_back(taken);
    }
    over.store(true, std::memory_order_release);
  };
  std::thread first{inner};
  first.join();
  for (auto& t : others) t.join();
  return us;
}

struct alignas(128) padded {
  std::atomic<std::uint64_t> value{0};
};

void flags() {
  static padded flag[2];
  auto us = batches(2, true, 1000, [](int t, int count) {
    std::uint64_t at = flag[t].value.load(std::memory_order_relaxed);
    for (int i = 0; i < count; ++i) {
      flag[t].value.store(++at, std::memory_order_release);
      while (flag[1 - t].value.load(std::memory_order_acquire) < at) {}
    }
  });
  report("bare flag exchange, 2 threads", 8, us);
  flag_us = rows.back().tenth;
}

struct rank_state {
  rank_state(slot_board& board, rank_t r) : performs(board, r) {}
  slot_performer performs;
  std::vector<float> input, output;
  std::vector<std::byte> scratch;
  memory_map memory;
};

/// all_reduce of `bytes` among threads × ranks_each ranks.
void all_reduce(const std::string& what, int threads, int ranks_each, std::size_t bytes, slot_format format,
                std::string_view choreography, bool in_place = false) {
  const int ranks = threads * ranks_each;
  const std::size_t count = bytes / sizeof(float);
  const score s = lower_syncs(
      write_score(*find_choreography(choreography), flat_setup(collective::all_reduce, ranks, 0, in_place)));
  slot_board board{ranks};
  std::vector<slot_program> code;
  std::vector<std::unique_ptr<rank_state>> all;
  for (rank_t r = 0; r < ranks; ++r) {
    const program made = compile(s, r, {count, {}, {}, {}, sizeof(float)}, {});
    if (!why_no_slots(made, format, slot_channel::most_lines).empty()) return;
    code.push_back(compile_slots(made, format, slot_channel::most_lines));
    all.push_back(std::make_unique<rank_state>(board, r));
    auto& mine = *all.back();
    mine.input.assign(count, static_cast<float>(r));
    mine.output.assign(count, 0);
    mine.scratch.resize(code.back().scratch_bytes + 1);
    mine.memory.input = reinterpret_cast<std::byte*>(in_place ? mine.output.data() : mine.input.data());
    mine.memory.output = reinterpret_cast<std::byte*>(mine.output.data());
    mine.memory.scratch = mine.scratch.data();
  }
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const waiting_policy policy = waiting_for(threads, cores);
  slot_wait_options options;
  options.spin = policy.spin;
  options.yields = policy.yields;
  std::vector<std::uint64_t> epochs(static_cast<std::size_t>(threads), 0);
  const int batch = bytes > 4096 ? 50 : threads <= cores ? 1000 / ranks : 100;
  auto us = batches(threads, threads <= cores, batch, [&](int t, int operations) {
    board_performer* performers[64];
    for (int k = 0; k < ranks_each; ++k) performers[k] = &all[static_cast<std::size_t>(t * ranks_each + k)]->performs;
    std::uint64_t& epoch = epochs[static_cast<std::size_t>(t)];
    for (int i = 0; i < operations; ++i, ++epoch) {
      for (int k = 0; k < ranks_each; ++k) {
        const auto r = static_cast<std::size_t>(t * ranks_each + k);
        all[r]->input[0] = static_cast<float>(epoch & 0xff);
        all[r]->performs.start(code[r], all[r]->memory, datatype::f32, sum, epoch, 0x1234567890abcdefU + epoch);
      }
      if (wait_slots({performers, static_cast<std::size_t>(ranks_each)}, options).how !=
          slot_wait_result::ended::performed)
        std::abort();
    }
  });
  report(what, bytes, us);
}

void write_json(const char* path) {
  std::ofstream out(path);
  out << "{\"meta\": {\"cores\": " << std::thread::hardware_concurrency() << "}, \"rows\": [";
  for (std::size_t i = 0; i < rows.size(); ++i)
    out << (i ? "," : "") << "\n  {\"what\": \"" << rows[i].what << "\", \"bytes\": " << rows[i].bytes
        << ", \"min_us\": " << rows[i].least << ", \"tenth_us\": " << rows[i].tenth
        << ", \"median_us\": " << rows[i].median << ", \"batches\": " << rows[i].batches << "}";
  out << "\n]}\n";
}

}  // namespace

int main(int argc, char** argv) {
  const char* json = nullptr;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 < argc && std::strcmp(argv[i], "--seconds") == 0) seconds_each = std::atof(argv[i + 1]);
    else if (i + 1 < argc && std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    else return std::fprintf(stderr, "usage: slot_lanes [--seconds S] [--json FILE]\n"), 2;
  }
  std::printf("%-34s %8s %10s %10s %10s %8s %8s\n", "# what", "bytes", "min us", "10% us", "median us", "/flags",
              "batches");
  flags();
  for (const std::size_t bytes : {8U, 64U, 512U, 4096U, 32768U})
    for (const slot_format format : {slot_format::ll, slot_format::ll128})
      all_reduce(format == slot_format::ll ? "one_shot LL, 2 threads" : "one_shot LL128, 2 threads", 2, 1, bytes,
                 format, "one_shot");
  all_reduce("one_shot LL128, 2 threads, in place", 2, 1, 8, slot_format::ll128, "one_shot", true);
  for (const std::size_t bytes : {4096U, 32768U})
    all_reduce("halving LL128, 2 threads", 2, 1, bytes, slot_format::ll128, "halving_doubling");
  for (const slot_format format : {slot_format::ll, slot_format::ll128})
    all_reduce(format == slot_format::ll ? "one_shot LL, 1 thread 8 ranks" : "one_shot LL128, 1 thread 8 ranks", 1, 8,
               8, format, "one_shot");
  all_reduce("doubling LL128, 1 thread 8 ranks", 1, 8, 8, slot_format::ll128, "recursive_doubling");
  for (const int threads : {4, 8})
    for (const std::size_t bytes : {8U, 512U, 4096U}) {
      all_reduce("one_shot LL128, " + std::to_string(threads) + " threads", threads, 1, bytes, slot_format::ll128,
                 "one_shot");
      all_reduce("doubling LL128, " + std::to_string(threads) + " threads", threads, 1, bytes, slot_format::ll128,
                 "recursive_doubling");
    }
  flags();
  if (json != nullptr) write_json(json);
}
