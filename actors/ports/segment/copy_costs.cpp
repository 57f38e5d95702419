// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/segment/copy_costs.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include "actors/waiting/napping.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

constexpr int rounds = 16;
/// Other work on these cores must not hold up the join.
constexpr std::chrono::milliseconds longest_timing{5};
/// Somebody else's moment on one of the cores makes all copies of a series slow, or those of one kind.
constexpr int most_series = 3;
constexpr std::chrono::microseconds between_series{300};

double nanoseconds_of(auto&& work) {
  const auto begun = clock::now();
  work();
  return std::chrono::duration<double, std::nano>(clock::now() - begun).count();
}

double median_of(std::vector<double>& of) {
  if (of.empty()) return copy_times::unknown;
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

bool copy_by_system(void* to, void* from, std::size_t bytes) {
  const iovec here{to, bytes}, there{from, bytes};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

/// The calling thread is done with soon: it goes to one of these cpus that is not `taken`. If the system does not let it, it stays.
void leave_cpu(int taken, std::span<const int> cpus) {
  cpu_set_t others;
  CPU_ZERO(&others);
  for (const int cpu : cpus)
    if (cpu != taken && cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(cpu), &others);
  if (CPU_COUNT(&others) > 0) static_cast<void>(::sched_setaffinity(0, sizeof others, &others));
}

/// Staging buffers lie at the beginning of a line. Only there does the string instruction of some processors take over lines of another core unread
/// (memory/kernels/kernels.cpp, longest_string_copy).
struct alignas(64) line {
  std::byte bytes[64];
};

/// The owner writes what the taker reads, in turn: to a staging buffer, and in its own memory for the system to copy.
class exchange {
public:
  explicit exchange(clock::time_point until) : until_(until) {
    // Nothing is allocated while both threads are at work.
    for (auto* each : {&all_.to_staging, &all_.past_caches, &all_.from_staging, &all_.by_system, &all_.call})
      each->reserve(rounds);
  }
  void own() {
    for (int i = 0; i < rounds && wait_for(2 * i); ++i) {
      std::memset(own_.data(), i, size);  // as data is that has just been computed
      all_.past_caches.push_back(
          nanoseconds_of([&] { troupe::copy(past_.data(), own_.data(), size, store_hint::streamed); }));
      all_.to_staging.push_back(nanoseconds_of([&] { std::memcpy(staging_.data(), own_.data(), size); }));
      turn_.store(2 * i + 1, std::memory_order_release);
    }
  }
  void take() {
    for (int i = 0; i < rounds && !refused_ && wait_for(2 * i + 1); ++i) {
      all_.from_staging.push_back(nanoseconds_of([&] { std::memcpy(taken_.data(), staging_.data(), size); }));
      std::memcpy(taken_.data(), past_.data(), size);
      const double all = nanoseconds_of([&] { refused_ = !copy_by_system(taken_.data(), own_.data(), size); });
      if (refused_) break;
      all_.by_system.push_back(all);
      all_.call.push_back(nanoseconds_of([&] { copy_by_system(taken_.data(), own_.data(), 64); }));
      turn_.store(2 * i + 2, std::memory_order_release);
    }
    over_.store(true, std::memory_order_release);
  }
  copy_times medians() {
    return {median_of(all_.to_staging), median_of(all_.from_staging), median_of(all_.by_system), median_of(all_.call),
            median_of(all_.past_caches)};
  }

private:
  /// False: there is no more time, or the other one has ended.
  bool wait_for(int which) {
    constexpr int eager = 4096;
    for (int looks = 0; turn_.load(std::memory_order_acquire) != which; ++looks)
      if (looks >= eager) {
        if (over_.load(std::memory_order_acquire) || clock::now() >= until_) return false;
        give_way();
      }
    return true;
  }

  static constexpr std::size_t size = copy_times::measured;

  std::vector<line> own_ = std::vector<line>(size / sizeof(line)), staging_ = own_, past_ = own_, taken_ = own_;
  std::atomic<int> turn_{0};
  std::atomic<bool> over_{false};
  bool refused_ = false;  ///< by the system; the taker's
  struct {
    std::vector<double> to_staging, past_caches, from_staging, by_system, call;
  } all_;
  const clock::time_point until_;
};

copy_times time_series(std::span<const int> cpus, clock::time_point until) {
  exchange between{until};
  std::thread taker([&between, cpus, taken = ::sched_getcpu()] {
    leave_cpu(taken, cpus);
    between.take();
  });
  between.own();
  taker.join();
  return between.medians();
}

}  // namespace

copy_costs costs_of(const copy_times& times, int cores) {
  copy_costs found;
  found.cores = std::max(1, cores);
  for (const double each : {times.to_staging, times.from_staging, times.by_system, times.call, times.past_caches})
    if (each == copy_times::unknown) return found;
  constexpr double kilobytes = copy_times::measured / 1024.0;
  found.call = times.call;
  found.staging = times.to_staging / kilobytes;
  found.past = times.past_caches / kilobytes;
  found.system = std::max(0.0, times.by_system - times.call - times.from_staging) / kilobytes;
  return found;
}

copy_times least_of(const copy_times& one, const copy_times& other) {
  return {std::min(one.to_staging, other.to_staging), std::min(one.from_staging, other.from_staging),
          std::min(one.by_system, other.by_system), std::min(one.call, other.call),
          std::min(one.past_caches, other.past_caches)};
}

bool agree(const copy_times& one, const copy_times& other) {
  const auto near = [](double a, double b) { return a < b * 1.25 && b < a * 1.25; };
  return near(one.to_staging, other.to_staging) && near(one.from_staging, other.from_staging) &&
         near(one.by_system, other.by_system);
}

copy_times time_copies(std::span<const int> cpus) {
  copy_times least;
  try {
    const auto until = clock::now() + longest_timing;
    for (int series = 0; series < most_series && clock::now() + between_series < until; ++series) {
      if (series > 0) nap(between_series);
      const copy_times again = time_series(cpus, until);
      const bool enough = agree(least, again);
      least = least_of(least, again);
      if (enough) break;
    }
  } catch (const std::exception&) {  // no memory, or no thread
  }
  return least;
}

}  // namespace troupe
