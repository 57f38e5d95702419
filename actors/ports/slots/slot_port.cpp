#include "actors/ports/slots/slot_port.hpp"

#include "memory/kernels/kernels.hpp"

namespace troupe::actors {

std::shared_ptr<const plan> slot_port::plan_of(const call& what) const {
  const remembered_calls::entry* known = calls_.find(what);
  return known != nullptr ? known->how : nullptr;
}

void slot_port::remember(const call& what, const std::shared_ptr<const plan>& how) {
  static_cast<void>(calls_.put(std::make_unique<remembered_calls::entry>(what, how, how->slot_program_of(rank_))));
}

void slot_port::start(const void* input, void* output, std::uint64_t sequence) {
  const remembered_calls::entry& known = calls_.last();
  const call& what = known.what;
  if (running_ != known.code) running_ = known.code;  // outlives its place among the remembered
  const slot_program& code = *running_;
  // Operations that failed before they were begun here were not finished either, and peers wait for the slots that they have
  // written.
  if (board_->done(rank_) < sequence) [[unlikely]]
    board_->finish(rank_, sequence - 1);
  if (scratch_.size() < code.scratch_bytes) scratch_.resize(code.scratch_bytes);
  if (l0_.size() < code.l0_bytes) l0_.resize(code.l0_bytes);
  if (what.count > 0 && root_needs_copy(*known.how, what, rank_, input, output)) {
    const auto blocks = static_cast<std::size_t>(input_blocks(what.what, board_->ranks(), what.root, rank_).count);
    const auto* begin = static_cast<const std::byte*>(input);
    apart_.assign(begin, begin + blocks * what.count * code.element_size);
    input = apart_.data();
  }
  memory_map memory;
  memory.input = const_cast<std::byte*>(static_cast<const std::byte*>(input));
  memory.output = static_cast<std::byte*>(output);
  memory.scratch = scratch_.data();
  memory.l0 = l0_.data();
  performer_.start(code, memory, known.how->work_type, what.reduction, sequence, known.fingerprint);
}

/// Only who has a result divides.
void slot_port::conclude(void* output) const {
  const call& what = calls_.last().what;
  if (!is_reduction(what.what) || what.reduction.kind != op_kind::avg || what.count == 0) return;
  if (const int terms = contributor_count(what.what, board_->ranks(), what.root, rank_); terms > 0)
    divide(what.type, static_cast<std::size_t>(terms), output, output, what.count);
}

void slot_port::drop(std::uint64_t sequence) {
  if (performer_.idle()) board_->finish(rank_, sequence);
  else performer_.abandon();
}

}  // namespace troupe::actors
