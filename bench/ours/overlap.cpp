// SPDX-License-Identifier: Apache-2.0
// Row 10 of the target table: an asynchronous all_reduce while its caller computes. One line of JSON.
//   overlap [RANKS [BYTES [OFFLOAD]]]     default 2 ranks, 16 MiB, engine.offload = never
// One thread drives all ranks and computes: a triad over memory of its own, in pieces of some 50 µs.
//   t_comm   the operation alone, waited for            t_comp   as many pieces as take that time, alone
//   t_both   begin the operation, the same pieces, wait
//   efficiency = (t_comm + t_comp − t_both) / min(t_comm, t_comp)
//   loss     how much slower a piece is while the operation is under way; control: while a plain thread copies memory instead
// Two kinds of pieces: from memory (64 MiB) and from the second-level cache (256 KiB), which feels no memory traffic.

#include "engine/api/troupe.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;

double us_since(clock_type::time_point begin) {
  return std::chrono::duration<double, std::micro>(clock_type::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// The caller's own work.
class computation {
public:
  explicit computation(std::size_t bytes) : a_(bytes / sizeof(float) / 2, 1.0F), b_(a_.size(), 2.0F) {}
  /// One piece: 1 MiB.
  void piece() {
    constexpr std::size_t length = (std::size_t{1} << 20) / sizeof(float) / 2;
    for (std::size_t done = 0; done < length;) {
      const std::size_t n = std::min(length - done, a_.size() - at_);
      for (std::size_t i = at_; i < at_ + n; ++i) a_[i] = a_[i] * 0.5F + b_[i];
      at_ = at_ + n == a_.size() ? 0 : at_ + n;
      done += n;
    }
  }

private:
  std::vector<float> a_, b_;
  std::size_t at_ = 0;
};

class driver {
public:
  driver(int ranks, std::size_t bytes, const char* offload)
      : engine_(offloading(offload)), comms_(engine_.communicators(ranks)) {
    for (int r = 0; r < ranks; ++r) {
      in_.emplace_back(bytes / sizeof(float), static_cast<float>(r));
      out_.emplace_back(bytes / sizeof(float), 0.0F);
    }
  }
  void begin(troupe::group& all) {
    // Changed every time: nothing is found where the last operation left it.
    for (std::size_t r = 0; r < comms_.size(); ++r) in_[r][turn_ % in_[r].size()] += 1;
    ++turn_;
    requests_.clear();
    for (std::size_t r = 0; r < comms_.size(); ++r)
      requests_.push_back(comms_[r].all_reduce_async(all, in_[r], out_[r]));
    all.launch();
  }
  bool done() const {
    return std::all_of(requests_.begin(), requests_.end(), [](const troupe::request& r) { return r.done(); });
  }

private:
  static troupe::engine_options offloading(const char* offload) {
    troupe::engine_options o;
    o.offload = offload;
    return o;
  }
  troupe::engine engine_;
  std::vector<troupe::communicator> comms_;
  std::vector<std::vector<float>> in_, out_;
  std::vector<troupe::request> requests_;
  std::size_t turn_ = 0;
};

/// A plain thread that copies memory until told to stop; bytes as the operation moves them.
class copier {
public:
  explicit copier(std::size_t bytes)
      : from_(bytes, 1), to_(bytes, 2), thread_([this] {
          while (!over_.load(std::memory_order_relaxed)) std::memcpy(to_.data(), from_.data(), from_.size()), ++rounds_;
        }) {
    while (rounds_.load() == 0) std::this_thread::yield();
  }
  ~copier() {
    over_ = true;
    thread_.join();
  }

private:
  std::vector<char> from_, to_;
  std::atomic<bool> over_{false};
  std::atomic<long> rounds_{0};
  std::thread thread_;
};

struct row {
  double comm, comp, both, efficiency, piece_alone, piece_during, piece_control;
};

row measure(driver& on, std::size_t own_bytes, std::size_t copied_bytes) {
  computation own{own_bytes};
  constexpr int rounds = 15;
  std::vector<double> comm, comp, both, alone, during, control;
  const auto timed = [](auto&& action) {
    const auto begin = clock_type::now();
    action();
    return us_since(begin);
  };
  for (int i = 0; i < 200; ++i) alone.push_back(timed([&] { own.piece(); }));
  for (int i = 0; i < 3; ++i) {
    troupe::group all;
    on.begin(all);
    all.wait();
  }
  for (int i = 0; i < rounds; ++i)
    comm.push_back(timed([&] {
      troupe::group all;
      on.begin(all);
      all.wait();
    }));
  const int pieces = std::max(1, static_cast<int>(median(comm) / median(alone)));
  for (int i = 0; i < rounds; ++i) {
    comp.push_back(timed([&] {
      for (int k = 0; k < pieces; ++k) own.piece();
    }));
    both.push_back(timed([&] {
      troupe::group all;
      on.begin(all);
      for (int k = 0; k < pieces; ++k) own.piece();
      all.wait();
    }));
    troupe::group all;
    on.begin(all);
    while (true) {
      const double took = timed([&] { own.piece(); });
      if (on.done()) break;
      during.push_back(took);
    }
    all.wait();
    alone.push_back(timed([&] { own.piece(); }));
  }
  {
    const copier other{copied_bytes};
    for (int i = 0; i < 200; ++i) control.push_back(timed([&] { own.piece(); }));
  }
  const double a = median(comm), b = median(comp), c = median(both);
  return {a, b, c, (a + b - c) / std::min(a, b), median(alone), median(during), median(control)};
}

void print(const char* kind, const row& r, const char* end) {
  std::printf(
      "\"%s\":{\"t_comm_us\":%.6g,\"t_comp_us\":%.6g,\"t_both_us\":%.6g,\"efficiency\":%.4g,\"piece_alone_us\":%.5g,"
      "\"piece_during_us\":%.5g,\"piece_control_us\":%.5g,\"loss\":%.4g,\"loss_control\":%.4g}%s",
      kind, r.comm, r.comp, r.both, r.efficiency, r.piece_alone, r.piece_during, r.piece_control,
      r.piece_during / r.piece_alone - 1, r.piece_control / r.piece_alone - 1, end);
}

}  // namespace

int main(int argc, char** argv) try {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::size_t bytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::size_t{16} << 20;
  if (ranks < 1 || bytes < 64) {
    std::fprintf(stderr, "usage: overlap [RANKS [BYTES [OFFLOAD]]]\n");
    return 2;
  }
  const char* offload = argc > 3 ? argv[3] : "never";
  driver on{ranks, bytes, offload};
  std::printf("{\"ranks\":%d,\"bytes\":%zu,\"offload\":\"%s\",", ranks, bytes, offload);
  print("memory", measure(on, std::size_t{64} << 20, std::size_t{64} << 20), ",");
  print("cache", measure(on, std::size_t{256} << 10, std::size_t{64} << 20), "}\n");
} catch (const std::exception& e) {
  std::fprintf(stderr, "overlap: %s\n", e.what());
  return 1;
}
