// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank's part in one partitioned operation: which pieces of its input are ready, and which of its output have arrived.
//
// announce() and the questions: any thread. begin() and performed(): the performer of the rank's program. A thread that has seen that a piece has
// arrived sees its elements, and a performer that waits for an announcement sees what the caller wrote before. Made once for all
// repetitions; nothing here allocates afterwards.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

class part_board {
public:
  /// @param inputs pieces of the rank's input; 0: it has none @param needed program::arrivals_needed
  part_board(int inputs, std::vector<std::int32_t> needed)
      : inputs_(inputs),
        unready_(inputs),
        needed_(std::move(needed)),
        left_(needed_),
        order_(needed_.size()),
        ready_(std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(inputs))),
        there_(std::make_unique<std::atomic<bool>[]>(needed_.size())),
        said_(std::make_unique<std::atomic<std::int32_t>[]>(static_cast<std::size_t>(inputs))) {}

  int inputs() const { return inputs_; }
  int outputs() const { return static_cast<int>(needed_.size()); }

  /// For the next repetition. @pre nobody performs, and nobody else asks
  void reset() {
    left_ = needed_;
    for (int p = 0; p < inputs_; ++p) {
      ready_[static_cast<std::size_t>(p)].store(false, std::memory_order_relaxed);
      said_[static_cast<std::size_t>(p)].store(0, std::memory_order_relaxed);
    }
    sayers_.store(0, std::memory_order_relaxed);
    for (int p = 0; p < outputs(); ++p) there_[static_cast<std::size_t>(p)].store(false, std::memory_order_relaxed);
    unready_.store(inputs_, std::memory_order_relaxed);
    arrived_.store(0, std::memory_order_relaxed);
  }

  /// False: it was ready before. Sequentially consistent, as the wake-up that follows (rank_cell.hpp).
  bool announce(int piece) {
    if (ready_[static_cast<std::size_t>(piece)].exchange(true)) return false;
    unready_.fetch_sub(1);
    said_[static_cast<std::size_t>(sayers_.fetch_add(1, std::memory_order_relaxed))].store(piece + 1);
    return true;
  }
  /// Which piece was the n-th that got ready; −1: not known yet; the thread that sets it wakes the rank then. @pre n < inputs()
  int announced(int n) const { return said_[static_cast<std::size_t>(n)].load() - 1; }
  bool ready(int piece) const { return ready_[static_cast<std::size_t>(piece)].load(); }
  bool all_ready() const { return unready() == 0; }
  int unready() const { return unready_.load(); }

  /// One of the steps that the piece needs. True: it was the last.
  bool performed(int piece) {
    if (--left_[static_cast<std::size_t>(piece)] > 0) return false;
    const int at = arrived_.load(std::memory_order_relaxed);
    order_[static_cast<std::size_t>(at)] = piece;
    there_[static_cast<std::size_t>(piece)].store(true, std::memory_order_release);
    arrived_.store(at + 1);
    return true;
  }
  bool arrived(int piece) const { return there_[static_cast<std::size_t>(piece)].load(std::memory_order_acquire); }
  /// How many pieces have arrived …
  int arrivals() const { return arrived_.load(); }
  /// … and which was the n-th. @pre n < arrivals()
  int arrival(int n) const { return order_[static_cast<std::size_t>(n)]; }

private:
  int inputs_;
  std::atomic<int> unready_;
  std::vector<std::int32_t> needed_, left_, order_;
  std::unique_ptr<std::atomic<bool>[]> ready_, there_;
  std::unique_ptr<std::atomic<std::int32_t>[]>
      said_;  ///< pieces that are ready, plus one, in the order of their announcements
  std::atomic<int> sayers_{0};
  std::atomic<int> arrived_{0};
};

}  // namespace troupe
