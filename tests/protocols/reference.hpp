// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a collective must yield, computed without any score: inputs that are small numbers, and outputs as exact 64-bit sums.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "protocols/program/program.hpp"
#include "protocols/score/score.hpp"

namespace troupe::reference {

/// Rank `q`'s contribution to element `e` of block `block`.
inline std::int64_t contribution(rank_t q, std::int64_t block, std::size_t e) {
  std::uint64_t h =
      static_cast<std::uint64_t>(q) * 0x9e3779b97f4a7c15u ^ static_cast<std::uint64_t>(block) * 0xbf58476d1ce4e5b9u ^ e;
  h = (h ^ h >> 31) * 0x94d049bb133111ebu;
  return static_cast<std::int64_t>(h >> 20);
}

/// Element `e` of a block as the output of `rank` must hold it.
inline std::int64_t expected(collective what, int ranks, rank_t root, rank_t rank, std::int64_t block, std::size_t e) {
  const auto sum_below = [&](rank_t end) {
    std::uint64_t sum = 0;
    for (rank_t q = 0; q < end; ++q) sum += static_cast<std::uint64_t>(contribution(q, block, e));
    return static_cast<std::int64_t>(sum);
  };
  switch (what) {
    case collective::all_reduce:
    case collective::reduce:
    case collective::reduce_scatter: return sum_below(ranks);
    case collective::scan: return sum_below(rank + 1);
    case collective::exscan: return sum_below(rank);
    case collective::all_gather:
    case collective::gather: return contribution(static_cast<rank_t>(block), block, e);
    case collective::broadcast:
    case collective::scatter: return contribution(root, block, e);
    case collective::all_to_all: return contribution(static_cast<rank_t>(block / ranks), block, e);
    case collective::barrier: break;
  }
  return 0;
}

/// The user buffers of one rank in one call of 64-bit integers; in place where the score is.
class user_buffers {
public:
  user_buffers(const score& s, rank_t rank, const call_shape& shape) : score_(&s), rank_(rank), shape_(shape) {
    const std::size_t in = input_bytes(s.what, s.ranks, s.root, rank, shape) / 8;
    const std::size_t out = output_bytes(s.what, s.ranks, s.root, rank, shape) / 8;
    if (!s.in_place) {
      first_.resize(in);
      second_.resize(out);
      input_ = first_.data();
      output_ = second_.data();
    } else {
      first_.resize(std::max(in, out));
      std::size_t before = 0;
      if (s.what == collective::all_gather || s.what == collective::reduce_scatter)
        for (std::int64_t b = 0; b < rank; ++b) before += shape.elements(b);
      input_ = first_.data() + (s.what == collective::all_gather ? before : 0);
      output_ = first_.data() + (s.what == collective::reduce_scatter ? before : 0);
    }
    std::size_t at = 0;
    each(input_blocks(s.what, s.ranks, s.root, rank),
         [&](std::int64_t block, std::size_t e) { input_[at++] = contribution(rank, block, e); });
  }
  user_buffers(user_buffers&&) = default;

  std::byte* input() { return reinterpret_cast<std::byte*>(input_); }
  std::byte* output() { return reinterpret_cast<std::byte*>(output_); }

  /// Elements that are not what they must be. @param divisor of all results: of averages
  std::size_t wrong(std::int64_t divisor = 1) const {
    std::size_t bad = 0, at = 0;
    each(output_blocks(score_->what, score_->ranks, score_->root, rank_), [&](std::int64_t block, std::size_t e) {
      bad += output_[at++] != expected(score_->what, score_->ranks, score_->root, rank_, block, e) / divisor;
    });
    return bad;
  }
  /// What a caller may do as soon as the call returns.
  void reuse() {
    std::fill(first_.begin(), first_.end(), -1);
    std::fill(second_.begin(), second_.end(), -1);
  }

private:
  template <class Function>
  void each(const block_run& run, Function f) const {
    for (int i = 0; i < run.count; ++i) {
      const std::int64_t block = run.first + static_cast<std::int64_t>(i) * run.stride;
      for (std::size_t e = 0; e < shape_.elements(block); ++e) f(block, e);
    }
  }

  const score* score_;
  rank_t rank_;
  call_shape shape_;
  std::vector<std::int64_t> first_, second_;
  std::int64_t* input_ = nullptr;
  std::int64_t* output_ = nullptr;
};

/// The collectives that have a v-form.
inline bool has_blocks(collective what) { return block_count(what, 2) > 1; }

inline std::string title(const score& s) {
  return s.choreography + " " + std::string{name(s.what)} + " on " + std::to_string(s.ranks) +
         (has_root(s.what) ? " root " + std::to_string(s.root) : "") + (s.in_place ? " in place" : "") +
         (s.uniform ? "" : " v");
}

}  // namespace troupe::reference
