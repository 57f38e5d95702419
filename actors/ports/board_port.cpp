// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/board_port.hpp"

#include <algorithm>

#include "memory/kernels/kernels.hpp"

namespace troupe::actors {

std::shared_ptr<const plan> board_port::plan_of(const call& what) const {
  const remembered_calls::entry* known = calls_.find(what);
  return known != nullptr ? known->how : nullptr;
}

void board_port::remember(const call& what, const std::shared_ptr<const plan>& how) {
  if (calls_.put(std::make_unique<remembered_calls::entry>(what, how, rank_)) != nullptr) checked_.forget_all();
}

void board_port::start_fitted(remembered_calls::entry& known, const call_buffers& buffers, std::uint64_t sequence,
                              bool ahead, std::uint64_t history) {
  if (known.stages || (known.may_alias && keeps_input_apart(*known.how, known.what, rank_, buffers))) [[unlikely]] {
    call_buffers mine = buffers;
    if (known.stages) stage(known, mine);
    else mine.input = set_apart(known, mine);
    return start_on(known, mine, sequence, ahead, history);
  }
  start_on(known, buffers, sequence, ahead, history);
}

void board_port::start_on(remembered_calls::entry& known, const call_buffers& buffers, std::uint64_t sequence,
                          bool ahead, std::uint64_t history) {
  if (known.slots == nullptr) return start_direct(known, buffers, sequence, ahead, history);
  const call& what = known.what;
  const auto& own = ahead ? known.ahead : known.slots;
  const bool as_planned = what.uniform && what.count == known.how->count;  // most are, and need no shape
  const auto& code =
      as_planned ? own : fitted(known, own, ahead ? known.of_ahead : known.of_slots, shape_of(known, buffers));
  start_slots(known, code, buffers, sequence, history);
}

/// The plan's program, or the entry's own copy of it where the call has other sizes.
const std::shared_ptr<const slot_program>& board_port::fitted(const remembered_calls::entry& known,
                                                              const std::shared_ptr<const slot_program>& code,
                                                              remembered_calls::fitting& copy,
                                                              const call_shape& shape) {
  const bool plain = shape.counts.empty();
  if (plain && shape.count == known.how->count) return code;
  if (copy.fitted == nullptr) {
    copy.fitted = std::make_shared<slot_program>(*code);
    copy.own = copy.fitted;
    copy.count = unfitted;
  }
  // What it was fitted to last: the count of its blocks, `listed` where they have lists, `unfitted` if that threw.
  if (copy.count == (plain ? shape.count : listed) && (plain || copy.has(shape))) return copy.own;
  copy.count = unfitted;
  if (!plain) copy.keep(shape);
  fit(*copy.fitted, shape);
  copy.count = plain ? shape.count : listed;
  return copy.own;
}

/// A copy of the input, where the plan must not be performed in place.
const void* board_port::set_apart(const remembered_calls::entry& known, const call_buffers& buffers) {
  const call& what = known.what;
  if (what.uniform && what.count == 0) return buffers.input;
  const block_run run = input_blocks(what.what, board_->ranks(), what.root, rank_);
  std::size_t elements = 0, end = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(run.count); ++i) {
    const std::size_t count = own_elements(what, run, i);
    end += count;
    if (!buffers.input_displacements.empty()) end = buffers.input_displacements[i] + count;
    elements = std::max(elements, end);
  }
  const auto* begin = static_cast<const std::byte*>(buffers.input);
  apart_.assign(begin, begin + elements * size_of(known.how->work_type));
  return apart_.data();
}

/// Of block i of the rank's own buffer. Of several blocks it knows each; of its only one it may know others', too.
std::size_t board_port::own_elements(const call& what, const block_run& run, std::size_t i) const {
  if (what.uniform) return what.count;
  if (run.count > 1) return what.counts[i];
  return what.counts.size() == 1 ? what.counts[0] : what.counts[static_cast<std::size_t>(run.first)];
}

std::size_t board_port::elements_of(const call& what, const block_run& run) const {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(run.count); ++i) sum += own_elements(what, run, i);
  return sum;
}

/// The input is packed, and the result comes elsewhere if it is wider. As much as an operation over slots has: tens of KiB at most.
/// Allocates when it is more than ever before.
void board_port::stage(const remembered_calls::entry& known, call_buffers& buffers) {
  const plan& how = *known.how;
  const call& what = known.what;
  const std::size_t width = size_of(how.work_type), narrow = size_of(what.type);
  const block_run run = input_blocks(what.what, board_->ranks(), what.root, rank_);
  const std::size_t total = elements_of(what, run);
  if (total == 0) return;
  if (apart_.size() < total * width) apart_.resize(total * width);
  const auto* from = static_cast<const std::byte*>(buffers.input);
  std::byte* to = apart_.data();
  if (buffers.input_displacements.empty()) {
    stage_elements(known, from, to, total);
  } else {
    for (std::size_t i = 0; i < static_cast<std::size_t>(run.count); ++i) {
      const std::size_t count = own_elements(what, run, i);
      stage_elements(known, from + buffers.input_displacements[i] * narrow, to, count);
      to += count * width;
    }
  }
  buffers.input = apart_.data();
  buffers.input_displacements = {};
  if (!how.widened) return;
  const std::size_t results = elements_of(what, output_blocks(what.what, board_->ranks(), what.root, rank_)) * width;
  if (result_.size() < results) result_.resize(results);
  buffers.output = result_.data();
}

void board_port::stage_elements(const remembered_calls::entry& known, const std::byte* from, std::byte* to,
                                std::size_t count) {
  const plan& how = *known.how;
  const double factor = known.what.reduction.scale;
  if (count == 0) return;
  if (how.widened) {
    convert(known.what.type, from, how.work_type, to, count);
    // As scale() does for the call's type: low-precision types are multiplied by an f32.
    if (how.scaled) scale(how.work_type, static_cast<double>(static_cast<float>(factor)), to, to, count);
  } else {
    scale(how.work_type, factor, from, to, count);
  }
}

/// Only who has a result divides and rounds; exscan leaves rank 0's output alone.
void board_port::conclude_last(void* output) {
  const remembered_calls::entry& known = calls_.last();
  const call& what = known.what;
  const plan& how = *known.how;
  const int terms = contributor_count(what.what, board_->ranks(), what.root, rank_);
  if (terms == 0) return;
  const std::size_t count = elements_of(what, output_blocks(what.what, board_->ranks(), what.root, rank_));
  if (count == 0) return;
  const bool widened = known.stages && how.widened;
  void* const result = widened ? result_.data() : output;
  if (known.divides()) divide(how.work_type, static_cast<std::size_t>(terms), result, result, count);
  if (widened) convert(how.work_type, result, what.type, output, count);
}

void board_port::drop(std::uint64_t sequence) {
  if (performer_->idle()) board_->finish(rank_, sequence);
  else performer_->abandon();
}

}  // namespace troupe::actors
