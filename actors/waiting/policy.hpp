// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a thread waits that has nothing else to do, in this order: it *spins* (looks again at once, then with pauses), *yields* its
// core, *helps* (turns other ranks, runs ready actors), *sleeps*, and is *woken* by the thread that makes what it waits for true.
//
// Where every waiting thread can have a core of its own, looking is cheapest: a message arrives within a fraction of the time that
// a sleeper takes to be woken. Where cores are shared, a thread that looks keeps the others from what it waits for, so it yields instead;
// but for a while it looks if all that it waits for is done on other cores, as a yield would only be given back, for two changes of threads. A
// thread that yields stays where it is, though: two that share a core while another one idles would hand it to and fro for tens of
// milliseconds. One that sleeps is woken on the idle core. So with cores enough nobody yields.
// Nor does who shares a core for the moment look for long (shared_cores.hpp): he keeps the other from running.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace troupe {

struct waiting_policy {
  int spin = 4096;     ///< looks, with a pause between after the first few
  int yields = 0;      ///< then, looks with a yield between
  bool spare = false;  ///< there are cores for further threads
  /// Eight or more share each core, so that some of them sleep in most waits. Then a thread that goes to sleep should not make a barrier in all threads,
  /// which interrupts the other cores (1 to 50 µs, as the machine is). The waking thread makes a fence each time instead (10 ns).
  bool many_sleep = false;
  int beside = 0;  ///< looks instead of yields, while all that it waits for is done on other cores
};

/// Looks without a pause, and the least that a thread spins where it may at all: a peer that is at work answers within them, and a
/// pause would be the longest part.
inline constexpr int eager_looks = 64;
/// A sleep this short should have been spent looking: it is about what sleeping and being woken cost.
inline constexpr std::chrono::nanoseconds brief_sleep = std::chrono::microseconds{100};

/// About as long as threads on another core take to change some times. They may have been stopped there, by somebody else.
inline constexpr int looks_beside = 256;
inline constexpr int most_asked = 32;

/// @param threads that wait for each other @param cores that they may use @param most_spin as configured
inline waiting_policy waiting_for(int threads, int cores, int most_spin = 4096) {
  if (threads > cores) {
    const bool many_sleep = threads >= 8 * cores;
    // What is asked before each such look takes as long as there are threads.
    return {0, 32, false, many_sleep, many_sleep || threads > most_asked ? 0 : looks_beside};
  }
  return {std::min(4096, most_spin), 0, threads < cores};
}

/// How long to look next time, after a wait that was longer than the looks by `slept`. (Not by whether looking sufficed: one that is
/// woken late is looked for late, and then nobody would ever look long enough again.)
inline int learn_spin(int spin, const waiting_policy& most, std::chrono::nanoseconds slept) {
  return slept < brief_sleep ? most.spin : std::max(spin / 4, std::min(most.spin, eager_looks));
}

/// One wait, in the order above: what its thread does before it looks once more. Pure: the thread pauses, yields and sleeps itself.
class wait_course {
public:
  enum class step : std::uint8_t { look, pause, yield, sleep };

  /// @param eager looks without a pause; 0 where a look costs as much as a pause
  explicit wait_course(const waiting_policy& most, int eager = eager_looks) : most_(most), eager_(eager) {}

  /// It has looked and found nothing.
  step next() {
    if (looks_ < most_.spin) return looks_++ < eager_ ? step::look : step::pause;
    if (yields_ < most_.yields) return ++yields_, step::yield;
    return step::sleep;
  }
  /// The same, where all that it waits for is done on other cores: its own one is needed by nobody.
  step next_beside() {
    if (looks_ < most_.spin || beside_ >= most_.beside) return next();
    return ++beside_, step::pause;
  }
  /// Others spin already, and one is enough to find what comes.
  step next_without_spin() {
    looks_ = most_.spin;
    return next();
  }
  /// Its core is others' for long (yielding.hpp).
  void stop_yielding() { yields_ = most_.yields; }
  /// It has found something to do.
  void restart() { looks_ = yields_ = beside_ = 0; }
  /// It was woken, and something else than what it waits for had come. It does not yield once more: its core was free.
  void woken() { looks_ = 0; }
  /// Looks so far.
  int taken() const { return looks_ + yields_ + beside_; }

private:
  waiting_policy most_;
  int eager_;
  int looks_ = 0, yields_ = 0, beside_ = 0;
};

/// The looks of a thread that cares for what others leave and may come back to. To leave something should wake nobody, so the thread naps
/// as long as things were left lately, and takes what it finds a second time. Looks that find nothing to take become rarer: callers
/// wait for what they begin then, and a thread that wakes every 50 µs keeps Linux from moving one of two callers that share a core to
/// the other core (a core that is never idle for long looks for no work).
class nap_course {
public:
  /// The rest is taken late by twice that at most, while things are taken.
  static constexpr std::chrono::nanoseconds shortest = std::chrono::microseconds{50};
  static constexpr std::chrono::nanoseconds longest = std::chrono::milliseconds{2};

  /// It has looked. @param left something was there to be taken, now or the next time @param taken something was taken
  void looked(bool left, bool taken) {
    naps_ = left ? most_naps : std::max(0, naps_ - 1);
    futile_ = taken ? 0 : futile_ + 1;
    if (taken) nap_ = shortest;
    else if (futile_ > short_naps) nap_ = std::min(nap_ * 2, longest);
  }
  /// Something was left as it was about to sleep.
  void missed() { naps_ = most_naps; }
  /// It was woken from a sleep.
  void woken() {
    nap_ = shortest;
    futile_ = 0;
  }
  /// Nothing was left for a while: it sleeps until it is woken.
  bool over() const { return naps_ == 0; }
  std::chrono::nanoseconds next() const { return nap_; }

private:
  static constexpr int short_naps = 4;
  static constexpr int most_naps = 100;
  std::chrono::nanoseconds nap_ = shortest;
  int naps_ = 0;    ///< to come
  int futile_ = 0;  ///< looks in a row
};

/// The dozes of a thread that has a core of its own and to which others leave work, when it has looked for more in vain. To leave something should cost them no
/// system call, so for a while after it has worked it dozes instead of sleeping until it is woken. Short ones, since only who waits
/// wakes it from them.
class dozes_after_work {
public:
  static constexpr std::chrono::nanoseconds shortest = std::chrono::microseconds{15};
  /// Work left during a doze begins later by at most this and the time that the system takes to wake a thread.
  static constexpr std::chrono::nanoseconds longest = std::chrono::microseconds{60};
  /// Since it had something to do. Some 150 dozes, each of which costs its own core 2 to 4 µs.
  static constexpr std::chrono::nanoseconds in_all = std::chrono::milliseconds{10};

  /// It had something to do.
  void worked() { doze_ = shortest; }
  /// Of the next one. @param idle how long it has had nothing to do. Zero: it sleeps until it is woken.
  std::chrono::nanoseconds next(std::chrono::nanoseconds idle) {
    if (idle >= in_all) return std::chrono::nanoseconds{0};
    return std::exchange(doze_, std::min(2 * doze_, longest));
  }

private:
  std::chrono::nanoseconds doze_ = shortest;
};

/// Looks that cost much, and are worth it only if they find something: after one that did not, the next one is left out, after that three, and so on.
class seldom_looks {
public:
  /// Whether this one is to be made.
  bool due() { return --left_out_ < 0; }
  void looked(bool found) {
    next_ = found ? 0 : std::min(2 * next_ + 1, most);
    left_out_ = next_;
  }

private:
  static constexpr int most = 63;
  int left_out_ = 0;  ///< still to come
  int next_ = 0;      ///< after the next one that finds nothing
};

/// Between two idle looks: leaves the core's resources to its other hyper-thread, and the power to others.
inline void pause_core() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

}  // namespace troupe
