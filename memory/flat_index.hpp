// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers by key, for tables that only grow: one array, probed from the key's hash on. std::unordered_map allocates for every entry, which
// takes most of the time where there are a hundred thousand.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace troupe {

class flat_index {
public:
  flat_index() = default;
  /// Room for so many entries without moving any.
  explicit flat_index(std::size_t entries) { resize(std::bit_ceil(entries * 2 + 2)); }

  /// The key's number, which is `fresh` if there is none yet, and whether that is so. A reference until the next call.
  /// @pre numbers are not negative, or -1
  std::pair<std::int32_t&, bool> try_emplace(std::uint64_t key, std::int32_t fresh) {
    if (2 * (count_ + 1) > slots_.size()) resize(std::bit_ceil(4 * (count_ + 1)));
    slot& at = slots_[place_of(key)];
    const bool is_new = at.number == nobody;
    if (is_new) at = {key, fresh}, ++count_;
    return {at.number, is_new};
  }

  /// The key's number, or `otherwise`.
  std::int32_t find(std::uint64_t key, std::int32_t otherwise) const {
    if (slots_.empty()) return otherwise;
    const slot& at = slots_[place_of(key)];
    return at.number == nobody ? otherwise : at.number;
  }

  std::size_t size() const { return count_; }
  /// Gives the memory back, too.
  void clear() {
    slots_ = {};
    count_ = 0;
  }

private:
  static constexpr std::int32_t nobody = std::numeric_limits<std::int32_t>::min();
  struct slot {
    std::uint64_t key = 0;
    std::int32_t number = nobody;
  };

  /// Of the key, or of the free slot where it belongs.
  std::size_t place_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>(key * 0x9e3779b97f4a7c15U >> shift_);
    while (slots_[at].number != nobody && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }

  void resize(std::size_t slots) {
    std::vector<slot> before(slots);
    before.swap(slots_);
    shift_ = 64 - std::countr_zero(slots);
    for (const slot& s : before)
      if (s.number != nobody) slots_[place_of(s.key)] = s;
  }

  std::vector<slot> slots_;
  std::size_t count_ = 0;
  int shift_ = 63;
};

}  // namespace troupe
