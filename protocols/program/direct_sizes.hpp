// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the sizes of one operation make of a direct program: how many elements a pass has, where its operands lie, and into how many
// units a body is cut. Made anew when an operation begins, in the memory of the one before, and asked for operands as they are needed,
// since most ranks perform few of all bodies.
//
// Where blocks differ in size a rank knows its own buffers only; of the others' it asks their lists, which they publish with the
// addresses of their buffers.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/kernels/kernels.hpp"
#include "protocols/program/direct_program.hpp"

namespace troupe {

/// One rank's knowledge of its call with blocks of different sizes. Elements.
struct block_lists {
  std::vector<std::size_t> counts;                       ///< as call::counts
  std::vector<std::size_t> received;                     ///< as call::receive_counts
  std::vector<std::size_t> input_begins, output_begins;  ///< of each block that the rank has
};

class direct_sizes {
public:
  /// For an operation of `rank`. Copies the lists that `shape` names. False: nothing has changed since the last time. @param code outlives it
  bool set(const direct_program& code, rank_t rank, const call_shape& shape);

  /// All blocks have the same size, so nobody's lists are needed.
  bool equal() const { return equal_; }
  /// Valid until the next set(). @pre not equal()
  const block_lists& mine() const { return mine_; }
  /// @pre not equal(). @param lists outlives every question about buffers of `owner`
  void learn(rank_t owner, const block_lists* lists) { lists_[static_cast<std::size_t>(owner)] = lists; }

  // -- questions; about another rank's operand only when its lists are known --
  std::size_t elements(const cell_range& at) const {
    return is_block(at) && at.count == 1 ? block_elements(at) : elements_of_cells(at);
  }
  /// Bytes before it in its buffer.
  std::size_t offset(const cell_range& at) const {
    if (!is_block(at)) return offset_of_cells(at);
    const block_lists& of = *lists_[static_cast<std::size_t>(at.owner)];
    const auto& begins = at.buffer == buffer_kind::input ? of.input_begins : of.output_begins;
    return begins[static_cast<std::size_t>(at.index)] * element_size_;
  }
  std::size_t element_size() const { return element_size_; }
  /// Of the rank's own input or output: the elements of each block. @pre not equal()
  std::span<const std::size_t> own_blocks(bool input) const {
    const auto& list = input || form_ != v_counts::every_pair ? mine_.counts : mine_.received;
    return std::span(list).subspan(own_first_[input], (input ? mine_.input_begins : mine_.output_begins).size());
  }
  /// Bytes from the begin of the rank's input or output to the end of its last block.
  std::size_t bytes_of_own(bool input) const;
  /// The total that `to_own` of all ranks reads and writes; the same at all of them. @pre all lists are known
  std::size_t bytes_to_own() const;
  std::size_t scratch_bytes() const;

  /// Adds up what bodies read and write, if that is not known yet. Only where blocks differ is it not.
  void weigh();
  // -- @pre weigh() since set(), or equal() --
  /// Of the rank's own body; where blocks are equal, of any.
  std::size_t units(rank_t body) const;
  static constexpr std::size_t most_units = 64;
  /// About what all bodies together read and write.
  std::size_t bytes() const { return bytes_; }
  store_hint stores() const;

private:
  void set_equal(const call_shape& shape);
  void set_lists(const call_shape& shape);
  bool has_lists(const call_shape& shape) const;
  void set_begins(bool input, std::span<const std::size_t> displacements, std::vector<std::size_t>& begins);
  /// Where blocks differ, and are not cut.
  bool is_block(const cell_range& at) const { return whole_ && at.buffer != buffer_kind::scratch; }
  std::size_t elements_of_cells(const cell_range& at) const;
  std::size_t offset_of_cells(const cell_range& at) const;
  std::size_t block_elements(const cell_range& at) const;
  block_run own_run(bool input) const;
  std::size_t scratch_before(const cell_range& at, std::int32_t cell) const;
  std::size_t part_elements(const extent& e) const;
  std::size_t before(std::int32_t cell) const;

  const direct_program* code_ = nullptr;
  std::uint64_t identity_ = 0;      ///< of the program that was set last
  std::uint64_t lists_number_ = 0;  ///< call_shape::lists_number
  rank_t rank_ = 0;
  bool equal_ = true, weighed_ = true;
  v_counts form_ = v_counts::none;
  bool whole_ = false;             ///< blocks differ, and are not cut
  std::size_t own_first_[2] = {};  ///< output's, input's: the rank's first block in its list
  std::size_t count_ = 0;
  std::size_t element_size_ = 1;
  std::size_t bytes_ = 0, own_bytes_ = 0;
  std::vector<std::size_t> parts_;  ///< where part k of a block begins, when all are equal
  std::vector<std::size_t> input_displacements_, output_displacements_;  ///< as given
  block_lists mine_;
  std::vector<const block_lists*> lists_;  ///< by rank; unless equal
};

/// Of the block that the cells are of, as the owner of their buffer knows it.
inline std::size_t direct_sizes::block_elements(const cell_range& at) const {
  if (equal_) return count_;
  const auto owner = static_cast<std::size_t>(at.owner), index = static_cast<std::size_t>(at.index),
             block = static_cast<std::size_t>(at.block);
  if (form_ == v_counts::rooted) {
    const auto& list = lists_[owner]->counts;
    return list.size() == 1 ? list[0] : list[block];
  }
  if (form_ != v_counts::every_pair) return mine_.counts[block];
  if (at.buffer == buffer_kind::input) return lists_[owner]->counts[index];
  if (at.buffer == buffer_kind::output) return lists_[owner]->received[index];
  const std::size_t ranks = lists_.size();
  return lists_[block / ranks]->counts[block % ranks];
}

}  // namespace troupe
