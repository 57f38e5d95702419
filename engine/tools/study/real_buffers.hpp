// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of a study with payload = "real".

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/tools/crafted_values.hpp"
#include "engine/tools/study/study.hpp"

namespace troupe {

/// Buffers with values for which only one result is right.
class real_buffers {
public:
  real_buffers(const study_scenario& s, const job_shape& shape, int ranks)
      : scenario_(s), shape_(shape), ranks_(ranks), e_(size_of(s.type)) {
    bits_ = s.kind.reduces() ? std::vector<std::byte>{} : crafted_bits(s.type);
    for (rank_t r = 0; r < ranks; ++r) {
      const auto in = blocks(r, true), out = blocks(r, false);
      const std::size_t in_bytes = total(in) * e_, out_bytes = total(out) * e_;
      rooms_.emplace_back(s.in_place ? std::max(in_bytes, out_bytes) + 1 : in_bytes + out_bytes + 2);
      memory_map m;
      m.input = rooms_.back().data();
      m.output = s.in_place ? rooms_.back().data() : rooms_.back().data() + in_bytes + 1;
      if (s.in_place) place_own(m, r);
      fill(m.input, table_of(r), e_, in);
      maps_.push_back(m);
    }
  }

  std::span<const memory_map> maps() const { return maps_; }

  std::int64_t wrong() const {
    std::vector<std::byte> expected = bits_;
    rank_range of;
    std::uint64_t count = 0;
    for (rank_t r = 0; r < ranks_; ++r) {
      const block_run run = output_blocks(scenario_.kind.what, ranks_, scenario_.root, r);
      if (run.count == 0) continue;
      const rank_range from = contributors(scenario_.kind.what, ranks_, scenario_.root, r, run.first);
      if (bits_.empty() && !(from == of))
        expected = crafted_result(scenario_.type, scenario_.reduction, ranks_, of = from);
      count += count_wrong(maps_[static_cast<std::size_t>(r)].output, expected, e_, blocks(r, false));
    }
    return static_cast<std::int64_t>(count);
  }

private:
  /// Where a rank's own block lies in the larger buffer of an in-place call.
  void place_own(memory_map& m, rank_t rank) const {
    std::size_t before = 0;
    for (rank_t r = 0; r < rank; ++r) before += block(r).elements * e_;
    const std::size_t ins = blocks(rank, true).size(), outs = blocks(rank, false).size();
    if (ins == 0 || outs == 0) return;
    if (ins < outs) m.input += before;
    if (ins > outs) m.output += before;
  }
  std::vector<std::byte> table_of(rank_t r) const {
    return bits_.empty() ? crafted_input(scenario_.type, scenario_.reduction, ranks_, r) : bits_;
  }
  crafted_block block(std::int64_t index) const {
    const auto b = static_cast<std::size_t>(index);
    return {shape_.counts.empty() ? shape_.count : shape_.counts[b], b * 389};
  }
  std::vector<crafted_block> blocks(rank_t r, bool of_input) const {
    const collective what = scenario_.kind.what;
    const block_run run =
        of_input ? input_blocks(what, ranks_, scenario_.root, r) : output_blocks(what, ranks_, scenario_.root, r);
    std::vector<crafted_block> list;
    for (int i = 0; i < run.count; ++i) list.push_back(block(run.first + std::int64_t{i} * run.stride));
    return list;
  }
  static std::size_t total(const std::vector<crafted_block>& list) {
    std::size_t sum_of_elements = 0;
    for (const crafted_block& b : list) sum_of_elements += b.elements;
    return sum_of_elements;
  }

  const study_scenario& scenario_;
  const job_shape& shape_;
  int ranks_;
  std::size_t e_;
  std::vector<std::byte> bits_;
  std::vector<std::vector<std::byte>> rooms_;
  std::vector<memory_map> maps_;
};

}  // namespace troupe
