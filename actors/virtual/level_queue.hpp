// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements in the order of their levels, for max_min_state: a radix heap. Levels that are pushed are mostly not below the one that was taken
// last; one that is counts as equal to it. So an element lies in a bucket by the highest bit in which its level differs from that last one,
// and moves to lower buckets only. Cost: some operations without foretelling for each of the few moves, where a heap has log(elements)
// comparisons that nobody can foretell. No allocation once the buckets have grown.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace troupe::actors {

class level_queue {
public:
  bool empty() const { return filled_ == 0; }

  /// Empties it; levels begin at 0.
  void clear() {
    for (; filled_ != 0; filled_ &= filled_ - 1) of(lowest()).clear();
    last_ = 0;
  }

  /// @pre level ≥ 0
  void push(double level, std::uint32_t element) {
    put({std::max(std::bit_cast<std::uint64_t>(level), last_), element});
  }

  /// Takes one of the lowest level; of equal ones the one that was pushed last. @pre not empty
  std::uint32_t pop() {
    int at = lowest();
    if (at != 0) {
      std::vector<entry>& from = of(at);
      filled_ &= ~(bit << at);
      last_ =
          std::min_element(from.begin(), from.end(), [](const entry& a, const entry& b) { return a.key < b.key; })->key;
      for (const entry& e : from) put(e);  // below `at`, all of them
      from.clear();
      at = 0;
    }
    const std::uint32_t element = of(at).back().element;
    of(at).pop_back();
    if (of(at).empty()) filled_ &= ~bit;
    return element;
  }

private:
  static constexpr std::uint64_t bit = 1;
  struct entry {
    std::uint64_t key;  ///< the bits of a level, which are ordered as levels are
    std::uint32_t element;
  };
  std::vector<entry>& of(int bucket) { return buckets_[static_cast<std::size_t>(bucket)]; }
  int lowest() const { return std::countr_zero(filled_); }
  /// Bit 63 is the sign, which is never set, so that there are 64 buckets.
  void put(const entry& what) {
    const int at = 64 - std::countl_zero(what.key ^ last_);
    of(at).push_back(what);
    filled_ |= bit << at;
  }

  std::array<std::vector<entry>, 64> buckets_;
  std::uint64_t filled_ = 0;  ///< a bit a bucket
  std::uint64_t last_ = 0;
};

}  // namespace troupe::actors
