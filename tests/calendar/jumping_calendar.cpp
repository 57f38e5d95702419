// SPDX-License-Identifier: Apache-2.0
// A computer whose calendar jumps: preloaded (LD_PRELOAD), it is told an hour earlier or later at every second look. What measures time by it waits for hours, or not at all.
#include <atomic>
#include <ctime>

#include <dlfcn.h>
#include <sys/time.h>

namespace {

/// Seconds.
std::time_t jump() {
  static std::atomic<unsigned> looks{0};
  constexpr std::time_t hour = 3600, jumps[] = {0, hour, 0, -hour};
  return jumps[looks.fetch_add(1, std::memory_order_relaxed) % 4];
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t which, timespec* now) noexcept {
  static const auto true_time = next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = true_time(which, now);
  if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
  return result;
}

int gettimeofday(timeval* __restrict now, void* __restrict zone) noexcept {
  static const auto true_time = next<int (*)(timeval*, void*)>("gettimeofday");
  const int result = true_time(now, zone);
  if (result == 0) now->tv_sec += jump();
  return result;
}

std::time_t time(std::time_t* now) noexcept {
  static const auto true_time = next<std::time_t (*)(std::time_t*)>("time");
  const std::time_t told = true_time(nullptr) + jump();
  if (now != nullptr) *now = told;
  return told;
}
}
