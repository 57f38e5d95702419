// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program that is never written down: each step of the score becomes an instruction when it is performed. compile() (program.hpp)
// makes the same instructions for virtual time, with the places of cells; a study of millions of steps cannot afford its memory.
//
// Immutable once made; the score outlives it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "protocols/program/program.hpp"
#include "protocols/score/score.hpp"

namespace troupe {

/// What all ranks' lazy programs share: sizes of cells.
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

/// One lane of one channel: lane()[i] is made on the fly.
class lazy_lane {
public:
  lazy_lane() = default;
  lazy_lane(const lazy_program& of, const lane& steps, int channel, int slices)
      : of_(&of),
        steps_(steps.data()),
        count_(steps.size()),
        size_(steps.size() * static_cast<std::size_t>(slices)),
        channel_(channel) {}
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  instruction operator[](std::size_t index) const;

private:
  const lazy_program* of_ = nullptr;
  const step* steps_ = nullptr;
  std::size_t count_ = 0, size_ = 0;
  int channel_ = 0;
};

/// One rank's. The members that basic_performer reads are named as in `program`.
class lazy_program {
public:
  lazy_program(std::shared_ptr<const lazy_sizes> sizes, rank_t rank);

  lazy_lane lane(int channel, int l) const;
  /// The instruction of `from` in this slice and channel. Its locations only say whose memory it is.
  instruction expand(const step& from, std::int32_t position, int channel, int slice) const;

  int lanes_per_channel = 1;
  std::size_t element_size = 1;
  std::vector<location> operands;  ///< none: there are no folds
  sum_handling sums;

private:
  std::size_t elements_of(const place& at, int channel, int slice) const;

  std::shared_ptr<const lazy_sizes> sizes_;
  rank_t rank_;
  block_run input_, output_;
};

// -- implementation ---------------------------------------------------------------------------------------------------

inline instruction lazy_lane::operator[](std::size_t index) const {
  if (size_ == count_) return of_->expand(steps_[index], static_cast<std::int32_t>(index), channel_, 0);
  const std::size_t slice = index / count_, at = index % count_;
  return of_->expand(steps_[at], static_cast<std::int32_t>(at), channel_, static_cast<int>(slice));
}

}  // namespace troupe
