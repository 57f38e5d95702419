// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who has how much in the v-forms: counts that differ between ranks, and, if wanted, from call to call.
// Ranks 2m and 2m + 1 have a surplus and a lack of the same size, at most half an equal block, so the whole stays the same and times
// compare with those of equal blocks. Every member computes the same counts from the number of the call alone.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

class block_counts {
public:
  /// `nominal`: elements of a block if all were equal. `fresh`: other counts in every call.
  void restart(std::size_t nominal, int ranks, bool fresh) {
    nominal_ = nominal, ranks_ = static_cast<std::size_t>(ranks), fresh_ = fresh, call_ = 0, first_ = true;
  }
  /// Goes to the next call. Returns whether its counts are not those of the call before: then whoever keeps lists of them must fill
  /// them again, as an application has to whose counts have changed.
  bool advance() {
    const bool changed = first_ || fresh_;
    if (!first_ && fresh_) ++call_;
    first_ = false;
    return changed;
  }

  /// Of a rank's block, where all ranks have one.
  std::size_t of(std::size_t rank) const {
    if ((rank | 1) >= ranks_) return nominal_;  // the last of an odd number has no partner
    const std::size_t moved = some(rank / 2);
    return rank % 2 == 0 ? nominal_ + moved : nominal_ - moved;
  }
  /// Of what `from` has for `to`.
  std::size_t of(std::size_t from, std::size_t to) const {
    if ((from | 1) >= ranks_ || (to | 1) >= ranks_) return nominal_;
    const std::size_t moved = some(from / 2 * ranks_ + to / 2);
    return (from + to) % 2 == 0 ? nominal_ + moved : nominal_ - moved;
  }

  /// of(…) of all ranks, and where each block begins if they lie one behind the other.
  template <class T>
  void list(std::vector<T>& counts) const {
    counts.resize(ranks_);
    for (std::size_t r = 0; r < ranks_; ++r) counts[r] = static_cast<T>(of(r));
  }
  template <class T>
  void list_from(std::size_t rank, std::vector<T>& counts) const {
    counts.resize(ranks_);
    for (std::size_t r = 0; r < ranks_; ++r) counts[r] = static_cast<T>(of(rank, r));
  }
  template <class T>
  void list_to(std::size_t rank, std::vector<T>& counts) const {
    counts.resize(ranks_);
    for (std::size_t r = 0; r < ranks_; ++r) counts[r] = static_cast<T>(of(r, rank));
  }

  std::size_t before(std::size_t rank) const {
    std::size_t total = 0;
    for (std::size_t r = 0; r < rank; ++r) total += of(r);
    return total;
  }
  std::size_t before(std::size_t from, std::size_t to) const {
    std::size_t total = 0;
    for (std::size_t r = 0; r < to; ++r) total += of(from, r);
    return total;
  }

private:
  /// 0 … nominal / 2, another one for each pair and call.
  std::size_t some(std::size_t pair) const {
    std::uint64_t x = (call_ << 16) + pair + 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;  // splitmix64's mixing: Steele, Lea, Flood 2014
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return static_cast<std::size_t>((x ^ (x >> 31)) % (nominal_ / 2 + 1));
  }

  std::size_t nominal_ = 1, ranks_ = 1;
  std::uint64_t call_ = 0;
  bool fresh_ = false, first_ = true;
};

/// Where each block begins if they lie one behind the other.
template <class T>
void displace(const std::vector<T>& counts, std::vector<T>& displacements) {
  displacements.resize(counts.size());
  T at = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) displacements[r] = at, at += counts[r];
}

}  // namespace bench
