// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/board_port.hpp"

#include "actors/rank/staging.hpp"

namespace troupe::actors {

std::shared_ptr<const plan> board_port::plan_of(const call& what) const {
  const remembered_calls::entry* known = calls_.find(what);
  return known != nullptr ? known->how : nullptr;
}

void board_port::remember(const call& what, const std::shared_ptr<const plan>& how) {
  auto displaced = calls_.put(std::make_unique<remembered_calls::entry>(what, how, rank_));
  if (displaced == nullptr) return;
  checked_.forget_all();
  displaced_ = std::move(displaced);
}

void board_port::start_fitted(remembered_calls::entry& known, const call_buffers& buffers, std::uint64_t sequence,
                              bool ahead, std::uint64_t history) {
  if (known.stages || (known.may_alias && keeps_input_apart(*known.how, known.what, rank_, buffers))) [[unlikely]] {
    call_buffers mine = buffers;
    stage(known, mine);
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
      as_planned ? *own : fitted(known, *own, ahead ? known.of_ahead : known.of_slots, shape_of(known, buffers));
  start_slots(known, code, buffers, sequence, history);
}

/// The plan's program, or the entry's own copy of it where the call has other sizes.
const slot_program& board_port::fitted(const remembered_calls::entry& known, const slot_program& code,
                                       remembered_calls::fitting& copy, const call_shape& shape) {
  const bool plain = shape.counts.empty();
  if (plain && shape.count == known.how->count) return code;
  if (copy.fitted == nullptr) {
    copy.fitted = std::make_unique<slot_program>(code);
    copy.count = unfitted;
  }
  // `count` is what it was fitted to last: the count of its blocks, `listed` where they have lists, `unfitted` if that threw.
  if (copy.count == (plain ? shape.count : listed) && (plain || copy.has(shape))) return *copy.fitted;
  copy.count = unfitted;
  if (!plain) copy.keep(shape);
  fit(*copy.fitted, shape);
  copy.count = plain ? shape.count : listed;
  return *copy.fitted;
}

/// The input comes elsewhere, packed, and the result if it is wider. As much as an operation over slots has: tens of KiB at most; of one that is only
/// copied aside, as much as its input. Allocates when it is more than ever before.
void board_port::stage(remembered_calls::entry& known, call_buffers& buffers) {
  const plan& how = *known.how;
  const call& what = known.what;
  const int ranks = board_->ranks();
  const std::size_t width = size_of(how.work_type), bytes = input_elements(what, ranks, rank_) * width;
  if (bytes == 0) return;
  room(apart_, bytes);
  stage_input(how, what, ranks, rank_, buffers.input, buffers.input_displacements, apart_.data());
  buffers.input = apart_.data();
  if (!buffers.input_displacements.empty()) known.lists_number = 0;  // what is performed has others
  buffers.input_displacements = {};
  if (how.widened) buffers.output = room(result_, output_elements(what, ranks, rank_) * width);
}

void board_port::conclude_last(void* output) {
  const remembered_calls::entry& known = calls_.last();
  const bool widened = known.stages && known.how->widened;
  finish_output(*known.how, known.what, board_->ranks(), rank_, widened ? result_.data() : output, output);
}

void board_port::drop(std::uint64_t sequence) {
  if (performer_->idle()) board_->finish(rank_, sequence);
  else performer_->abandon();
}

}  // namespace troupe::actors
