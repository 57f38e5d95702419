#pragma once
// How a thread waits that has nothing else to do, in this order: it *spins* (looks again at once, then with pauses), *yields* its
// core, *helps* (turns other ranks, runs ready actors), *sleeps*, and is *woken* by whoever makes what it waits for true.
//
// Where every waiting thread can have a core of its own, looking is cheapest: a message arrives within a fraction of the time that
// a sleeper takes to be woken. Where cores are shared, who looks keeps the others from what he waits for, so he yields instead. A
// thread that yields stays where it is, though: two that share a core while another one idles would hand it to and fro for tens of
// milliseconds. One that sleeps is woken on the idle core. So with cores enough nobody yields.

#include <algorithm>
#include <chrono>

namespace troupe {

struct waiting_policy {
  int spin = 4096;  ///< looks, with a pause between after the first few
  int yields = 0;   ///< then, looks with a yield between
};

/// Looks without a pause, and the least that a thread spins where it may at all: a peer that is at work answers within them, and a
/// pause would be the longest part.
inline constexpr int eager_looks = 64;
/// A sleep this short should have been spent looking: it is about what sleeping and being woken cost.
inline constexpr std::chrono::nanoseconds brief_sleep = std::chrono::microseconds{100};

/// @param threads that wait for each other @param cores that the process may use @param most_spin as configured
inline waiting_policy waiting_for(int threads, int cores, int most_spin = 4096) {
  return threads > cores ? waiting_policy{0, 32} : waiting_policy{std::min(4096, most_spin), 0};
}

/// How long to look next time, after a wait that was longer than the looks by `slept`. (Not by whether looking sufficed: who is
/// woken late is looked for late, and then nobody would ever look long enough again.)
inline int learn_spin(int spin, const waiting_policy& most, std::chrono::nanoseconds slept) {
  return slept < brief_sleep ? most.spin : std::max(spin / 4, std::min(most.spin, eager_looks));
}

/// Between two idle looks: leaves the core's resources to its other hyper-thread, and the power to others.
inline void pause_core() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

}  // namespace troupe
