#pragma once
// Where the cells of one rank's buffers lie when a score is performed for a call: cells → elements → bytes. Internal to compile()
// and, how cells are cut, to lazy_program.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocols/program/program.hpp"
#include "protocols/score/score.hpp"

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

/// Immutable; the score and what `shape` refers to outlive it.
class cell_places {
public:
  /// Throws error(size_overflow).
  cell_places(const score& s, rank_t rank, const call_shape& shape, const cutting& cut);

  /// Begin and length (elements) of a place in this channel and slice. Several cells only when nothing is cut.
  location locate(const place& at, int channel, int slice, std::size_t& elements) const;
  /// Does the place belong to another rank, or to all?
  bool is_shared(const place& at) const {
    return at.count > 0 &&
           (at.buffer == buffer_kind::l2 || (at.buffer != buffer_kind::none && at.owner != self && at.owner != rank_));
  }

  std::size_t scratch_bytes = 0;
  std::size_t l0_bytes = 0;
  std::size_t l2_bytes = 0;

private:
  element_range part_of(const extent& e) const;
  std::vector<std::size_t> pack(const std::vector<extent>& cells, std::size_t& bytes) const;
  void lay_out_l0();
  void block_begins(buffer_kind buffer);

  const score& score_;
  rank_t rank_;
  call_shape shape_;
  cutting cut_;
  std::vector<std::size_t> scratch_, l0_, l2_, input_, output_;  ///< begin of each cell (or block), in elements
  std::size_t l0_per_channel_ = 0;
};

}  // namespace troupe
