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

/// What one rank knows of its call with blocks of different sizes. Elements.
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
  std::size_t elements(const cell_range& at) const;
  /// Bytes before it in its buffer.
  std::size_t offset(const cell_range& at) const;
  std::size_t element_size() const { return element_size_; }
  /// Of the rank's own input or output: how many blocks, and elements of each. @pre not equal()
  std::size_t blocks(bool input) const { return (input ? mine_.input_begins : mine_.output_begins).size(); }
  std::size_t elements_of_block(bool input, std::size_t index) const;
  /// Bytes from the begin of the rank's input or output to the end of its last block.
  std::size_t bytes_of_own(bool input) const;
  /// What `to_own` of all ranks reads and writes together; the same at all of them. @pre all lists are known
  std::size_t bytes_to_own() const;
  /// Of the rank's own body; where blocks are equal, of any.
  std::size_t units(rank_t body) const;
  std::size_t scratch_bytes() const;
  /// About what all bodies together read and write.
  std::size_t bytes() const { return bytes_; }
  store_hint stores() const;

private:
  void set_equal(const call_shape& shape);
  void set_lists(const call_shape& shape);
  bool has_lists(const call_shape& shape) const;
  void begins(bool input, std::span<const std::size_t> displacements, std::vector<std::size_t>& begins) const;
  std::size_t block_elements(const cell_range& at) const;
  block_run own_blocks(bool input) const;
  std::size_t scratch_before(const cell_range& at, std::int32_t cell) const;
  std::size_t part_elements(const extent& e) const;
  std::size_t before(std::int32_t cell) const;

  const direct_program* code_ = nullptr;
  std::uint64_t identity_ = 0;  ///< of the program that was set last
  rank_t rank_ = 0;
  bool equal_ = true;
  std::size_t count_ = 0;
  std::size_t element_size_ = 1;
  std::size_t bytes_ = 0, own_bytes_ = 0;
  std::vector<std::size_t> parts_;  ///< where part k of a block begins, when all are equal
  std::vector<std::size_t> input_displacements_, output_displacements_;  ///< as given
  block_lists mine_;
  std::vector<const block_lists*> lists_;  ///< by rank; unless equal
};

}  // namespace troupe
