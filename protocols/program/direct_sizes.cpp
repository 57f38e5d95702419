// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/direct_sizes.hpp"

#include <algorithm>

#include "protocols/program/cell_places.hpp"
#include "protocols/size_list.hpp"

namespace troupe {

namespace {

/// Read and written by a unit: long beside what claiming it costs, short beside the whole.
constexpr std::size_t unit_bytes = 128 * 1024;
/// Of each operand, on average: a unit has a piece of all of them, which lie far apart.
constexpr std::size_t least_piece_bytes = 16 * 1024;
/// All regions together; beyond, plain stores would read from memory what they overwrite, and nothing is found in a cache later.
/// Measured beside bench/limits, which tries both, with a last-level cache of 32 MiB: plain stores won at 32 MiB, others at 64. Copies of 24 to 32
/// MiB take two to three times as long past the caches in the same hours; sums half as long in hours in which other virtual machines fill the cache. Ranks find
/// out (actors/ports/direct/store_trials.hpp).
constexpr std::size_t stream_bytes = std::size_t{48} << 20;

std::size_t of(rank_t rank) { return static_cast<std::size_t>(rank); }

}  // namespace

bool direct_sizes::set(const direct_program& code, rank_t rank, const call_shape& shape) {
  const bool equal = shape.counts.empty();
  const bool again = equal == equal_ && code.identity == identity_ && shape.element_size == element_size_ &&
                     rank == rank_ && (equal ? shape.count == count_ : has_lists(shape));
  code_ = &code;
  lists_number_ = shape.lists_number;
  if (again) return false;
  identity_ = 0;  // no program's, until all is set: there may be no memory for it
  rank_ = rank;
  element_size_ = shape.element_size;
  equal_ = equal;
  whole_ = false;
  if (equal_) set_equal(shape);
  else set_lists(shape);
  identity_ = code.identity;
  return true;
}

bool direct_sizes::has_lists(const call_shape& shape) const {
  if (shape.lists_number != 0 && shape.lists_number == lists_number_) return true;
  return same_sizes(shape.counts, mine_.counts) && same_sizes(shape.received, mine_.received) &&
         same_sizes(shape.input_displacements, input_displacements_) &&
         same_sizes(shape.output_displacements, output_displacements_);
}

void direct_sizes::set_equal(const call_shape& shape) {
  count_ = shape.count;
  const auto parts = static_cast<std::size_t>(code_->parts);
  part_begins(count_, parts, parts_);
  bytes_ = code_->cells * element_size_ * count_ / parts;
}

void direct_sizes::set_lists(const call_shape& shape) {
  copy_sizes(shape.counts, mine_.counts);
  copy_sizes(shape.received, mine_.received);
  copy_sizes(shape.input_displacements, input_displacements_);
  copy_sizes(shape.output_displacements, output_displacements_);
  form_ = traits_of(code_->what).v;
  whole_ = code_->parts == 1;
  weighed_ = false;
  // A caller that asks about other ranks gives it their lists first.
  if (lists_.size() != code_->bodies.size()) lists_.resize(code_->bodies.size());
  lists_[of(rank_)] = &mine_;
  set_begins(true, shape.input_displacements, mine_.input_begins);
  set_begins(false, shape.output_displacements, mine_.output_begins);
}

void direct_sizes::set_begins(bool input, std::span<const std::size_t> displacements,
                              std::vector<std::size_t>& begins) {
  const block_run run = own_run(input);
  const auto blocks = static_cast<std::size_t>(run.count);
  // Of its only block a rank may have the count alone, or all ranks'.
  const bool has_all = form_ == v_counts::every_pair || blocks != 1 || mine_.counts.size() == 1;
  own_first_[input] = has_all ? 0 : static_cast<std::size_t>(run.first);
  if (begins.size() != blocks) begins.resize(blocks);
  const auto lengths = own_blocks(input);
  std::size_t sum = 0;
  for (std::size_t i = 0; i < blocks; ++i) {
    begins[i] = displacements.empty() ? sum : displacements[i];
    sum += lengths[i];
  }
}

void direct_sizes::weigh() {
  if (equal_ || weighed_) return;
  own_bytes_ = 0;
  for (const auto& p : code_->bodies[of(rank_)].passes) {
    const auto operands = code_->operands_of(p);
    const auto own = std::find_if(operands.begin(), operands.end(), [&](const auto& at) { return at.owner == rank_; });
    if (own != operands.end()) own_bytes_ += elements(*own) * p.all() * element_size_;
  }
  bytes_ = own_bytes_ * code_->bodies.size();
  weighed_ = true;
}

block_run direct_sizes::own_run(bool input) const {
  const auto ranks = static_cast<int>(code_->bodies.size());
  return input ? input_blocks(code_->what, ranks, code_->root, rank_)
               : output_blocks(code_->what, ranks, code_->root, rank_);
}

std::size_t direct_sizes::bytes_of_own(bool input) const {
  if (equal_) return static_cast<std::size_t>(own_run(input).count) * count_ * element_size_;
  std::size_t end = 0;
  const auto& begins = input ? mine_.input_begins : mine_.output_begins;
  const auto lengths = own_blocks(input);
  for (std::size_t i = 0; i < begins.size(); ++i) end = std::max(end, begins[i] + lengths[i]);
  return end * element_size_;
}

std::size_t direct_sizes::bytes_to_own() const {
  if (equal_) return bytes_;
  std::size_t sum = 0;
  for (const auto& own : code_->to_own)
    for (const auto& c : own) sum += elements(code_->operands[c.source]);
  return 2 * sum * element_size_;
}

/// Elements of the first `cell` cells of packed equal blocks.
std::size_t direct_sizes::before(std::int32_t cell) const {
  return static_cast<std::size_t>(cell / code_->parts) * count_ + parts_[static_cast<std::size_t>(cell % code_->parts)];
}

std::size_t direct_sizes::part_elements(const extent& e) const {
  const auto k = static_cast<std::size_t>(e.part);
  if (equal_) return parts_[k + 1] - parts_[k];
  cell_range at;
  at.block = e.block;
  at.owner = rank_;
  return cut_range({0, block_elements(at)}, static_cast<std::size_t>(code_->parts), k).size();
}

/// Elements of the owner's scratch before cell number `cell`.
std::size_t direct_sizes::scratch_before(const cell_range& at, std::int32_t cell) const {
  std::size_t sum = 0;
  for (std::int32_t i = 0; i < cell; ++i)
    sum += part_elements(code_->bodies[of(at.owner)].scratch[static_cast<std::size_t>(i)]);
  return sum;
}

std::size_t direct_sizes::elements_of_cells(const cell_range& at) const {
  if (at.count > 1 && at.buffer == buffer_kind::scratch)
    return scratch_before(at, at.cell + at.count) - scratch_before(at, at.cell);
  if (at.count > 1) return before(at.cell + at.count) - before(at.cell);
  const auto k = static_cast<std::size_t>(at.part);
  if (equal_) return parts_[k + 1] - parts_[k];
  return cut_range({0, block_elements(at)}, static_cast<std::size_t>(code_->parts), k).size();
}

std::size_t direct_sizes::offset_of_cells(const cell_range& at) const {
  if (at.buffer == buffer_kind::scratch) return scratch_before(at, at.cell) * element_size_;
  const auto index = static_cast<std::size_t>(at.index), part = static_cast<std::size_t>(at.part);
  if (equal_) return (index * count_ + parts_[part]) * element_size_;
  const block_lists& of_owner = *lists_[of(at.owner)];
  const std::size_t begin = (at.buffer == buffer_kind::input ? of_owner.input_begins : of_owner.output_begins)[index];
  return (begin + part_begin(block_elements(at), static_cast<std::size_t>(code_->parts), part)) * element_size_;
}

std::size_t direct_sizes::units(rank_t body) const {
  const auto& mine = code_->bodies[of(body)];
  if (!mine.divisible) return 1;
  const std::size_t bytes =
      equal_ ? mine.cells * element_size_ * count_ / static_cast<std::size_t>(code_->parts) : own_bytes_;
  const std::size_t least_bytes = std::max(unit_bytes, mine.operands * least_piece_bytes);
  return std::clamp<std::size_t>(bytes / least_bytes, 1, direct_sizes::most_units);
}

std::size_t direct_sizes::scratch_bytes() const {
  const auto& cells = code_->bodies[of(rank_)].scratch;
  cell_range at;
  at.owner = rank_;
  return cells.empty() ? 0 : scratch_before(at, static_cast<std::int32_t>(cells.size())) * element_size_;
}

store_hint direct_sizes::stores() const { return bytes_ > stream_bytes ? store_hint::streamed : store_hint::cached; }

}  // namespace troupe
