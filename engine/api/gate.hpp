// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "actors/waiting/napping.hpp"
#include "memory/process_barrier.hpp"

namespace troupe {

/// Shutdown as a type: a thread that enters may use what lies behind until it leaves; shut() lets nobody in any more, and
/// wait_until_empty() waits for those inside.
///
/// It has many doorways so that ranks that come and go all the time do not hand one cache line to and fro: a caller that uses an
/// own doorway (its rank, say) pays two uncontended atomic additions. Thread-safe.
///
/// A blocking call of a few hundred instructions comes through an *entrance* of its communicator: two plain stores. Entering stores `inside`, then
/// reads `closed_`; shut() stores `closed_`, has every thread pass a barrier, and then wait_until_empty() reads `inside`. So either who enters sees
/// that it is closed, or who waits sees that somebody is inside. Where threads cannot be made to pass a barrier, entering is a read-modify-write.
class gate {
public:
  /// One thread at a time is inside, once. The gate outlives it.
  class entrance {
  public:
    entrance() = default;
    ~entrance() {
      if (of_ != nullptr) of_->forget(*this);
    }
    entrance(const entrance&) = delete;
    entrance& operator=(const entrance&) = delete;

  private:
    friend class gate;
    std::atomic<bool> inside_{false};
    gate* of_ = nullptr;  ///< null until somebody has come in here
    entrance *next_ = nullptr, *before_ = nullptr;
  };

  bool enter(entrance& by) {
    if (by.of_ == nullptr) [[unlikely]]
      remember(by);
    if (has_barrier_) [[likely]] {
      by.inside_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      by.inside_.exchange(true);
    }
    if (!closed_.load()) [[likely]]
      return true;
    leave(by);
    return false;
  }
  void leave(entrance& by) noexcept { by.inside_.store(false, std::memory_order_release); }

  /// False: closed. @param doorway any number; leave by the same
  bool enter(std::size_t doorway) noexcept {
    if ((at(doorway).fetch_add(1, std::memory_order_acquire) & closed) == 0) [[likely]]
      return true;
    leave(doorway);
    return false;
  }
  void leave(std::size_t doorway) noexcept {
    std::atomic<std::uint32_t>& inside = at(doorway);
    if (inside.fetch_sub(1, std::memory_order_release) == closed + 1) [[unlikely]]
      inside.notify_all();
  }
  void shut() noexcept {
    for (auto& each : doorways_) each.inside.fetch_or(closed, std::memory_order_acq_rel);
    closed_.exchange(true);
    // One that fails, which has worked before, has been forbidden meanwhile. A core's stores become visible within microseconds by themselves.
    if (has_barrier_ && !process_barrier(barrier_of::this_process)) nap(std::chrono::milliseconds{10});
  }
  /// @pre shut() was called.
  void wait_until_empty() noexcept {
    for (auto& each : doorways_)
      for (std::uint32_t seen = each.inside.load(std::memory_order_acquire); seen != closed;
           seen = each.inside.load(std::memory_order_acquire))
        each.inside.wait(seen, std::memory_order_acquire);
    // A thread that leaves an entrance wakes nobody, so this naps.
    nap_until([this] { return !any_inside(); }, std::chrono::microseconds{50});
  }

  /// Inside as long as it lives, if it is not closed. @tparam Way a doorway's number, or an entrance
  template <class Way>
  class passing {
  public:
    explicit passing(gate& through, Way by = Way{}) : through_(through.enter(by) ? &through : nullptr), by_(by) {}
    ~passing() {
      if (through_ != nullptr) through_->leave(by_);
    }
    passing(const passing&) = delete;
    passing& operator=(const passing&) = delete;
    explicit operator bool() const noexcept { return through_ != nullptr; }

  private:
    gate* through_;
    Way by_;
  };
  using pass = passing<std::size_t>;
  using quick_pass = passing<entrance&>;

private:
  void remember(entrance& by) {
    const std::lock_guard lock(mutex_);
    by.of_ = this;
    by.next_ = first_;
    if (first_ != nullptr) first_->before_ = &by;
    first_ = &by;
  }
  void forget(entrance& by) {
    const std::lock_guard lock(mutex_);
    (by.before_ != nullptr ? by.before_->next_ : first_) = by.next_;
    if (by.next_ != nullptr) by.next_->before_ = by.before_;
  }
  bool any_inside() {
    const std::lock_guard lock(mutex_);
    for (const entrance* e = first_; e != nullptr; e = e->next_)
      if (e->inside_.load()) return true;
    return false;
  }

  static constexpr std::uint32_t closed = std::uint32_t{1} << 31;
  static constexpr std::size_t doorways = 32;
  struct alignas(128) doorway_state {  // two lines: the neighbour line is fetched along
    std::atomic<std::uint32_t> inside{0};
  };
  std::atomic<std::uint32_t>& at(std::size_t doorway) noexcept { return doorways_[doorway % doorways].inside; }

  std::array<doorway_state, doorways> doorways_{};
  alignas(128) std::atomic<bool> closed_{false};
  const bool has_barrier_ = process_barrier_works(barrier_of::this_process);
  alignas(128) std::mutex mutex_;
  entrance* first_ = nullptr;  ///< of a list, guarded by the mutex
};

}  // namespace troupe
