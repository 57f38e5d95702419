// SPDX-License-Identifier: Apache-2.0
#pragma once
// Non-blocking collectives while their callers compute, by the method of IMB-NBC; the same loop for Troupe and for MPI libraries.
//   t_pure   begin and wait            t_cpu   computing for about as long, alone, on all ranks at once
//   t_both   begin, compute, wait      overlap = (t_pure + t_cpu − t_both) / min(t_pure, t_cpu), between 0 and 1
// A repetition begins with a barrier, and lasts as long as its slowest rank. Computing is a triad over 128 KiB, which stay in a core's cache,
// and looks at nothing else. Besides: the thread's own CPU time in `begin` and in `wait` of t_both, without what looking at that clock takes.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace bench::nbc {

struct point {
  std::string collective;  ///< all_reduce, broadcast, all_to_all
  std::size_t bytes = 0;   ///< of a rank's buffer
};

/// "all_reduce:65536". Throws std::invalid_argument.
inline point parse(std::string_view text) {
  const auto colon = text.find(':');
  point p;
  p.collective = text.substr(0, colon);
  if (colon != std::string_view::npos)
    p.bytes = std::strtoull(std::string{text.substr(colon + 1)}.c_str(), nullptr, 10);
  const bool known = p.collective == "all_reduce" || p.collective == "broadcast" || p.collective == "all_to_all";
  if (!known || p.bytes < (p.collective == "all_to_all" ? 64 : 4))
    throw std::invalid_argument(
        "a point is all_reduce, broadcast or all_to_all, a colon and 4 bytes or more (of all_to_all 64), not " +
        std::string{text});
  return p;
}

class computation {
public:
  /// Some microseconds of it, so often.
  void run(long pieces) {
    for (long k = 0; k < pieces; ++k)
      for (std::size_t i = 0; i < a_.size(); ++i) a_[i] = a_[i] * 0.5F + b_[i];
  }

private:
  std::vector<float> a_ = std::vector<float>(16384, 1.0F), b_ = std::vector<float>(16384, 2.0F);
};

inline double seconds_of(clockid_t clock) {
  std::timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Of two looks at the thread's CPU time with nothing between: a system call, some 0.2 µs.
inline double cost_of_clock() {
  std::vector<double> looks;
  for (int i = 0; i < 999; ++i) {
    const double from = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    looks.push_back(seconds_of(CLOCK_THREAD_CPUTIME_ID) - from);
  }
  return median(std::move(looks));
}

/// All ranks call it alike. Member: begin(), wait(), barrier(), largest(double), wrong() after a wait.
/// @param seconds for each of the three @return one JSON object, the same on every rank
template <class Member>
std::string measure(Member& m, const point& p, double seconds) {
  computation work;
  double begin_cpu = 0, wait_cpu = 0;
  const double clock = cost_of_clock();
  const auto once = [&](bool communicates, long pieces) {
    m.barrier();
    const double from = seconds_of(CLOCK_MONOTONIC);
    if (communicates) {
      const double cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
      m.begin();
      begin_cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
    }
    if (pieces > 0) work.run(pieces);
    if (communicates) {
      const double cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
      m.wait();
      wait_cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
    }
    return m.largest(seconds_of(CLOCK_MONOTONIC) - from);
  };
  for (int i = 0; i < 5; ++i) once(true, 0);
  const double wrong = m.largest(m.wrong());
  const auto repeat = [&](bool communicates, long pieces) {
    std::vector<double> times, begins, waits;
    double total = 0;
    while (times.size() < 7 || (total < seconds && times.size() < 2000)) {
      times.push_back(once(communicates, pieces));
      begins.push_back(begin_cpu);
      waits.push_back(wait_cpu);
      total += times.back();  // alike on every rank
    }
    begin_cpu = m.largest(std::max(0.0, median(begins) - clock));
    wait_cpu = m.largest(std::max(0.0, median(waits) - clock));
    return median(times);
  };
  const double pure = repeat(true, 0);
  work.run(100);
  const double piece = [&] {
    std::vector<double> alone;
    for (int i = 0; i < 9; ++i) alone.push_back(once(false, 50) / 50);
    return median(alone);
  }();
  const long pieces = std::max(1L, static_cast<long>(pure / piece + 0.5));
  const double cpu = repeat(false, pieces);
  const double both = repeat(true, pieces);
  const double overlap = std::clamp((pure + cpu - both) / std::min(pure, cpu), 0.0, 1.0);
  char text[512];
  std::snprintf(text, sizeof text,
                "{\"collective\":\"%s\",\"bytes\":%zu,\"t_pure_us\":%.6g,\"t_cpu_us\":%.6g,\"t_both_us\":%.6g,"
                "\"overlap\":%.4g,\"begin_cpu_us\":%.4g,\"wait_cpu_us\":%.4g,\"wrong\":%.0f}",
                p.collective.c_str(), p.bytes, pure * 1e6, cpu * 1e6, both * 1e6, overlap, begin_cpu * 1e6,
                wait_cpu * 1e6, wrong);
  return text;
}

}  // namespace bench::nbc
