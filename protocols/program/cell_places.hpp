// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the cells of one rank's buffers lie when a score is performed for a call: cells → elements → bytes.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocols/program/cells.hpp"

namespace troupe {

/// A range of elements of a block.
struct element_range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

/// The k-th of n pieces of `whole`. @pre k < n
element_range cut_range(element_range whole, std::size_t n, std::size_t k);
/// Piece of the channel, then piece of the slice.
element_range cut_range(element_range whole, const cutting& cut, int channel, int slice);

/// a + b, a · b; throw error(size_overflow).
std::size_t checked_add(std::size_t a, std::size_t b);
std::size_t checked_multiply(std::size_t a, std::size_t b);

/// Knows the score's cells, and the sizes of the call that it was last set to.
class cell_places {
public:
  cell_places() = default;
  cell_places(const score& s, rank_t rank, const cutting& cut);

  /// @param shape its lists outlive the next locate(). Throws error(size_overflow).
  void set(const call_shape& shape);

  /// Begin (bytes) and length (elements) of cells in this channel and slice. Several cells only when nothing is cut and all blocks
  /// are equal. @pre set()
  location locate(const cell_range& at, int channel, int slice, std::size_t& elements) const {
    if (!plain_ || at.buffer == buffer_kind::l0 || at.count == 0) return locate_cut(at, channel, slice, elements);
    std::size_t begin = 0;
    if (at.buffer == buffer_kind::input || at.buffer == buffer_kind::output) {
      const auto part = static_cast<std::size_t>(at.part);
      begin = static_cast<std::size_t>(at.index) * shape_.count + parts_[part];
      elements = at.count == 1 ? parts_[part + 1] - parts_[part] : before(at.cell + at.count) - begin;
    } else {
      const auto& begins = at.buffer == buffer_kind::l2 ? l2_ : scratch_;
      const auto cell = static_cast<std::size_t>(at.cell);
      begin = begins[cell];
      elements = begins[cell + static_cast<std::size_t>(at.count)] - begin;
    }
    return {begin * shape_.element_size, at.owner, at.buffer};
  }

  const std::vector<extent>& scratch_cells() const { return scratch_cells_; }
  std::int32_t l2_cell_count() const { return static_cast<std::int32_t>(l2_cells_.size()); }
  /// Bytes of L2 before that cell. @pre set(), 0 <= cell < l2_cell_count()
  std::size_t l2_begin(std::int32_t cell) const { return l2_[static_cast<std::size_t>(cell)] * shape_.element_size; }

  std::size_t scratch_bytes = 0;
  std::size_t l0_bytes = 0;
  std::size_t l2_bytes = 0;

private:
  location locate_cut(const cell_range& at, int channel, int slice, std::size_t& elements) const;
  std::size_t block_begin(const cell_range& at) const;
  std::size_t before(std::int32_t cell) const {
    const auto n = static_cast<std::int32_t>(parts_.size()) - 1;
    return static_cast<std::size_t>(cell / n) * shape_.count + parts_[static_cast<std::size_t>(cell % n)];
  }
  element_range part_of(std::int64_t block, std::int32_t part) const;
  std::size_t pack(const std::vector<extent>& cells, std::vector<std::size_t>& begins) const;
  void lay_out_l0();
  void lay_out_pieces();
  void block_begins(const block_run& run, std::span<const std::size_t> displacements,
                    std::vector<std::size_t>& begins) const;

  collective what_ = collective::barrier;
  int ranks_ = 0;
  rank_t root_ = 0;
  std::size_t part_count_ = 1;
  std::size_t piece_count_ = 0;
  cutting cut_;
  block_run input_run_, output_run_;
  std::vector<extent> scratch_cells_, l0_cells_, l2_cells_;

  call_shape shape_;
  bool plain_ = false;                          ///< nothing is cut, all blocks are equal and packed
  std::vector<std::size_t> parts_;              ///< where part k of a block begins, when all are equal
  std::vector<std::size_t> scratch_, l0_, l2_;  ///< begin of each cell, in elements; and, but for L0, the end
  std::vector<std::size_t> input_, output_;     ///< begin of each block, unless plain
  std::size_t l0_per_channel_ = 0;
};

}  // namespace troupe
