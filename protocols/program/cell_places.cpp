#include "protocols/program/cell_places.hpp"

#include <algorithm>
#include <limits>

#include "memory/error.hpp"

namespace troupe {

namespace {

constexpr std::size_t limit = std::numeric_limits<std::size_t>::max() / 4;

}  // namespace

std::size_t checked_add(std::size_t a, std::size_t b) {
  if (a > limit || b > limit - a) throw error(errc::size_overflow, "the operation's buffers exceed the address space");
  return a + b;
}

std::size_t checked_multiply(std::size_t a, std::size_t b) {
  if (b != 0 && a > limit / b) throw error(errc::size_overflow, "the operation's buffers exceed the address space");
  return a * b;
}

element_range cut_range(element_range whole, std::size_t n, std::size_t k) {
  const std::size_t length = whole.size();
  return {whole.begin + part_begin(length, n, k), whole.begin + part_begin(length, n, k + 1)};
}

element_range cut_range(element_range whole, const cutting& cut, int channel, int slice) {
  const element_range mine =
      cut_range(whole, static_cast<std::size_t>(cut.channels), static_cast<std::size_t>(channel));
  return cut_range(mine, static_cast<std::size_t>(cut.slices), static_cast<std::size_t>(slice));
}

cell_places::cell_places(const score& s, rank_t rank, const call_shape& shape, const cutting& cut)
    : score_(s), rank_(rank), shape_(shape), cut_(cut) {
  scratch_ = pack(s.players[static_cast<std::size_t>(rank)].scratch, scratch_bytes);
  l2_ = pack(s.l2, l2_bytes);
  lay_out_l0();
  for (const buffer_kind b : {buffer_kind::input, buffer_kind::output}) block_begins(b);
}

element_range cell_places::part_of(const extent& e) const {
  return cut_range({0, shape_.elements(e.block)}, static_cast<std::size_t>(score_.parts),
                   static_cast<std::size_t>(e.part));
}

std::vector<std::size_t> cell_places::pack(const std::vector<extent>& cells, std::size_t& bytes) const {
  std::vector<std::size_t> begins;
  begins.reserve(cells.size());
  std::size_t at = 0;
  for (const extent& e : cells) {
    begins.push_back(at);
    at = checked_add(at, part_of(e).size());
  }
  bytes = checked_multiply(at, shape_.element_size);
  return begins;
}

void cell_places::lay_out_l0() {
  // L0 is reused by every slice, so a cell there is as large as the largest slice of what it holds; each channel has its own.
  std::size_t at = 0;
  for (const extent& e : score_.players[static_cast<std::size_t>(rank_)].l0) {
    l0_.push_back(at);
    const element_range p = part_of(e);
    std::size_t largest = 0;
    for (int c = 0; c < cut_.channels; ++c)
      for (int s = 0; s < cut_.slices; ++s) largest = std::max(largest, cut_range(p, cut_, c, s).size());
    at += largest;
  }
  l0_per_channel_ = at;
  l0_bytes = checked_multiply(checked_multiply(at, static_cast<std::size_t>(cut_.channels)), shape_.element_size);
}

void cell_places::block_begins(buffer_kind buffer) {
  auto& begins = buffer == buffer_kind::input ? input_ : output_;
  const auto displacements = buffer == buffer_kind::input ? shape_.input_displacements : shape_.output_displacements;
  const block_run run = buffer == buffer_kind::input ? input_blocks(score_.what, score_.ranks, score_.root, rank_)
                                                     : output_blocks(score_.what, score_.ranks, score_.root, rank_);
  std::size_t at = 0;
  for (int i = 0; i < run.count; ++i) {
    const auto index = static_cast<std::size_t>(i);
    begins.push_back(displacements.empty() ? at : displacements[index]);
    at = checked_add(at, shape_.elements(run.first + static_cast<std::int64_t>(i) * run.stride));
  }
  checked_multiply(at, shape_.element_size);
}

location cell_places::locate(const place& at, int channel, int slice, std::size_t& elements) const {
  if (at.buffer == buffer_kind::none || at.count == 0) return {};
  const rank_t owner = at.owner == self ? rank_ : at.owner;
  const extent first = extent_of(score_, owner, at.buffer, at.cell);
  const element_range whole = part_of(first);
  const element_range mine = cut_range(whole, cut_, channel, slice);
  elements = mine.size();
  for (std::int32_t i = 1; i < at.count; ++i)
    elements += part_of(extent_of(score_, owner, at.buffer, at.cell + i)).size();
  std::size_t begin = 0;
  const auto cell = static_cast<std::size_t>(at.cell);
  const bool foreign = owner != rank_ && at.buffer != buffer_kind::l2;
  switch (at.buffer) {
    case buffer_kind::input:
    case buffer_kind::output: {
      // Another rank's buffer is packed and uniform (foreign memory is refused otherwise when the plan is made).
      const std::size_t index = cell / static_cast<std::size_t>(score_.parts);
      const auto& begins = at.buffer == buffer_kind::input ? input_ : output_;
      begin = (foreign ? index * shape_.count : begins[index]) + mine.begin;
      break;
    }
    case buffer_kind::scratch: begin = scratch_[cell] + (mine.begin - whole.begin); break;
    case buffer_kind::l2: begin = l2_[cell] + (mine.begin - whole.begin); break;
    case buffer_kind::l0: begin = static_cast<std::size_t>(channel) * l0_per_channel_ + l0_[cell]; break;
    case buffer_kind::none: break;
  }
  return {begin * shape_.element_size, foreign ? owner : self, at.buffer};
}

}  // namespace troupe
