// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/cell_places.hpp"

#include <algorithm>
#include <limits>

#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

constexpr std::size_t limit = std::numeric_limits<std::size_t>::max() / 4;

}  // namespace

std::size_t checked_add(std::size_t a, std::size_t b) {
  if (a > limit || b > limit - a) throw error(errc::size_overflow, "the operation's buffers exceed the address space");
  return a + b;
}

std::size_t checked_multiply(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > limit)
    throw error(errc::size_overflow, "the operation's buffers exceed the address space");
  return product;
}

namespace {

/// Parts that are long begin on a line.
constexpr std::size_t line = 64;
std::size_t aligned(std::size_t begin, std::size_t length) { return length < 16 * line ? begin : begin / line * line; }

}  // namespace

std::size_t part_begin(std::size_t count, std::size_t n, std::size_t k) {
  const std::size_t quotient = count / n;
  const std::size_t begin = k * quotient + k * (count % n) / n;  // = ⌊k·count/n⌋ without overflow
  return k == n ? begin : aligned(begin, quotient);
}

void part_begins(std::size_t count, std::size_t n, std::vector<std::size_t>& begins) {
  begins.resize(n + 1);
  const std::size_t quotient = count / n, rest = count % n;
  std::size_t begin = 0, carried = 0;  // k · rest = extra · n + carried
  for (std::size_t k = 0; k < n; ++k) {
    begins[k] = aligned(begin, quotient);
    begin += quotient;
    carried += rest;
    if (carried >= n) carried -= n, ++begin;
  }
  begins[n] = count;
}

element_range cut_range(element_range whole, std::size_t n, std::size_t k) {
  if (n == 1)
    return whole;  // most cells and messages are not cut, and two divisions are half of what fitting a small call costs
  const std::size_t length = whole.size();
  return {whole.begin + part_begin(length, n, k), whole.begin + part_begin(length, n, k + 1)};
}

std::string slices_text(const cutting& cut) {
  std::string text = plural(static_cast<std::size_t>(cut.slices), "slice");
  if (cut.slices_per_step > 1) text += ", " + std::to_string(cut.slices_per_step) + " a step";
  return text;
}

element_range cut_range(element_range whole, const cutting& cut, int channel, int slice) {
  const element_range mine =
      cut_range(whole, static_cast<std::size_t>(cut.channels), static_cast<std::size_t>(channel));
  return cut_range(mine, static_cast<std::size_t>(cut.slices), static_cast<std::size_t>(slice));
}

cell_range cells_of(const score& s, rank_t rank, const place& at) {
  if (at.buffer == buffer_kind::none || at.count == 0) return {};
  const rank_t owner = at.owner == self ? rank : at.owner;
  const extent first = extent_of(s, owner, at.buffer, at.cell);
  const bool of_blocks = at.buffer == buffer_kind::input || at.buffer == buffer_kind::output;
  return {first.block, first.part,
          at.cell,     of_blocks ? at.cell / s.parts : 0,
          at.count,    owner == rank || at.buffer == buffer_kind::l2 ? self : owner,
          at.buffer};
}

// -- sizes ------------------------------------------------------------------------------------------------------------

cell_places::cell_places(const score& s, rank_t rank, const cutting& cut)
    : what_(s.what),
      ranks_(s.ranks),
      root_(s.root),
      part_count_(static_cast<std::size_t>(s.parts)),
      piece_count_(static_cast<std::size_t>(s.partitions)),
      cut_(cut),
      input_run_(input_blocks(s.what, s.ranks, s.root, rank)),
      output_run_(output_blocks(s.what, s.ranks, s.root, rank)),
      scratch_cells_(s.players[static_cast<std::size_t>(rank)].scratch),
      l0_cells_(s.players[static_cast<std::size_t>(rank)].l0),
      l2_cells_(s.l2) {}

void cell_places::set(const call_shape& shape) {
  shape_ = shape;
  const bool equal = shape.counts.empty();
  plain_ = equal && cut_ == cutting{} && shape.input_displacements.empty() && shape.output_displacements.empty();
  if (piece_count_ > 0) lay_out_pieces();
  else if (equal) part_begins(shape.count, part_count_, parts_);
  if (plain_) {
    const int most = std::max(input_run_.count, output_run_.count);
    checked_multiply(checked_multiply(shape.count, static_cast<std::size_t>(most)), shape.element_size);
  } else {
    block_begins(input_run_, shape.input_displacements, input_);
    block_begins(output_run_, shape.output_displacements, output_);
  }
  scratch_bytes = pack(scratch_cells_, scratch_);
  l2_bytes = pack(l2_cells_, l2_);
  l0_bytes = 0;
  if (!l0_cells_.empty()) lay_out_l0();
}

/// A caller has to know where its pieces begin, so they lie where it says, and only their parts are aligned.
void cell_places::lay_out_pieces() {
  const std::size_t parts = part_count_ / piece_count_, each = shape_.count / piece_count_,
                    rest = shape_.count % piece_count_;
  parts_.resize(part_count_ + 1);
  std::size_t begin = 0;
  for (std::size_t p = 0; p < piece_count_; ++p) {
    const std::size_t end =
        shape_.pieces.empty() ? (p + 1) * each + (p + 1) * rest / piece_count_ : begin + shape_.pieces[p];
    for (std::size_t k = 0; k < parts; ++k) parts_[p * parts + k] = begin + part_begin(end - begin, parts, k);
    begin = end;
  }
  parts_[part_count_] = begin;
}

element_range cell_places::part_of(std::int64_t block, std::int32_t part) const {
  const auto k = static_cast<std::size_t>(part);
  if (shape_.counts.empty()) return {parts_[k], parts_[k + 1]};
  return cut_range({0, shape_.elements(block)}, part_count_, k);
}

/// Returns the bytes of all.
std::size_t cell_places::pack(const std::vector<extent>& cells, std::vector<std::size_t>& begins) const {
  if (cells.empty()) return 0;
  begins.resize(cells.size() + 1);
  std::size_t at = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    begins[i] = at;
    at = checked_add(at, part_of(cells[i].block, cells[i].part).size());
  }
  begins.back() = at;
  return checked_multiply(at, shape_.element_size);
}

void cell_places::lay_out_l0() {
  // L0 is reused by every slice, so a cell there is as large as the largest slice of what it holds; each channel has its own.
  l0_.resize(l0_cells_.size() + 1);
  std::size_t at = 0;
  for (std::size_t i = 0; i < l0_cells_.size(); ++i) {
    l0_[i] = at;
    const element_range p = part_of(l0_cells_[i].block, l0_cells_[i].part);
    std::size_t largest = 0;
    for (int c = 0; c < cut_.channels; ++c)
      for (int s = 0; s < cut_.slices; ++s) largest = std::max(largest, cut_range(p, cut_, c, s).size());
    at += largest;
  }
  l0_.back() = l0_per_channel_ = at;
  l0_bytes = checked_multiply(checked_multiply(at, static_cast<std::size_t>(cut_.channels)), shape_.element_size);
}

void cell_places::block_begins(const block_run& run, std::span<const std::size_t> displacements,
                               std::vector<std::size_t>& begins) const {
  begins.resize(static_cast<std::size_t>(run.count));
  std::size_t at = 0;
  for (int i = 0; i < run.count; ++i) {
    const auto index = static_cast<std::size_t>(i);
    begins[index] = displacements.empty() ? at : displacements[index];
    at = checked_add(at, shape_.elements(run.first + static_cast<std::int64_t>(i) * run.stride));
  }
  checked_multiply(at, shape_.element_size);
}

// -- places -----------------------------------------------------------------------------------------------------------

/// Of the rank's own buffers, or another rank's, which is packed: where it is not, only its owner knows.
std::size_t cell_places::block_begin(const cell_range& at) const {
  const auto index = static_cast<std::size_t>(at.index);
  if (at.owner == self)
    return plain_ ? index * shape_.count : (at.buffer == buffer_kind::input ? input_ : output_)[index];
  if (shape_.counts.empty()) return index * shape_.count;
  const block_run run = at.buffer == buffer_kind::input ? input_blocks(what_, ranks_, root_, at.owner)
                                                        : output_blocks(what_, ranks_, root_, at.owner);
  std::size_t begin = 0;
  for (int i = 0; i < at.index; ++i) begin += shape_.elements(run.first + static_cast<std::int64_t>(i) * run.stride);
  return begin;
}

location cell_places::locate_cut(const cell_range& at, int channel, int slice, std::size_t& elements) const {
  if (at.buffer == buffer_kind::none || at.count == 0) {
    elements = 0;
    return {};
  }
  const element_range whole = part_of(at.block, at.part);
  const element_range mine = cut_range(whole, cut_, channel, slice);
  const bool of_blocks = at.buffer == buffer_kind::input || at.buffer == buffer_kind::output;
  const auto cell = static_cast<std::size_t>(at.cell);
  std::size_t begin = 0;
  elements = mine.size();
  if (of_blocks) begin = block_begin(at) + mine.begin;
  else if (at.buffer == buffer_kind::l0) begin = static_cast<std::size_t>(channel) * l0_per_channel_ + l0_[cell];
  else begin = (at.buffer == buffer_kind::l2 ? l2_ : scratch_)[cell] + (mine.begin - whole.begin);
  if (at.count > 1) {
    // Neighbours, which are whole: nothing is cut.
    const auto end = static_cast<std::size_t>(at.cell + at.count);
    if (of_blocks) {
      elements = before(at.cell + at.count) - before(at.cell);
    } else {
      const auto& begins = at.buffer == buffer_kind::l0 ? l0_ : at.buffer == buffer_kind::l2 ? l2_ : scratch_;
      elements = begins[end] - begins[cell];
    }
  }
  return {begin * shape_.element_size, at.owner, at.buffer};
}

}  // namespace troupe
