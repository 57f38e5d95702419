// SPDX-License-Identifier: Apache-2.0
// Row 34 of the target table: two threads wait for different requests of one rank. How long after its operation has ended does a thread go
// on, while the other one waits, too? A line of JSON for each kind.
//   waiters [ROUNDS [BYTES]]     default 300 rounds, 8192 B
// Rank 0 begins two operations; thread A waits for the first, and a moment later thread B for the second. When both have been asleep for a while, the
// main thread calls for rank 1 what ends
//   all_reduce     first the one, then, as soon as A goes on, the other
//   recv           only the one that B waits for; A waits on
//   recv, alone    the same without A, for comparison
// Measured from the return of rank 1's call to the return of the wait: medians and the 99th percentile over the rounds.

#include "engine/api/troupe.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

/// Of a wait: when it has returned, if it has.
struct waiting {
  troupe::request of;
  std::atomic<bool> over{false};
  clock_type::time_point end{};

  void wait() {
    of.wait();
    end = clock_type::now();
    over.store(true);
    over.notify_one();
  }
};

class latency {
public:
  void add(clock_type::time_point ended, clock_type::time_point seen) {
    us_.push_back(std::max(0.0, std::chrono::duration<double, std::micro>(seen - ended).count()));
  }
  /// @param part of the waits that took no longer
  double quantile(double part) {
    std::sort(us_.begin(), us_.end());
    return us_.empty() ? 0 : us_[static_cast<std::size_t>(part * static_cast<double>(us_.size() - 1))];
  }

private:
  std::vector<double> us_;
};

enum class kind { all_reduce, recv, recv_alone };

class experiment {
public:
  experiment(kind what, std::size_t bytes)
      : what_(what), mine_{floats(bytes, 1), floats(bytes, 1)}, others_{floats(bytes, 1), floats(bytes, 1)} {}

  void run(int rounds) {
    std::thread a([&] { follow(first_, what_ != kind::recv_alone); });
    std::thread b([&] { follow(second_, true); });
    for (int i = 0; i < rounds; ++i) round();
    last_ = true;
    turn_.arrive_and_wait();
    a.join(), b.join();
  }
  void print(const char* name) {
    std::printf("{\"what\":\"%s\",\"bytes\":%zu,\"us\":%.4g,\"us_p99\":%.4g,\"first_us\":%.4g,\"wrong\":%d}\n", name,
                mine_[0].size() * sizeof(float), second_late_.quantile(0.5), second_late_.quantile(0.99),
                first_late_.quantile(0.5), wrong_);
    std::fflush(stdout);
  }

private:
  static std::vector<float> floats(std::size_t bytes, float value) {
    return std::vector<float>(std::max<std::size_t>(bytes / sizeof(float), 1), value);
  }

  void follow(waiting& mine, bool waits) {
    for (;;) {
      turn_.arrive_and_wait();
      if (last_) return;
      if (waits) mine.wait();
      turn_.arrive_and_wait();
    }
  }

  void round() {
    troupe::communicator &us = comms_[0], &peer = comms_[1];
    for (auto& data : mine_) std::fill(data.begin(), data.end(), 1.0F);
    for (auto& data : others_) std::fill(data.begin(), data.end(), 1.0F);
    first_.over = second_.over = false;
    const bool collective = what_ == kind::all_reduce;
    troupe::call_options other_tag;
    other_tag.tag = 1;  // so that its message may come first
    first_.of = collective ? us.all_reduce_async(mine_[0]) : us.recv_async(mine_[0], 1);
    second_.of = collective ? us.all_reduce_async(mine_[1]) : us.recv_async(mine_[1], 1, other_tag);
    turn_.arrive_and_wait();
    std::this_thread::sleep_for(1ms);  // both wait, and sleep
    if (collective) {
      peer.all_reduce(others_[0]);
      const auto ended = clock_type::now();
      first_.over.wait(false);
      first_late_.add(ended, first_.end);
      std::this_thread::sleep_for(100us);
      peer.all_reduce(others_[1]);
    } else {
      peer.send(others_[1], 0, other_tag);
    }
    const auto ended = clock_type::now();
    second_.over.wait(false);
    second_late_.add(ended, second_.end);
    if (!collective) peer.send(others_[0], 0);
    turn_.arrive_and_wait();
    first_.of.wait();
    const float expected = collective ? 2 : 1;
    for (const auto& data : mine_)
      wrong_ += static_cast<int>(std::count_if(data.begin(), data.end(), [&](float x) { return x != expected; }));
  }

  kind what_;
  troupe::engine engine_;
  std::vector<troupe::communicator> comms_ = engine_.communicators(2);
  std::vector<float> mine_[2], others_[2];
  waiting first_, second_;
  std::barrier<> turn_{3};
  bool last_ = false;
  latency first_late_, second_late_;
  int wrong_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 300;
  const std::size_t bytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 8192;
  if (rounds < 1 || bytes < 1) {
    std::fprintf(stderr, "usage: waiters [ROUNDS [BYTES]]\n");
    return 2;
  }
  const auto measure = [&](kind what, const char* name) {
    experiment all{what, bytes};
    all.run(rounds);
    all.print(name);
  };
  measure(kind::all_reduce, "all_reduce");
  measure(kind::recv, "recv");
  measure(kind::recv_alone, "recv, alone");
} catch (const std::exception& e) {
  std::fprintf(stderr, "waiters: %s\n", e.what());
  return 1;
}
