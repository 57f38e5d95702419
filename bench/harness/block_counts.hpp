// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counts of the v-forms: they differ between ranks, and, if wanted, from call to call.
// Every member computes the same counts from the number of the call alone.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bench {

/// How the blocks of a v-form differ.
enum class uneven : std::uint8_t {
  same,   ///< from rank to rank: 2m and 2m + 1 have a surplus and a lack of the same size, at most half an equal block
  fresh,  ///< so, and otherwise in every call
  /// all_to_all_v, otherwise in every call: every rank sends and receives as much as by equal blocks, cut at random: what one has for another is nothing
  /// to several blocks.
  random,
  /// all_to_all_v, otherwise in every call: every rank sends as much as by equal blocks, and they receive as four experts do in the specification of
  /// all-to-all's imbalance (412, 89, 301 and 174 tokens).
  skewed
};

class block_counts {
public:
  /// `nominal`: elements of a block if all were equal.
  void restart(std::size_t nominal, int ranks, uneven how) {
    nominal_ = nominal, ranks_ = static_cast<std::size_t>(ranks), call_ = 0, first_ = true;
    fresh_ = how != uneven::same;
    tables_.clear();
    if (how == uneven::random || how == uneven::skewed)
      for (std::size_t t = 0; t < table_count; ++t) tables_.push_back(how == uneven::random ? cut(t) : lean(t));
  }
  /// Of `equal` elements received by equal blocks, how many a rank receives at most.
  static std::size_t most_received(std::size_t equal, uneven how) { return how == uneven::skewed ? equal * 2 : equal; }
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
    if (!tables_.empty()) return tables_[call_ % table_count][from * ranks_ + to];
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
  static std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;  // splitmix64's mixing: Steele, Lea, Flood 2014
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }
  /// 0 … nominal / 2, another one for each pair and call.
  std::size_t some(std::size_t pair) const {
    return static_cast<std::size_t>(mixed((call_ << 16) + pair) % (nominal_ / 2 + 1));
  }
  /// A sum of 2n random permutations, each of half an equal block: so rows and columns have the sums of equal blocks. The n tables of one such sum
  /// have it for the next ranks, so that in few calls, too, each has for each as much as an equal block on the average.
  std::vector<std::size_t> cut(std::size_t table) const {
    std::vector<std::size_t> blocks(ranks_ * ranks_, nominal_ % 2), to(ranks_);
    std::uint64_t state = mixed(table / ranks_);
    for (std::size_t p = 0; p < 2 * ranks_; ++p) {
      for (std::size_t r = 0; r < ranks_; ++r) to[r] = r;
      for (std::size_t r = ranks_; r > 1; --r) std::swap(to[r - 1], to[(state = mixed(state)) % r]);
      for (std::size_t r = 0; r < ranks_; ++r) blocks[r * ranks_ + (to[r] + table) % ranks_] += nominal_ / 2;
    }
    return blocks;
  }
  std::vector<std::size_t> lean(std::size_t table) const {
    constexpr std::array<std::size_t, 4> tokens{412, 89, 301, 174};
    const auto weight = [&](std::size_t to) { return tokens[(to + table) % tokens.size()]; };
    std::size_t all = 0;
    for (std::size_t r = 0; r < ranks_; ++r) all += weight(r);
    std::vector<std::size_t> blocks;
    for (std::size_t from = 0; from < ranks_; ++from)
      for (std::size_t to = 0, before = 0; to < ranks_; before += weight(to++)) {
        const auto until = [&](std::size_t tokens) {
          return nominal_ * ranks_ * tokens / all;
        };  // so no element is lost
        blocks.push_back(until(before + weight(to)) - until(before));
      }
    return blocks;
  }

  static constexpr std::size_t table_count = 64;  ///< made before, as to make them is no part of a call
  std::vector<std::vector<std::size_t>> tables_;
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
