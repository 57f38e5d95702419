// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/tune_primitives.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include <sys/uio.h>
#include <unistd.h>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#endif

#include "topology/machine/discovery.hpp"

namespace troupe::primitives {

namespace {

using clock = std::chrono::steady_clock;

double ns_since(clock::time_point start) {
  return std::chrono::duration<double, std::nano>(clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// To the index-th core that this process may use. Without success the system places the thread.
void pin(std::size_t index) {
#if defined(__linux__)
  const auto& cpus = discover().allowed_cpus;
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpus[index % cpus.size()]), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#else
  static_cast<void>(index);
#endif
}

/// Two threads play `turn(player, count)` in batches for about the budget; ns a count.
double duel(bool one_core, int batch, double budget_ms, const std::function<void(int, int)>& turn) {
  std::vector<double> times;
  std::atomic<bool> over{false};
  std::barrier meet{2};
  const auto play = [&](int player) {
    pin(one_core ? 0 : static_cast<std::size_t>(player));
    const auto begun = clock::now();
    while (true) {
      meet.arrive_and_wait();
      if (over.load()) return;
      const auto start = clock::now();
      turn(player, batch);
      const double each = ns_since(start) / batch;
      if (player != 0) continue;
      times.push_back(each);
      if (times.size() >= 7 && ns_since(begun) > budget_ms * 1e6) over.store(true);
    }
  };
  std::thread other{play, 1};
  std::thread first;
  try {
    first = std::thread{play, 0};
  } catch (...) {
    over.store(true);
    meet.arrive_and_drop();
    other.join();
    throw;
  }
  first.join();
  other.join();
  // The first tenth: what an undisturbed machine gives.
  std::sort(times.begin(), times.end());
  return times[times.size() / 10];
}

struct alignas(128) flag {
  std::atomic<std::uint64_t> value{0};
};

}  // namespace

double flag_exchange_ns(double budget_ms) {
  flag flags[2];
  const bool shared = discover().usable_cpus() < 2;
  return duel(shared, shared ? 20 : 2000, budget_ms, [&](int me, int count) {
    std::uint64_t at = flags[me].value.load(std::memory_order_relaxed);
    for (int i = 0; i < count; ++i) {
      flags[me].value.store(++at, std::memory_order_release);
      while (flags[1 - me].value.load(std::memory_order_acquire) < at)
        if (shared) std::this_thread::yield();
    }
  });
}

double switch_ns(double budget_ms) {
  flag flags[2];
  const double exchange = duel(true, 200, budget_ms, [&](int me, int count) {
    std::uint64_t at = flags[me].value.load(std::memory_order_relaxed);
    for (int i = 0; i < count; ++i) {
      flags[me].value.store(++at, std::memory_order_release);
      while (flags[1 - me].value.load(std::memory_order_acquire) < at) std::this_thread::yield();
    }
  });
  return exchange / 2;
}

double wake_ns(double budget_ms) {
  std::mutex mutex;
  std::condition_variable changed;
  int whose = 0;
  const double round = duel(false, 50, budget_ms, [&](int me, int count) {
    for (int i = 0; i < count; ++i) {
      std::unique_lock lock{mutex};
      changed.wait(lock, [&] { return whose == me; });
      whose = 1 - me;
      changed.notify_one();
    }
  });
  return round / 2;
}

double staging_ns(double budget_ms) {
  constexpr std::size_t bytes = 4096;
  const bool shared = discover().usable_cpus() < 2;
  // `between` false: each copies to its own stage and back, and only flags go to and fro.
  const auto exchange = [&](bool between) {
    struct end {
      flag come;
      alignas(4096) std::byte staging[bytes] = {}, mine[bytes] = {};
    };
    const auto ends = std::make_unique<std::array<end, 2>>();
    return duel(shared, shared ? 20 : 1000, budget_ms / 2, [&](int me, int count) {
      end &own = (*ends)[static_cast<std::size_t>(me)], &other = (*ends)[static_cast<std::size_t>(1 - me)];
      std::uint64_t at = own.come.value.load(std::memory_order_relaxed);
      // The first of a round sends, then the other: only one of them is at work at a time.
      for (int i = 0; i < count; ++i) {
        const auto send = [&] {
          std::memcpy(own.staging, own.mine, bytes);
          own.come.value.store(at + 1, std::memory_order_release);
        };
        if (me == 0) send();
        while (other.come.value.load(std::memory_order_acquire) <= at)
          if (shared) std::this_thread::yield();
        std::memcpy(own.mine, between ? other.staging : own.staging, bytes);
        if (me == 1) send();
        ++at;
      }
    });
  };
  return std::max(1.0, (exchange(true) - exchange(false)) / 2);  // a tuning file has no constant of 0
}

double peer_copy_ns(std::size_t bytes, double budget_ms) {
  std::vector<std::byte> from(bytes), to(bytes);
  iovec here{to.data(), bytes}, there{from.data(), bytes};
  const pid_t me = ::getpid();  // which the system does as for any other
  std::vector<double> times;
  using clock = std::chrono::steady_clock;
  for (const auto end = clock::now() + std::chrono::duration<double, std::milli>(budget_ms); clock::now() < end;) {
    constexpr int batch = 32;
    const auto begin = clock::now();
    for (int i = 0; i < batch; ++i)
      if (::process_vm_readv(me, &here, 1, &there, 1, 0) != static_cast<ssize_t>(bytes)) return 0;
    times.push_back(std::chrono::duration<double, std::nano>(clock::now() - begin).count() / batch);
  }
  std::sort(times.begin(), times.end());
  return times.empty() ? 0 : times[times.size() / 10];
}

// -- memory -----------------------------------------------------------------------------------------------------------

namespace {

/// Regions of one mapping, each a line further into its page than the one before, so that they do not compete for the same sets.
class regions {
public:
  regions(std::size_t each, int count)
      : pitch_((each + 4095) / 4096 * 4096 + 4096 + 64), bytes_(pitch_ * static_cast<std::size_t>(count)) {
    base_ = static_cast<std::byte*>(::operator new (bytes_, std::align_val_t{huge_page}));
#if defined(__linux__)
    madvise(base_, bytes_, MADV_HUGEPAGE);
#endif
    std::fill(base_, base_ + bytes_, std::byte{0});  // ordinary numbers of every type
  }
  ~regions() { ::operator delete (base_, std::align_val_t{huge_page}); }
  regions(const regions&) = delete;
  regions& operator=(const regions&) = delete;
  std::byte* at(int index) const { return base_ + pitch_ * static_cast<std::size_t>(index); }

private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;
  std::size_t pitch_, bytes_;
  std::byte* base_ = nullptr;
};

void perform(const pass& what, const regions& memory, std::size_t each) {
  if (what.inputs == 1 && what.outputs == 1) return troupe::copy(memory.at(1), memory.at(0), each, what.hint);
  const void* in[8];
  void* out[8];
  for (int i = 0; i < what.inputs; ++i) in[i] = memory.at(i);
  for (int i = 0; i < what.outputs; ++i) out[i] = memory.at(what.inputs + i);
  reduce_many(what.type, sum, {in, static_cast<std::size_t>(what.inputs)},
              {out, static_cast<std::size_t>(what.outputs)}, each / size_of(what.type), what.hint);
}

}  // namespace

double rate(const pass& what, double bytes, int threads, double budget_ms) {
  const int buffers = what.inputs + what.outputs;
  const auto each =
      std::max<std::size_t>(64, static_cast<std::size_t>(bytes) / static_cast<std::size_t>(buffers) / 64 * 64);
  std::barrier meet{threads};
  std::vector<double> rates(static_cast<std::size_t>(threads));
  const auto work = [&](int me) {
    pin(static_cast<std::size_t>(me));
    const regions memory{each, buffers};
    perform(what, memory, each);
    auto start = clock::now();
    perform(what, memory, each);
    const auto calls = std::max(1, static_cast<int>(budget_ms * 1e6 / 5 / std::max(1.0, ns_since(start))));
    std::vector<double> times;
    for (int batch = 0; batch < 5; ++batch) {
      meet.arrive_and_wait();  // all at work at once
      start = clock::now();
      for (int i = 0; i < calls; ++i) perform(what, memory, each);
      times.push_back(ns_since(start) / calls);
    }
    rates[static_cast<std::size_t>(me)] = static_cast<double>(each) / median(std::move(times));
  };
  std::vector<std::thread> others;
  std::exception_ptr why;
  try {
    for (int t = 0; t < threads; ++t) others.emplace_back(work, t);
  } catch (...) {
    why = std::current_exception();
    for (std::size_t t = others.size(); t < rates.size(); ++t) meet.arrive_and_drop();  // nobody waits for them
  }
  for (std::thread& t : others) t.join();
  if (why) std::rethrow_exception(why);
  return median(std::move(rates));
}

}  // namespace troupe::primitives
