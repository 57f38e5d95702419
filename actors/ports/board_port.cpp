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

void board_port::start(const void* input, void* output, std::uint64_t sequence) {
  const remembered_calls::entry& known = calls_.last();
  const call& what = known.what;
  // Operations that failed before they were begun here were not finished either, and peers wait for the slots that they have
  // written.
  if (board_->done(rank_) < sequence) [[unlikely]]
    board_->finish(rank_, sequence - 1);
  memory_map memory;
  if (what.count > 0 && root_needs_copy(*known.how, what, rank_, input, output)) [[unlikely]]
    input = set_apart(known, input);
  memory.input = const_cast<std::byte*>(static_cast<const std::byte*>(input));
  memory.output = static_cast<std::byte*>(output);
  const auto room = [](std::vector<std::byte>& where, std::size_t bytes) {
    if (where.size() < bytes) where.resize(bytes);
    return where.data();
  };
  if (known.slots != nullptr) {
    if (slots_code_ != known.slots) slots_code_ = known.slots;
    memory.scratch = room(scratch_, slots_code_->scratch_bytes);
    memory.l0 = room(l0_, slots_code_->l0_bytes);
    slots_.start(*slots_code_, memory, known.how->work_type, what.reduction, sequence, known.fingerprint);
    performer_ = &slots_;
  } else {
    if (direct_code_ != known.direct) direct_code_ = known.direct;
    memory.scratch = room(scratch_, direct_code_->bodies[static_cast<std::size_t>(rank_)].scratch_bytes);
    direct_.start(*direct_code_, memory, known.how->work_type, what.reduction, sequence, known.fingerprint);
    performer_ = &direct_;
  }
}

/// A copy of the input, where the plan must not be performed in place.
const void* board_port::set_apart(const remembered_calls::entry& known, const void* input) {
  const call& what = known.what;
  const auto blocks = static_cast<std::size_t>(input_blocks(what.what, board_->ranks(), what.root, rank_).count);
  const auto* begin = static_cast<const std::byte*>(input);
  apart_.assign(begin, begin + blocks * what.count * size_of(known.how->work_type));
  return apart_.data();
}

/// Only who has a result divides.
void board_port::conclude(void* output) const {
  const call& what = calls_.last().what;
  if (!is_reduction(what.what) || what.reduction.kind != op_kind::avg || what.count == 0) return;
  if (const int terms = contributor_count(what.what, board_->ranks(), what.root, rank_); terms > 0)
    divide(what.type, static_cast<std::size_t>(terms), output, output, what.count);
}

void board_port::drop(std::uint64_t sequence) {
  if (performer_->idle()) board_->finish(rank_, sequence);
  else performer_->abandon();
}

}  // namespace troupe::actors
