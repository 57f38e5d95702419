// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/lazy_program.hpp"

#include <algorithm>

#include "protocols/program/cell_places.hpp"

namespace troupe {

lazy_sizes::lazy_sizes(const score& s, const call_shape& shape, const cutting& cut)
    : score_(&s), shape_(shape), cut_(cut), whole_cells_(cut == cutting{}) {
  for (const part& p : s.players) lanes_ = std::max(lanes_, static_cast<int>(p.lanes.size()));
  if (!shape.counts.empty()) return;
  const auto parts = static_cast<std::size_t>(s.parts);
  begins_.reserve(parts + 1);
  for (std::size_t k = 0; k <= parts; ++k) begins_.push_back(part_begin(shape.count, parts, k));
}

std::size_t lazy_sizes::elements_of_part(const extent& e) const {
  if (score_->parts == 1) return shape_.elements(e.block);
  return cut_range({0, shape_.elements(e.block)}, static_cast<std::size_t>(score_->parts),
                   static_cast<std::size_t>(e.part))
      .size();
}

std::size_t lazy_sizes::piece(std::size_t whole, int channel, int slice) const {
  return cut_range({0, whole}, cut_, channel, slice).size();
}

lazy_program::lazy_program(std::shared_ptr<const lazy_sizes> sizes, rank_t rank, std::pmr::memory_resource* memory)
    : lanes_per_channel(sizes->lanes()),
      element_size(sizes->shape().element_size),
      lane_memory(memory),
      sizes_(std::move(sizes)),
      rank_(rank) {
  const score& s = sizes_->notes();
  input_ = input_blocks(s.what, s.ranks, s.root, rank);
  output_ = output_blocks(s.what, s.ranks, s.root, rank);
}

lazy_lane lazy_program::lane(int channel, int l) const {
  const auto& lanes = sizes_->notes().players[static_cast<std::size_t>(rank_)].lanes;
  if (static_cast<std::size_t>(l) >= lanes.size()) return {};
  return {*this, lanes[static_cast<std::size_t>(l)], channel, sizes_->cut().slices};
}

std::size_t lazy_program::elements_of(const place& at, int channel, int slice) const {
  const score& s = sizes_->notes();
  const bool own = at.owner == self || at.owner == rank_;
  if (at.count > 1 && own && sizes_->uncut_and_uniform() &&
      (at.buffer == buffer_kind::input || at.buffer == buffer_kind::output))
    return sizes_->elements_before(at.cell + at.count) - sizes_->elements_before(at.cell);
  std::size_t sum = 0;
  for (std::int32_t i = 0; i < at.count; ++i) {
    const std::int32_t cell = at.cell + i;
    extent e;
    if (!own) {
      e = extent_of(s, at.owner, at.buffer, cell);
    } else {
      switch (at.buffer) {
        case buffer_kind::none: return 0;
        case buffer_kind::scratch:
          e = s.players[static_cast<std::size_t>(rank_)].scratch[static_cast<std::size_t>(cell)];
          break;
        case buffer_kind::l0: e = s.players[static_cast<std::size_t>(rank_)].l0[static_cast<std::size_t>(cell)]; break;
        case buffer_kind::l2: e = s.l2[static_cast<std::size_t>(cell)]; break;
        case buffer_kind::input:
        case buffer_kind::output: {
          const block_run& run = at.buffer == buffer_kind::input ? input_ : output_;
          if (run.count == 1) e = {run.first, cell};  // no division: the ring's hot path
          else e = {run.first + static_cast<std::int64_t>(cell / s.parts) * run.stride, cell % s.parts};
        }
      }
    }
    sum += sizes_->elements(e, channel, slice);
  }
  return sum;
}

brief_instruction lazy_program::expand(const step& from, std::int32_t position, int channel, int slice) const {
  brief_instruction made;
  made.kind = from.kind;
  if (sizes_->cut().slices_per_step == 1) made.fan = from.fan;  // as compile()
  made.from = from.from;
  made.to = from.to;
  made.elements = elements_of(from.target.count > 0 ? from.target : from.source, channel, slice);
  // Accesses of others' memory have a way of their own.
  made.source = from.source.buffer;
  made.source_owner = from.source.owner == rank_ ? self : from.source.owner;
  made.target = from.target.buffer;
  made.target_owner = from.target.owner == rank_ ? self : from.target.owner;
  made.after_lane = from.after.lane;
  if (from.after.lane >= 0) {
    const auto& other =
        sizes_->notes().players[static_cast<std::size_t>(rank_)].lanes[static_cast<std::size_t>(from.after.lane)];
    made.after_index =
        static_cast<std::int32_t>(order().index_of(other.size(), {static_cast<std::size_t>(from.after.step), slice}));
  }
  made.score_step = position;
  made.slice = slice;
  return made;
}

}  // namespace troupe
