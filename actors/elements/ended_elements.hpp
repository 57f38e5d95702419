// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which elements of a machine have ended. No CAF in here.
//
//   end       seldom: by the threads on which elements end
//   contains  by every operation that begins once any has ended, of each element that its data pass: no lock, two loads
// Thread-safe. Who has seen that an element has ended, or that any has, sees it from then on, and so does everybody whom it tells.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "topology/machine/graph.hpp"

namespace troupe::actors {

class ended_elements {
public:
  /// @param elements as machine::element_count()
  explicit ended_elements(std::size_t elements) : words_(elements / bits + 1) {}
  ~ended_elements() { delete[] marks_.load(std::memory_order_acquire); }
  ended_elements(const ended_elements&) = delete;
  ended_elements& operator=(const ended_elements&) = delete;

  /// Takes a bit for each element of the machine, once. Throws std::bad_alloc if there is no memory for that. @pre the machine has it
  void end(element_id which) {
    marks()[which / bits].fetch_or(bit(which), std::memory_order_acq_rel);
    any_.store(true, std::memory_order_release);
  }
  bool any() const noexcept { return any_.load(std::memory_order_acquire); }
  bool contains(element_id which) const noexcept {
    const word* const marks = marks_.load(std::memory_order_acquire);
    return marks != nullptr && (marks[which / bits].load(std::memory_order_acquire) & bit(which)) != 0;
  }

private:
  using word = std::atomic<std::uint64_t>;
  static constexpr std::size_t bits = 64;
  static constexpr std::uint64_t bit(element_id which) noexcept { return std::uint64_t{1} << which % bits; }

  word* marks() {
    word* there = marks_.load(std::memory_order_acquire);
    if (there != nullptr) return there;
    std::unique_ptr<word[]> fresh{new word[words_]()};
    // Of several threads whose elements end first, one wins.
    if (!marks_.compare_exchange_strong(there, fresh.get(), std::memory_order_acq_rel)) return there;
    return fresh.release();
  }

  const std::size_t words_;
  std::atomic<word*> marks_{nullptr};  ///< none while nothing has ended: a machine may have millions of elements
  std::atomic<bool> any_{false};
};

}  // namespace troupe::actors
