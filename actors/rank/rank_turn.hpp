// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's turn as the files of rank_cell share it: rank_cell.cpp (messages, and how turns end), rank_calls.cpp (blocking callers), rank_help.cpp (who waits
// for operations, and groups).

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <utility>

#include "actors/rank/ended_operations.hpp"
#include "actors/rank/rank_cell.hpp"
#include "actors/waiting/slot_waiting.hpp"

namespace troupe::actors {

/// What a thread is in. Constant-initialised and of the initial-exec model, so that a look is one load, also in a shared library.
struct thread_place {
  rank_cell::gathering* gathering = nullptr;
  void* visits = nullptr;               ///< see rank_cell::visits
  ended_operations* telling = nullptr;  ///< it is telling callers: in a callback
};
extern __attribute__((tls_model("initial-exec"))) constinit thread_local thread_place calling_thread;

/// As eager_looks, of sends and receives: such a look is one load.
inline constexpr int eager_pair_looks = 8 * eager_looks;
/// On a slow machine.
inline std::chrono::nanoseconds copying_time(std::size_t bytes) {
  constexpr std::size_t bytes_in_us = 4096;
  return std::chrono::microseconds{bytes / bytes_in_us};
}
inline std::chrono::nanoseconds time_without_copies(std::chrono::nanoseconds time, std::size_t bytes) {
  return std::max(time - copying_time(bytes), std::chrono::nanoseconds{0});
}

/// True: done. False: it was left in the middle.
template <class Step>
bool within_memory(Step&& step) noexcept {
  try {
    std::forward<Step>(step)();
    return true;
  } catch (...) {
    return false;
  }
}

/// As within_memory(), and the rank ends its communicator then.
template <class Step>
bool rank_cell::transit(Step&& step) noexcept {
  if (within_memory(std::forward<Step>(step))) return true;
  break_down();
  return false;
}

/// While it lives, ranks that hear of something on this thread are visited at its end, by this thread, in place of waking another one for each: where
/// there are no more cores than ranks such a thread would only take somebody else's. Its data are still in this core's cache then.
class rank_cell::visits {
public:
  explicit visits(const rank_cell& from) : outer_(calling_thread.visits) {
    if (outer_ == nullptr && from.visits_ && !in_callback()) calling_thread.visits = this;
  }
  ~visits() {
    if (calling_thread.visits != this) return;
    for (std::size_t i = 0; i < count_; ++i) to_[i]->take_news();  // which may find more
    calling_thread.visits = nullptr;
  }
  visits(const visits&) = delete;
  visits& operator=(const visits&) = delete;
  /// False: there are too many, or this thread is in a callback, which may let go of the rank.
  static bool add(rank_cell& which) noexcept {
    auto* const here = static_cast<visits*>(calling_thread.visits);
    if (here == nullptr || here->count_ == most || in_callback()) return false;
    here->to_[here->count_++] = &which;
    return true;
  }

private:
  static constexpr std::size_t most = 64;
  std::array<rank_cell*, most> to_;
  std::size_t count_ = 0;
  void* outer_;
};

[[gnu::always_inline]] inline bool rank_cell::take_turn(holder by) noexcept {
  holder before = held_.load(std::memory_order_relaxed);
  if (before != holder::nobody || !held_.compare_exchange_strong(before, by)) return false;
  if (unattended.load(std::memory_order_relaxed) != care::none) [[unlikely]]
    unattended.store(care::none);
  if (deserted_.load(std::memory_order_relaxed)) [[unlikely]]
    deserted_.store(false);
  return true;
}

/// As end_turn(), where this turn has not changed that the rank is at rest: nothing is left, and nobody is to be told. The store is plain where
/// the sender of an urgent message orders it (call_has_ended()): a read-modify-write would wait for what the call has written to others.
[[gnu::always_inline]] inline void rank_cell::end_turn_at_rest() noexcept {
  if (has_barrier_.load(std::memory_order_relaxed)) {
    held_.store(holder::nobody, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    held_.exchange(holder::nobody);
  }
  if (urgent_.load() && !inbox_.empty()) [[unlikely]]
    summon(true);
}

/// Ends the wait of a caller that performs for its rank: a message has come, or it takes long.
class rank_cell::watch final : public slot_watch {
public:
  watch(rank_cell& cell, steady_time expires) : cell_(cell), expires_(expires) { cell_.falls_asleep(true); }
  ~watch() override { cell_.falls_asleep(false); }
  watch(const watch&) = delete;
  watch& operator=(const watch&) = delete;
  bool stop() noexcept override { return tired_ || !cell_.inbox_.empty(); }
  /// An operation that all ranks work on ends, or its caller's deadline passes.
  void impatient() override {
    tired_ = !cell_.state_.port()->performer().together() || std::chrono::steady_clock::now() >= expires_;
  }
  bool tired() const { return tired_; }

private:
  rank_cell& cell_;
  steady_time expires_;
  bool tired_ = false;
};

}  // namespace troupe::actors
