// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace troupe::actors {

/// Many-producer many-consumer queue of pointers to what is ready to run: unbounded, roughly first in first out.
///
/// A bounded ring carries everything in practice (D. Vyukov's bounded MPMC queue: a sequence number per cell says whose turn
/// the cell is); what does not fit waits in a deque behind a mutex. So a push never fails and never waits for a consumer.
///
/// Why a ring and not `boost::lockfree::queue` (1.74): its nodes go through a free list whose links carry 16 bit tags. A
/// thread that is pre-empted inside `pop` for exactly a multiple of 65 536 operations sees "its" head again and breaks the
/// list, which is possible when many threads share few cores; and ThreadSanitizer rightly reports plain reads of reused
/// nodes, so the tests could not tell our races from the library's. Sequence numbers here are 64 bit and cells are never freed.
///
/// Invariants:
///  - `head_ <= tail_`; cell i is writable at position p when `turn == p`, readable when `turn == p + 1`.
///  - While `overflow_size_ > 0` every push goes to the overflow, so the ring drains and the overflow's turn comes.
///  - `size()` counts an element from *before* it can be popped until it is claimed: a producer that was pre-empted half-way
///    makes the queue look non-empty, never empty. Parking relies on this (see parking.hpp).
///
/// All members but the constructor and the destructor may be called from any thread.
/// Cost: push and pop are one compare-and-swap each; no allocation unless more than `capacity` elements wait.
template <class T>
class ready_queue {
public:
  /// @param capacity elements kept in the ring, rounded up to a power of two, at least 2.
  explicit ready_queue(std::size_t capacity = 1024)
      : mask_(std::bit_ceil(capacity < 2 ? std::size_t{2} : capacity) - 1), cells_(new cell[mask_ + 1]) {
    for (std::size_t i = 0; i <= mask_; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }

  ready_queue(const ready_queue&) = delete;
  ready_queue& operator=(const ready_queue&) = delete;

  /// @pre `element != nullptr`. Throws std::bad_alloc only if the ring is full and memory is exhausted.
  void push(T* element) {
    if (overflow_size_.load(std::memory_order_relaxed) != 0 || !push_ring(element)) push_overflow(element);
  }

  /// The oldest element that is ready, or nullptr. May return nullptr while `size() != 0`: a producer has claimed its place
  /// but not filled it yet.
  T* pop() {
    if (T* element = pop_ring()) return element;
    // seq_cst is not needed here: a consumer that is about to sleep asks `empty()` again.
    if (overflow_size_.load(std::memory_order_acquire) == 0) return nullptr;
    return pop_overflow();
  }

  /// Number of elements at some moment during the call, not less than those whose push happened before it.
  std::size_t size() const {
    // head before tail: both only grow, so the difference is never negative, and an element pushed before this call and not
    // popped is always counted. seq_cst: one half of the store-then-load handshake described in parking.hpp.
    const std::uint64_t head = head_.load(std::memory_order_seq_cst);
    const std::uint64_t tail = tail_.load(std::memory_order_seq_cst);
    return static_cast<std::size_t>(tail - head) + overflow_size_.load(std::memory_order_seq_cst);
  }

  bool empty() const { return size() == 0; }

private:
  struct cell {
    std::atomic<std::uint64_t> turn{0};
    T* element = nullptr;
  };

  bool push_ring(T* element) {
    std::uint64_t position = tail_.load(std::memory_order_relaxed);
    for (;;) {
      cell& at = cells_[position & mask_];
      const auto lead = static_cast<std::int64_t>(at.turn.load(std::memory_order_acquire) - position);
      if (lead < 0) return false;  // a consumer has not emptied this cell since the last lap
      if (lead > 0) position = tail_.load(std::memory_order_relaxed);
      else if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_seq_cst,
                                           std::memory_order_relaxed)) {
        at.element = element;
        at.turn.store(position + 1, std::memory_order_release);
        return true;
      }
    }
  }

  T* pop_ring() {
    std::uint64_t position = head_.load(std::memory_order_relaxed);
    for (;;) {
      cell& at = cells_[position & mask_];
      const auto lead = static_cast<std::int64_t>(at.turn.load(std::memory_order_acquire) - (position + 1));
      if (lead < 0) return nullptr;
      if (lead > 0) position = head_.load(std::memory_order_relaxed);
      else if (head_.compare_exchange_weak(position, position + 1, std::memory_order_seq_cst,
                                           std::memory_order_relaxed)) {
        T* element = at.element;
        at.turn.store(position + mask_ + 1, std::memory_order_release);
        return element;
      }
    }
  }

  void push_overflow(T* element) {
    const std::lock_guard lock(overflow_mutex_);  // cold: more than `capacity` ready at once
    overflow_.push_back(element);
    overflow_size_.fetch_add(1, std::memory_order_seq_cst);
  }

  T* pop_overflow() {
    const std::lock_guard lock(overflow_mutex_);
    if (overflow_.empty()) return nullptr;
    T* element = overflow_.front();
    overflow_.pop_front();
    overflow_size_.fetch_sub(1, std::memory_order_seq_cst);
    return element;
  }

  static constexpr std::size_t line = 64;  // bytes of a cache line on the machines we know; only speed depends on it

  const std::size_t mask_;
  const std::unique_ptr<cell[]> cells_;
  alignas(line) std::atomic<std::uint64_t> tail_{0};
  alignas(line) std::atomic<std::uint64_t> head_{0};
  alignas(line) std::atomic<std::size_t> overflow_size_{0};
  std::mutex overflow_mutex_;
  std::deque<T*> overflow_;
};

}  // namespace troupe::actors
