// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program that is never written down: each step of the score becomes a brief instruction when it is performed. compile() (program.hpp)
// makes the same instructions for virtual time, with the places of cells; a study of millions of steps cannot afford its memory, and one of
// millions of ranks cannot afford more than a few cache lines a lane.
//
// Immutable once made; the score outlives it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include "protocols/program/program.hpp"
#include "protocols/score/score.hpp"

namespace troupe {

/// Data shared by the lazy programs of all ranks: sizes of cells.
class lazy_sizes {
public:
  /// @pre as for compile(); steps on several cells only if `cut` is {1, 1} and the call is uniform
  lazy_sizes(const score& s, const call_shape& shape, const cutting& cut);

  const score& notes() const { return *score_; }
  const call_shape& shape() const { return shape_; }
  const cutting& cut() const { return cut_; }
  int lanes() const { return lanes_; }

  /// Elements of a piece of the cell that `e` names.
  std::size_t elements(const extent& e, int channel, int slice) const {
    const auto part = static_cast<std::size_t>(e.part);
    const std::size_t whole = begins_.empty() ? elements_of_part(e) : begins_[part + 1] - begins_[part];
    return whole_cells_ ? whole : piece(whole, channel, slice);
  }

  bool uncut_and_uniform() const { return whole_cells_ && !begins_.empty(); }
  /// Elements of the first `cells` cells of a packed buffer. @pre uncut_and_uniform
  std::size_t elements_before(std::int32_t cells) const {
    const auto parts = static_cast<std::int32_t>(begins_.size()) - 1;
    return static_cast<std::size_t>(cells / parts) * begins_.back() + begins_[static_cast<std::size_t>(cells % parts)];
  }

private:
  std::size_t elements_of_part(const extent& e) const;
  std::size_t piece(std::size_t whole, int channel, int slice) const;

  const score* score_;
  call_shape shape_;
  cutting cut_;
  int lanes_ = 0;  ///< of the rank that has most
  bool whole_cells_;
  std::vector<std::size_t> begins_;  ///< uniform: where part k of a block begins
};

class lazy_program;

/// An instruction without the places of its bytes.
struct brief_instruction {
  std::size_t elements = 0;
  rank_t from = -1, to = -1;
  rank_t source_owner = self, target_owner = self;
  std::int32_t after_lane = -1, after_index = -1;
  std::int32_t score_step = -1, slice = 0;
  std::uint16_t fan = 0;
  step_kind kind = step_kind::wait;
  buffer_kind source = buffer_kind::none, target = buffer_kind::none;

  brief_instruction() = default;
  explicit brief_instruction(const instruction& i)
      : elements(i.elements),
        from(i.from),
        to(i.to),
        source_owner(i.source.owner),
        target_owner(i.target.owner),
        after_lane(i.after_lane),
        after_index(i.after_index),
        score_step(i.score_step),
        slice(i.slice),
        fan(i.fan),
        kind(i.kind),
        source(i.source.buffer),
        target(i.target.buffer) {}
};

/// One lane of one channel: lane()[i] is made on the fly.
class lazy_lane {
public:
  lazy_lane() = default;
  lazy_lane(const lazy_program& of, const lane& steps, int channel, int slices)
      : of_(&of),
        steps_(steps.data()),
        size_(steps.size() * static_cast<std::size_t>(slices)),
        count_(static_cast<std::uint32_t>(steps.size())),
        channel_(channel) {}
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  brief_instruction operator[](std::size_t index) const;

private:
  const lazy_program* of_ = nullptr;
  const step* steps_ = nullptr;
  std::size_t size_ = 0;
  std::uint32_t count_ = 0;
  std::int32_t channel_ = 0;
};

/// One rank's. The members that basic_performer reads are named as in `program`.
class lazy_program {
public:
  /// @param memory of its performers' lanes; outlives them
  lazy_program(std::shared_ptr<const lazy_sizes> sizes, rank_t rank,
               std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  lazy_lane lane(int channel, int l) const;
  /// The instruction of `from` in this slice and channel. Its locations only say whose memory it is.
  brief_instruction expand(const step& from, std::int32_t position, int channel, int slice) const;
  slice_order order() const { return sizes_->cut().order(); }

  int lanes_per_channel = 1;
  std::size_t element_size = 1;
  std::pmr::memory_resource* lane_memory;

private:
  std::size_t elements_of(const place& at, int channel, int slice) const;

  std::shared_ptr<const lazy_sizes> sizes_;
  rank_t rank_;
  block_run input_, output_;
};

// -- implementation ---------------------------------------------------------------------------------------------------

inline brief_instruction lazy_lane::operator[](std::size_t index) const {
  if (size_ == count_) {
    __builtin_prefetch(steps_ + index + 1);  // until then the run is with thousands of other lanes
    return of_->expand(steps_[index], static_cast<std::int32_t>(index), channel_, 0);
  }
  const auto [step, slice] = of_->order().at(count_, index);
  return of_->expand(steps_[step], static_cast<std::int32_t>(step), channel_, slice);
}

}  // namespace troupe
