// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/operation.hpp"

#include <algorithm>

#include "actors/rank/operation_parts.hpp"
#include "actors/rank/staging.hpp"
#include "memory/error.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe::actors {

namespace {

std::byte* bytes_of(const void* p) { return const_cast<std::byte*>(static_cast<const std::byte*>(p)); }

/// Of the blocks, as far as the rank knows them.
call_shape shape_of(const operation& op, std::size_t element_size) {
  call_shape shape;
  shape.count = op.what.count;
  if (!op.what.uniform) shape.counts = op.counts ? *op.counts : op.what.counts;
  else if (op.what.pieces > 0) shape.pieces = op.what.counts;
  shape.element_size = element_size;
  return shape;
}

/// In the order of all ranks' blocks, those that the rank knows of itself; the others do not matter (needs_only_own_blocks()). Allocates,
/// with every call of a v-form between hosts: a word for each block of the collective, so at most most_own_blocks (the planner's).
std::vector<std::size_t> own_counts(const call& c, rank_t rank, int ranks) {
  const auto n = static_cast<std::size_t>(ranks), own = static_cast<std::size_t>(rank);
  std::vector<std::size_t> all(static_cast<std::size_t>(block_count(c.what, ranks)));
  if (traits_of(c.what).v == v_counts::every_pair) {
    for (std::size_t q = 0; q < n; ++q) all[q * n + own] = c.receive_counts[q];
    std::ranges::copy(c.counts, all.begin() + static_cast<std::ptrdiff_t>(own * n));
  } else if (rank == c.root) {
    all = c.counts;
  } else {
    all[own] = c.counts.front();
  }
  return all;
}

bool is_in_place(const operation& op, rank_t rank) {
  if (has_root(op.what.what)) return op.what.root == rank && lies_in_place(op.what, rank, op.buffers());
  const bool unsaid = !op.what.uniform && agrees_on_place(op.what.what, false) && has_empty_block(op.what.counts);
  return op.what.in_place || (unsaid && lies_in_place(op.what, rank, op.buffers()));
}

/// A NIC's descriptors are of all ranks, which know nobody else's gaps between blocks.
bool packs_input(const operation& op) { return op.plan->nic() != nullptr && !op.input_displacements.empty(); }
bool packs_output(const operation& op) { return op.plan->nic() != nullptr && !op.output_displacements.empty(); }

/// The plan's score takes the rank's buffers for one memory, and they are not, or are staged.
bool joins_buffers(const operation& op, rank_t rank) {
  const plan& p = *op.plan;
  if (!p.in_place || (has_root(op.what.what) && op.what.root != rank)) return false;
  return p.widened || p.scaled || packs_input(op) || packs_output(op) || !is_in_place(op, rank);
}

/// Blocks with gaps between them are packed one behind the other.
void bring_input(operation& op, rank_t rank, arena& memory) {
  const int ranks = op.plan->notes->ranks;
  op.staged_input = memory.acquire(input_elements(op.what, ranks, rank) * size_of(op.plan->work_type));
  stage_input(*op.plan, op.what, ranks, rank, op.input, op.input_displacements, op.staged_input.data());
  op.input_displacements.clear();
}

std::byte* bring_output(operation& op, rank_t rank, arena& memory) {
  const std::size_t elements = output_elements(op.what, op.plan->notes->ranks, rank);
  op.staged_output = memory.acquire(elements * size_of(op.plan->work_type));
  return op.result = bytes_of(op.staged_output.data());
}

/// Makes one memory of the rank's buffers: the smaller one becomes a block of the larger.
void join_buffers(operation& op, rank_t rank, arena& memory, memory_map& map) {
  const plan& p = *op.plan;
  const std::size_t width = size_of(p.work_type);
  if (input_is_larger(op.what.what)) {  // the caller's input must not change
    bring_input(op, rank, memory);
    map.input = bytes_of(op.staged_input.data());
    map.output = op.result = map.input + own_block_begin(op.what, rank, {}) * width;
    return;
  }
  map.output = p.widened || packs_output(op) ? bring_output(op, rank, memory) : bytes_of(op.output);
  const std::span<const std::size_t> gaps{op.output_displacements};
  map.input = map.output + own_block_begin(op.what, rank, packs_output(op) ? gaps.first(0) : gaps) * width;
  stage_input(p, op.what, p.notes->ranks, rank, op.input, {}, map.input);
}

/// Where the plan's score finds the rank's buffers: as the caller gave them, or staged.
memory_map bring_buffers(operation& op, rank_t rank, arena& memory) {
  const plan& p = *op.plan;
  memory_map map;
  map.input = bytes_of(op.input);
  map.output = bytes_of(op.output);
  map.factor = op.what.reduction.scale;
  if (joins_buffers(op, rank)) {
    join_buffers(op, rank, memory, map);
    return map;
  }
  if (p.widened || p.scaled || packs_input(op) || keeps_input_apart(p, op.what, rank, op.buffers())) {
    bring_input(op, rank, memory);
    map.input = bytes_of(op.staged_input.data());
  }
  if (p.widened || packs_output(op)) map.output = bring_output(op, rank, memory);
  return map;
}

}  // namespace

nic_posting prepare_for_nic(operation& op, rank_t rank, arena& memory) {
  const plan& p = *op.plan;
  nic_posting made;
  made.epoch = op.epoch;
  made.rank = rank;
  made.ranks = p.notes->ranks;
  made.fingerprint = fingerprint(op.what, op.epoch, p.identity) ^ op.what.history;
  made.memory = bring_buffers(op, rank, memory);
  made.type = p.work_type;
  made.reduction = op.what.reduction;
  if (made.reduction.kind == op_kind::avg || made.reduction.kind == op_kind::pre_mul_sum) made.reduction = sum;
  made.how = op.plan;
  made.elements = moves_data(op.what.what) && op.what.uniform ? op.what.count : 0;
  // Allocates, a word for each rank, with every call of a v-form.
  if (!op.what.uniform) made.counts = std::make_shared<const std::vector<std::size_t>>(op.what.counts);
  made.input_bytes = input_elements(op.what, made.ranks, rank) * size_of(p.work_type);
  made.output_bytes = output_elements(op.what, made.ranks, rank) * size_of(p.work_type);
  return made;
}

void operation::dropped() {
  if (!done->done())
    done->complete(make_failure(errc::actor_lost, "the rank's actor ended before it could take this operation"));
}

void operation::end(failure_ptr why) noexcept {
  if (last_step) [[unlikely]] {
    try {
      why = std::exchange(last_step, nullptr)(*this, std::move(why));
    } catch (...) {
      why = make_failure(errc::out_of_memory, "there was no memory left to end it");
    }
  }
  close();
  const std::shared_ptr<operation_parts> told = parts;  // the operation may be gone when its end is known
  done->complete(std::move(why));
  if (told) [[unlikely]]
    told->ended();
}

failure_ptr deadline_passed(const operation& op, rank_t rank) {
  std::string text = std::to_string(std::chrono::duration<double, std::milli>(*op.deadline).count());
  text.erase(text.find('.') + 2);
  return make_failure(errc::timed_out, "the deadline of " + text + " ms passed on rank " + std::to_string(rank));
}

std::string operation::title() const {
  if (peer < 0) return to_string(what);
  return std::string{sending ? "send" : "recv"} + "(count " + std::to_string(what.count) + ", " +
         std::string{name(what.type)} + (sending ? ", to rank " : ", from rank ") + std::to_string(peer) +
         (tag != 0 ? ", tag " + std::to_string(tag) + ")" : ")");
}

std::shared_ptr<shared_spaces::space> shared_spaces::enter(epoch_t epoch, std::uint64_t fingerprint, rank_t rank,
                                                           const peer_memory& mine, std::size_t l2_bytes, arena& from) {
  const std::lock_guard lock(mutex_);
  const auto at = open_.find({epoch, fingerprint});
  auto entered = at == open_.end() ? std::make_shared<space>() : at->second;
  if (at == open_.end()) {
    entered->peers.resize(static_cast<std::size_t>(ranks_));
    if (card_ == nullptr) entered->l2 = from.acquire(l2_bytes);  // may throw: nobody enters without it
    open_.emplace(std::pair{epoch, fingerprint}, entered);
  }
  entered->peers[static_cast<std::size_t>(rank)] = mine;
  if (++entered->takers == ranks_) open_.erase({epoch, fingerprint});
  return entered;
}

shared_spaces::l2_answer shared_spaces::find_l2(space& in, rank_t rank, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (in.waiting.empty() && !in.card_l2) in.card_l2 = card_->l2(bytes);
  if (in.card_l2) return l2_answer::there;
  in.waiting.push_back(rank);
  return in.waiting.size() == 1 ? l2_answer::ask : l2_answer::wait;
}

std::vector<rank_t> shared_spaces::has_l2(space& in, card_tiers::region l2) {
  const std::lock_guard lock(mutex_);
  in.card_l2 = std::move(l2);
  return std::exchange(in.waiting, {});
}

void shared_spaces::await_pieces(epoch_t epoch) {
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find(awaited_, epoch, &std::pair<epoch_t, int>::first);
  if (at != awaited_.end()) ++at->second;
  else awaited_.emplace_back(epoch, 1);
}

void shared_spaces::pieces_came(epoch_t epoch) {
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find(awaited_, epoch, &std::pair<epoch_t, int>::first);
  if (at != awaited_.end() && --at->second == 0) awaited_.erase(at);
}

bool shared_spaces::awaits_pieces(epoch_t epoch) {
  const std::lock_guard lock(mutex_);
  return std::ranges::find(awaited_, epoch, &std::pair<epoch_t, int>::first) != awaited_.end();
}

void shared_spaces::forget(epoch_t epoch) {
  boards_.forget(epoch);
  if (areas_) areas_->forget(epoch);
  const std::lock_guard lock(mutex_);
  std::erase_if(awaited_, [&](const auto& one) { return one.first == epoch; });
  open_.erase(open_.lower_bound({epoch, 0}), open_.upper_bound({epoch, ~std::uint64_t{0}}));
}

std::shared_ptr<assignment> prepare(operation& op, rank_t rank, arena& memory, shared_spaces& spaces,
                                    program_shelf& programs) {
  const plan& p = *op.plan;
  if (!knows_all_blocks(op.what) && !op.counts)
    op.counts = std::make_shared<const std::vector<std::size_t>>(own_counts(op.what, rank, p.notes->ranks));
  auto result = std::make_shared<assignment>();
  result->epoch = op.epoch;
  // With all that may have run ahead before it, as on boards.
  result->fingerprint = fingerprint(op.what, op.epoch, p.identity) ^ op.what.history;
  result->type = p.work_type;
  result->reduction = op.what.reduction;
  result->any_order = p.mailbox()->any_order;
  result->credits = p.mailbox()->credits;
  result->work = p.work();
  result->parts = op.parts;
  const auto code = [&] {
    call_shape shape = shape_of(op, size_of(p.work_type));
    shape.input_displacements = op.input_displacements;
    shape.output_displacements = op.output_displacements;
    return programs.take(op.ahead && p.ahead ? p.ahead : op.plan, rank, shape);
  };
  if (p.work() == step_work::timed_without_bytes) {
    result->code = code();
    return result;
  }
  result->memory = bring_buffers(op, rank, memory);
  result->code = code();
  op.scratch = memory.acquire(result->code->scratch_bytes);
  result->memory.scratch = bytes_of(op.scratch.data());
  if (spaces.card() == nullptr) {
    op.l0 = memory.acquire(result->code->l0_bytes);
    result->memory.l0 = bytes_of(op.l0.data());
  }
  if (result->code->slot_bytes > 0) result->lent = op.lent = std::make_shared<lent_memory>();
  if (result->code->shares_memory) {
    const auto space = spaces.enter(op.epoch, result->fingerprint, rank,
                                    {result->memory.input, result->memory.output, result->memory.factor},
                                    result->code->l2_bytes, memory);
    result->memory.peers = space->peers.data();
    result->memory.l2 = static_cast<std::byte*>(space->l2.data());
    result->shared = op.shared = space;
  }
  return result;
}

std::unique_ptr<part_performer> prepare_parts(operation& op, rank_t rank, arena& memory, shared_spaces& spaces,
                                              program_shelf& programs) {
  const plan& p = *op.plan;
  if (!p.notes->l2.empty()) return nullptr;  // boards and areas have none
  const part_links links{*p.notes, rank, p.mailbox()->credits};
  if (spaces.areas() != nullptr ? !links.fits_between_processes() : !links.fits()) return nullptr;
  auto what = std::make_shared<assignment>();
  what->type = p.work_type;
  what->reduction = op.what.reduction;
  what->any_order = p.mailbox()->any_order;
  what->credits = p.mailbox()->credits;
  // Not owned: the performer that this is for is theirs, and both would keep each other.
  what->parts = std::shared_ptr<part_board>{std::shared_ptr<void>{}, op.parts.get()};
  what->memory = bring_buffers(op, rank, memory);
  call_shape shape = shape_of(op, size_of(p.work_type));
  shape.input_displacements = op.input_displacements;
  shape.output_displacements = op.output_displacements;
  what->code = programs.take(op.plan, rank, shape);
  scratch_block scratch = memory.acquire(what->code->scratch_bytes), l0 = memory.acquire(what->code->l0_bytes);
  what->memory.scratch = bytes_of(scratch.data());
  what->memory.l0 = bytes_of(l0.data());
  if (what->code->slot_bytes > 0) what->lent = std::make_shared<lent_memory>();
  return std::make_unique<part_performer>(rank, links, std::move(what), memory, std::move(scratch), std::move(l0));
}

std::shared_ptr<const assignment> prepare_pair(operation& op) {
  auto code = std::make_shared<program>();
  instruction only;
  only.kind = op.sending ? step_kind::send : step_kind::recv;
  only.elements = op.what.count;
  (op.sending ? only.to : only.from) = op.peer;
  (op.sending ? only.source : only.target) = {0, self, op.sending ? buffer_kind::input : buffer_kind::output};
  only.score_step = 0;
  code->lanes = {{only}};
  code->ranks = 2;
  code->element_size = size_of(op.what.type);
  auto result = std::make_shared<assignment>();
  result->epoch = op.epoch;
  result->peer = op.peer;
  result->sending = op.sending;
  result->channel = op.pair_channel;
  result->fingerprint = fingerprint(op.what, op.epoch);
  result->code = std::move(code);
  result->type = op.what.type;
  result->memory.input = bytes_of(op.input);
  result->memory.output = bytes_of(op.output);
  result->credits = 1;
  return result;
}

namespace {
/// Blocks with gaps between them come packed one behind the other. Only what does not reduce has such outputs, so nothing is widened.
void unpack_output(const operation& op) {
  const std::size_t width = size_of(op.plan->work_type);
  const std::byte* from = bytes_of(op.staged_output.data());
  for (std::size_t block = 0; block < op.what.counts.size(); ++block) {
    const std::size_t bytes = op.what.counts[block] * width;
    if (bytes == 0) continue;
    troupe::copy(bytes_of(op.output) + op.output_displacements[block] * width, from, bytes);
    from += bytes;
  }
}
}  // namespace

void conclude(operation& op, rank_t rank, int ranks) {
  const plan& p = *op.plan;
  if (p.work() == step_work::timed_without_bytes) return;
  if (packs_output(op)) return unpack_output(op);
  finish_output(p, op.what, ranks, rank, op.result != nullptr ? op.result : op.output, op.output);
}

}  // namespace troupe::actors
