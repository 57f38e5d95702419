// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where one thread sleeps that threads of this process, or of several of a host, leave something for and may wake. Words in memory that all of them
// map; zeros are a doorbell that nobody sleeps at.
//
//   who leaves something   W1 leave it   W2 note()      W3 if the thread has to see it now: wake()
//   the thread             T1 seen = rings()   T2 look at what may have been left   T3 announce()   T4 sleep(seen)   T5 retract()
//
// For a while after it had something to do it may *doze* instead, a short sleep that it ends itself if nobody does: T3 announce_doze(), T4 with a deadline that is near. What need not be seen at once is left with
// wake_sleeper() as W3 then, which costs no system call while the thread dozes: it begins again with T1 by itself.
//
// Nothing is overlooked. All steps are sequentially consistent. W2 before T1: T2 sees what was left. W2 after T1: T4 does not sleep any more, or, if
// it sleeps already, T3 came before W3, which wakes it. A process that dies between W1 and W2 has left nothing that counts.

#include <atomic>
#include <cstdint>

#include "actors/waiting/futex.hpp"

namespace troupe::actors {

class doorbell {
public:
  doorbell() = default;
  doorbell(const doorbell&) = delete;
  doorbell& operator=(const doorbell&) = delete;

  /// Threads of several processes use it. Before they do.
  void lie_between_processes() noexcept { between_.store(1); }

  // -- any thread --
  void note() noexcept { rings_.fetch_add(1); }
  /// A system call, if it sleeps; one is enough for all who come until it is awake.
  void wake() noexcept {
    if (state_.load() == awake || state_.exchange(awake) == awake) return;
    note();
    futex_wake(&rings_, whose());
  }
  /// The same, unless it dozes: then it looks soon without.
  void wake_sleeper() noexcept {
    if (state_.load() == asleep) wake();
  }

  // -- the thread --
  std::uint32_t rings() const noexcept { return rings_.load(); }
  void announce() noexcept { state_.store(asleep); }
  void announce_doze() noexcept { state_.store(dozing); }
  /// Returns at once if somebody has rung since rings() said `seen`. May return without a reason. @pre announced
  void sleep(std::uint32_t seen, steady_time until) noexcept { futex_wait(rings_, seen, until, whose()); }
  void retract() noexcept { state_.store(awake); }
  /// Nobody has woken it since. Of a simulated thread, which sleeps nowhere.
  bool announced() const noexcept { return state_.load() != awake; }
  bool dozes() const noexcept { return state_.load() == dozing; }

private:
  futex_of whose() const noexcept {
    return between_.load(std::memory_order_relaxed) != 0 ? futex_of::all_processes : futex_of::this_process;
  }

  static constexpr std::uint32_t awake = 0, asleep = 1, dozing = 2;
  std::atomic<std::uint32_t> rings_{0}, state_{awake}, between_{0};
};

}  // namespace troupe::actors
