// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include <unistd.h>

#include "actors/waiting/futex.hpp"

/// How threads sleep and are woken, without CAF.
///
/// `parker` is one sleeping place; `wait_token` is a parker that also remembers completion; `idle_set` knows who sleeps and who
/// is looking for work, so that a producer wakes at most one thread and none when somebody is already looking.
///
/// No wake-up is lost. Every atomic named here is sequentially consistent, so there is one order S of all of them.
///   producer:  P1 push(job)        P2 read idle_set's state
///   sleeper:   S1 announce (state: parked + 1, searching - 1)   S2 re-check "queue empty?"   S3 sleep on its parker
/// If P2 sees neither a parked nor a searching thread, P2 precedes S1 in S, hence P1 precedes S2 and the sleeper sees the job.
/// If P2 sees a parked thread, it removes one from the list and wakes its parker; the parker keeps the wake-up when it comes
/// before S3 (it is a token, not an event). If P2 sees a searching thread it does nothing; that thread either sees the job, or
/// leaves `searching` by announcing (S1, then S2 as above), or leaves by finding another job: the thread that takes `searching` to zero
/// re-checks the queue and wakes the next thread (`stop_search`).
/// A woken thread inherits the duty: it counts as searching from the moment it is chosen, not from when it runs.

namespace troupe::actors {

/// One sleeping place for one thread at a time. A wake-up that comes early is kept (once). `wake` may be called from any thread
/// and makes no access to the parker after the step that lets the sleeper go on, but to read which bell it sleeps at; a waker needs to
/// know that the parker still lives when it calls: wake under a lock that the sleeper takes before it goes, or use `wait_token`, which sleeps at no bell.
class parker {
public:
  parker() = default;
  parker(const parker&) = delete;
  parker& operator=(const parker&) = delete;

  /// Wakes the sleeper, or lets its next `park` return at once. Costs a system call only if somebody sleeps.
  void wake() noexcept {
    if (const void* sleeper = wake_later()) futex_wake(sleeper);
  }

  /// First half of `wake`: returns what to hand to `futex_wake`, or nullptr. Lets a caller do the system call
  /// after it has released a lock.
  const void* wake_later() noexcept {
    std::uint32_t seen = state_.load(std::memory_order_relaxed);
    while (seen == empty || seen == parked || seen == at_bell)
      if (state_.compare_exchange_weak(seen, notified, std::memory_order_seq_cst, std::memory_order_relaxed)) {
        if (seen == at_bell) ring();
        return seen == parked ? &state_ : nullptr;
      }
    return nullptr;  // notified or completed already
  }

  /// The caller is about to sleep where a system call waits for descriptors, `bell` (an eventfd) among them: from now on a wake-up is written
  /// there. False: it was woken already; the wake-up is consumed. @pre as park()
  bool begin_at(int bell) noexcept {
    bell_.store(bell, std::memory_order_relaxed);
    std::uint32_t seen = empty;
    if (state_.compare_exchange_strong(seen, at_bell, std::memory_order_seq_cst)) return true;
    if (seen == notified) state_.compare_exchange_strong(seen, empty, std::memory_order_seq_cst);
    return false;
  }
  /// It does so no more. True: it was woken; that is consumed, and what it has written is there to be read, or will be soon.
  bool end_at_bell() noexcept { return state_.exchange(empty, std::memory_order_seq_cst) == notified; }

  /// Sleeps until woken or until `deadline`; consumes the wake-up. May return without a reason. False: the deadline has passed.
  /// @pre no other thread is in `park` of this object.
  bool park(steady_time deadline = no_deadline) noexcept {
    std::uint32_t seen = empty;
    if (!state_.compare_exchange_strong(seen, parked, std::memory_order_seq_cst)) {
      if (seen == notified) state_.compare_exchange_strong(seen, empty, std::memory_order_seq_cst);
      return true;
    }
    bool in_time = true;
    while (in_time && state_.load(std::memory_order_seq_cst) == parked) in_time = futex_wait(state_, parked, deadline);
    seen = state_.load(std::memory_order_seq_cst);
    while (seen == parked || seen == notified)  // `completed` stays
      if (state_.compare_exchange_weak(seen, empty, std::memory_order_seq_cst)) return in_time || seen == notified;
    return true;
  }

protected:
  static constexpr std::uint32_t empty = 0, parked = 1, notified = 2, completed = 3, at_bell = 4;
  std::atomic<std::uint32_t> state_{empty};

private:
  void ring() const noexcept {
    const std::uint64_t one = 1;
    // It can only fail when the bell rings already.
    [[maybe_unused]] const ssize_t ignored = ::write(bell_.load(std::memory_order_relaxed), &one, sizeof one);
  }
  std::atomic<int> bell_{-1};  ///< a waker may read it when the sleeper is at it again
};

/// Where a thread sleeps that others wake at its parker, and that something else may wake, too.
class sleeping_room {
public:
  virtual ~sleeping_room() = default;
  /// As parker::park().
  virtual bool sleep(parker& place, steady_time until) noexcept = 0;
};

/// Completion of one request and the sleeping place of the one thread that waits for it. May live on the waiter's stack: after
/// the step that makes `done()` true, `complete` touches the object no more.
class wait_token : public parker {
public:
  bool begin_at(int) = delete;
  bool end_at_bell() = delete;

  /// Once, from any thread. A thread that has seen `done()` sees what was written before.
  void complete() noexcept {
    if (state_.exchange(completed, std::memory_order_seq_cst) == parked)
      futex_wake(&state_);  // only the address is used
  }

  bool done() const noexcept { return state_.load(std::memory_order_acquire) == completed; }

  /// Makes the token usable again. @pre nobody waits for it and nobody will complete it meanwhile.
  void reset() noexcept { state_.store(empty, std::memory_order_relaxed); }
};

/// The threads that sleep, and those that search. Parked threads are kept last in first out: the one that slept last has the warmest cache.
class idle_set {
public:
  /// A thread's entry while it is parked; lives on its stack between `announce` and `retract`.
  struct sleeper {
    explicit sleeper(parker& at) : place(&at) {}
    parker* place;
    sleeper* previous = nullptr;
    sleeper* next = nullptr;
    bool listed = false;
  };

  enum class woken {
    one,        ///< a parked thread was chosen and woken
    searching,  ///< somebody is looking for work already
    nobody      ///< no thread is parked or searching
  };

  /// Counts the calling thread as searching unless `limit` threads are.
  bool start_search(std::uint32_t limit) noexcept {
    std::uint64_t seen = state_.load(std::memory_order_seq_cst);
    while (searching(seen) < limit)
      if (state_.compare_exchange_weak(seen, seen + one_searching, std::memory_order_seq_cst)) return true;
    return false;
  }

  /// True: that was the last searcher, so the caller must look at the queue again and call `wake_one` if it is not empty.
  /// @pre the calling thread counts as searching.
  bool stop_search() noexcept { return searching(state_.fetch_sub(one_searching, std::memory_order_seq_cst)) == 1; }

  /// Enters the list (and leaves `searching`). The caller must re-check its reasons to stay awake before it parks.
  void announce(sleeper& who, bool was_searching) noexcept {
    const std::lock_guard lock(mutex_);
    who.previous = nullptr;
    who.next = first_;
    if (first_ != nullptr) first_->previous = &who;
    first_ = &who;
    who.listed = true;
    state_.fetch_add(one_parked - (was_searching ? one_searching : 0), std::memory_order_seq_cst);
  }

  /// Leaves the list. True: a producer had chosen this thread, which therefore counts as searching now.
  bool retract(sleeper& who) noexcept {
    const std::lock_guard lock(mutex_);
    if (!who.listed) return true;
    remove(who);
    state_.fetch_sub(one_parked, std::memory_order_seq_cst);
    return false;
  }

  /// Call after a push. Wakes one parked thread if any is parked and none is searching. @threadsafe
  /// Cost: one load unless a thread is woken; then a lock and a system call.
  woken wake_one() noexcept {
    const std::uint64_t seen = state_.load(std::memory_order_seq_cst);
    if (searching(seen) != 0) return woken::searching;
    if (parked(seen) == 0) return woken::nobody;
    const void* address = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (searching(state_.load(std::memory_order_seq_cst)) != 0)
        return woken::searching;  // another producer was faster
      if (first_ == nullptr) return woken::nobody;
      // Under the lock: the sleeper cannot pass `retract` and leave before we are done with it.
      sleeper& chosen = *first_;
      remove(chosen);
      state_.fetch_add(one_searching - one_parked, std::memory_order_seq_cst);
      address = chosen.place->wake_later();
    }
    wakes_.fetch_add(1, std::memory_order_relaxed);
    if (address != nullptr) futex_wake(address);
    return woken::one;
  }

  /// Wakes every parked thread; they stay listed and count as parked until they retract. For shutdown.
  void wake_all() noexcept {
    const std::lock_guard lock(mutex_);
    for (sleeper* at = first_; at != nullptr; at = at->next) at->place->wake();
  }

  std::size_t parked_threads() const noexcept { return parked(state_.load(std::memory_order_relaxed)); }
  std::size_t searching_threads() const noexcept { return searching(state_.load(std::memory_order_relaxed)); }
  /// How often `wake_one` chose somebody, ever.
  std::uint64_t wakes() const noexcept { return wakes_.load(std::memory_order_relaxed); }

private:
  // One word, so that a thread moves from searching to parked in a single step of S.
  static constexpr std::uint64_t one_searching = 1;
  static constexpr std::uint64_t one_parked = std::uint64_t{1} << 32;
  static constexpr std::uint32_t searching(std::uint64_t state) noexcept { return static_cast<std::uint32_t>(state); }
  static constexpr std::uint32_t parked(std::uint64_t state) noexcept {
    return static_cast<std::uint32_t>(state >> 32);
  }

  void remove(sleeper& who) noexcept {
    (who.previous != nullptr ? who.previous->next : first_) = who.next;
    if (who.next != nullptr) who.next->previous = who.previous;
    who.listed = false;
  }

  alignas(64) std::atomic<std::uint64_t> state_{0};
  std::atomic<std::uint64_t> wakes_{0};
  std::mutex mutex_;  // taken only to park, to unpark and to choose whom to wake: next to a system call anyway
  sleeper* first_ = nullptr;
};

}  // namespace troupe::actors
