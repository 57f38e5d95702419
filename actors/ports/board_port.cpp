#include "actors/ports/board_port.hpp"

#include "memory/kernels/kernels.hpp"

namespace troupe::actors {

std::shared_ptr<const plan> board_port::plan_of(const call& what) const {
  const remembered_calls::entry* known = calls_.find(what);
  return known != nullptr ? known->how : nullptr;
}

void board_port::remember(const call& what, const std::shared_ptr<const plan>& how) {
  static_cast<void>(calls_.put(std::make_unique<remembered_calls::entry>(what, how, rank_)));
}

void board_port::start(const void* input, void* output, std::uint64_t sequence, bool ahead, std::uint64_t history) {
  const remembered_calls::entry& known = calls_.last();
  const call& what = known.what;
  // Operations that failed before they were begun here were not finished either, and peers wait for the slots that they have
  // written.
  if (board_->done(rank_) < sequence) [[unlikely]]
    board_->finish(rank_, sequence - 1);
  if (what.count > 0 && stages(*known.how)) {
    input = stage_input(known, input);
    if (known.how->widened) output = result_.data();
  } else if (what.count > 0 && root_needs_copy(*known.how, what, rank_, input, output)) [[unlikely]] {
    input = set_apart(known, input);
  }
  memory_map memory;
  memory.input = const_cast<std::byte*>(static_cast<const std::byte*>(input));
  memory.output = static_cast<std::byte*>(output);
  const auto room = [](std::vector<std::byte>& where, std::size_t bytes) {
    if (where.size() < bytes) where.resize(bytes);
    return where.data();
  };
  if (known.slots != nullptr) {
    const auto& wanted = ahead ? known.ahead : known.slots;
    if (slots_code_ != wanted) slots_code_ = wanted;
    memory.scratch = room(scratch_, slots_code_->scratch_bytes);
    memory.l0 = room(l0_, slots_code_->l0_bytes);
    slots_.start(*slots_code_, memory, known.how->work_type, what.reduction, sequence, known.fingerprint ^ history);
    performer_ = &slots_;
  } else {
    if (direct_code_ != known.direct) direct_code_ = known.direct;
    memory.scratch = room(scratch_, direct_code_->bodies[static_cast<std::size_t>(rank_)].scratch_bytes);
    direct_.start(*direct_code_, memory, known.how->work_type, what.reduction, sequence, known.fingerprint ^ history);
    performer_ = &direct_;
  }
}

/// A copy of the input, where the plan must not be performed in place.
const void* board_port::set_apart(const remembered_calls::entry& known, const void* input) {
  const call& what = known.what;
  const auto* begin = static_cast<const std::byte*>(input);
  apart_.assign(begin, begin + input_elements(what) * size_of(known.how->work_type));
  return apart_.data();
}

std::size_t board_port::input_elements(const call& what) const {
  return static_cast<std::size_t>(input_blocks(what.what, board_->ranks(), what.root, rank_).count) * what.count;
}
std::size_t board_port::output_elements(const call& what) const {
  return static_cast<std::size_t>(output_blocks(what.what, board_->ranks(), what.root, rank_).count) * what.count;
}

/// On the direct board nothing is: its passes scale, and round once.
bool board_port::stages(const plan& how) { return how.slots() != nullptr && (how.widened || how.scaled); }

/// As much as an operation over slots has: tens of KiB at most. Allocates when it is more than ever before.
const void* board_port::stage_input(const remembered_calls::entry& known, const void* input) {
  const plan& how = *known.how;
  const std::size_t count = input_elements(known.what), width = size_of(how.work_type);
  if (apart_.size() < count * width) apart_.resize(count * width);
  const double factor = known.what.reduction.scale;
  if (how.widened) {
    if (const std::size_t out = output_elements(known.what) * width; result_.size() < out) result_.resize(out);
    convert(known.what.type, input, how.work_type, apart_.data(), count);
    // As scale() does for the call's type: low-precision types are multiplied by an f32.
    if (how.scaled)
      scale(how.work_type, static_cast<double>(static_cast<float>(factor)), apart_.data(), apart_.data(), count);
  } else {
    scale(how.work_type, factor, input, apart_.data(), count);
  }
  return apart_.data();
}

/// Only who has a result divides and rounds; exscan leaves rank 0's output alone.
void board_port::conclude(void* output) {
  const remembered_calls::entry& known = calls_.last();
  const call& what = known.what;
  const plan& how = *known.how;
  const bool widened = stages(how) && how.widened, divides = what.reduction.kind == op_kind::avg && !how.divides;
  if (!is_reduction(what.what) || what.count == 0 || !(widened || divides)) return;
  const int terms = contributor_count(what.what, board_->ranks(), what.root, rank_);
  if (terms == 0) return;
  const std::size_t count = output_elements(what);
  void* const result = widened ? result_.data() : output;
  if (divides) divide(how.work_type, static_cast<std::size_t>(terms), result, result, count);
  if (widened) convert(how.work_type, result, what.type, output, count);
}

void board_port::drop(std::uint64_t sequence) {
  if (performer_->idle()) board_->finish(rank_, sequence);
  else performer_->abandon();
}

}  // namespace troupe::actors
