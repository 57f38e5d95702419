#include "actors/rank/operation.hpp"

#include "memory/error.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe::actors {

namespace {

std::byte* bytes_of(const void* p) { return const_cast<std::byte*>(static_cast<const std::byte*>(p)); }

/// Elements that the rank's own buffers hold, packed.
std::size_t input_elements(const operation& op, rank_t rank) {
  call_shape shape = op.plan->shape();
  shape.element_size = 1;
  return input_bytes(op.what.what, op.plan->notes->ranks, op.what.root, rank, shape);
}
std::size_t output_elements(const operation& op, rank_t rank) {
  call_shape shape = op.plan->shape();
  shape.element_size = 1;
  return output_bytes(op.what.what, op.plan->notes->ranks, op.what.root, rank, shape);
}

/// In-place calls whose plan is made for separate buffers: the input is copied aside first.
bool keeps_input_apart(const operation& op) {
  if (op.input != op.output || op.input == nullptr) return false;
  return troupe::keeps_input_apart(op.what.what, op.what.uniform);
}

/// Brings `count` elements to where the plan reads them: widened, scaled (pre_mul_sum), or only copied.
void stage_elements(const operation& op, const std::byte* from, std::byte* to, std::size_t count) {
  const plan& p = *op.plan;
  if (p.widened) convert(op.what.type, from, p.work_type, to, count);
  else if (!p.scaled) troupe::copy(to, from, count * size_of(p.work_type));
  if (p.scaled) scale(p.work_type, op.what.reduction.scale, p.widened ? to : from, to, count);
}

/// Blocks with gaps between them are packed one behind the other.
void stage_input(operation& op, rank_t rank, arena& memory) {
  const std::size_t width = size_of(op.plan->work_type);
  const std::size_t total = input_elements(op, rank);
  op.staged_input = memory.acquire(total * width);
  std::byte* to = bytes_of(op.staged_input.data());
  if (op.input_displacements.empty()) return stage_elements(op, bytes_of(op.input), to, total);
  for (std::size_t block = 0; block < op.what.counts.size(); ++block) {
    const std::size_t count = op.what.counts[block];
    if (count == 0) continue;  // the input may be null
    stage_elements(op, bytes_of(op.input) + op.input_displacements[block] * size_of(op.what.type), to, count);
    to += count * width;
  }
  op.input_displacements.clear();
}

}  // namespace

void operation::dropped() {
  if (!done->done())
    done->complete(make_failure(errc::actor_lost, "the rank's actor ended before it could take this operation"));
}

failure_ptr deadline_passed(const operation& op, rank_t rank) {
  std::string text = std::to_string(std::chrono::duration<double, std::milli>(*op.deadline).count());
  text.erase(text.find('.') + 2);
  return make_failure(errc::timed_out, "the deadline of " + text + " ms passed on rank " + std::to_string(rank));
}

std::string operation::title() const {
  if (peer < 0) return to_string(what);
  return std::string{sending ? "send" : "recv"} + "(count " + std::to_string(what.count) + ", " +
         std::string{name(what.type)} + (sending ? ", to rank " : ", from rank ") + std::to_string(peer) + ")";
}

std::shared_ptr<shared_spaces::space> shared_spaces::enter(epoch_t epoch, std::uint64_t fingerprint, rank_t rank,
                                                           const peer_memory& mine, std::size_t l2_bytes, arena& from) {
  const std::lock_guard lock(mutex_);
  const auto at = open_.find({epoch, fingerprint});
  auto entered = at == open_.end() ? std::make_shared<space>() : at->second;
  if (at == open_.end()) {
    entered->peers.resize(static_cast<std::size_t>(ranks_));
    entered->l2 = from.acquire(l2_bytes);  // may throw: nobody enters a space without its memory
    open_.emplace(std::pair{epoch, fingerprint}, entered);
  }
  entered->peers[static_cast<std::size_t>(rank)] = mine;
  if (++entered->takers == ranks_) open_.erase({epoch, fingerprint});
  return entered;
}

void shared_spaces::forget(epoch_t epoch) {
  const std::lock_guard lock(mutex_);
  open_.erase(open_.lower_bound({epoch, 0}), open_.upper_bound({epoch, ~std::uint64_t{0}}));
}

std::shared_ptr<const assignment> prepare(operation& op, rank_t rank, arena& memory, shared_spaces& spaces) {
  const plan& p = *op.plan;
  auto result = std::make_shared<assignment>();
  result->epoch = op.epoch;
  result->fingerprint = fingerprint(op.what, op.epoch);
  result->type = p.work_type;
  result->reduction = op.what.reduction;
  result->any_order = p.any_order;
  result->credits = p.credits;
  result->memory.input = bytes_of(op.input);
  result->memory.output = bytes_of(op.output);
  if (p.widened || p.scaled || keeps_input_apart(op)) {
    stage_input(op, rank, memory);
    result->memory.input = bytes_of(op.staged_input.data());
  }
  result->code = p.program_of(rank, op.input_displacements, op.output_displacements);
  if (p.widened) {
    op.staged_output = memory.acquire(output_elements(op, rank) * size_of(p.work_type));
    result->memory.output = bytes_of(op.staged_output.data());
  }
  op.scratch = memory.acquire(result->code->scratch_bytes);
  op.l0 = memory.acquire(result->code->l0_bytes);
  result->memory.scratch = bytes_of(op.scratch.data());
  result->memory.l0 = bytes_of(op.l0.data());
  if (result->code->slot_bytes > 0) result->lent = op.lent = std::make_shared<lent_memory>();
  if (result->code->shares_memory) {
    const auto space = spaces.enter(op.epoch, result->fingerprint, rank, {result->memory.input, result->memory.output},
                                    result->code->l2_bytes, memory);
    result->memory.peers = space->peers.data();
    result->memory.l2 = bytes_of(space->l2.data());
    op.shared = space;
  }
  return result;
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
  result->fingerprint = fingerprint(op.what, op.epoch);
  result->code = std::move(code);
  result->type = op.what.type;
  result->memory.input = bytes_of(op.input);
  result->memory.output = bytes_of(op.output);
  result->credits = 1;
  return result;
}

void conclude(operation& op, rank_t rank, int ranks) {
  const plan& p = *op.plan;
  if (op.what.reduction.kind == op_kind::avg && is_reduction(op.what.what)) {
    void* result = p.widened ? op.staged_output.data() : op.output;
    if (const std::size_t count = output_elements(op, rank); count > 0)
      divide(p.work_type, static_cast<std::size_t>(contributor_count(op.what.what, ranks, op.what.root, rank)), result,
             result, count);
  }
  if (p.widened)
    if (const std::size_t count = output_elements(op, rank); count > 0)
      convert(p.work_type, op.staged_output.data(), op.what.type, op.output, count);
}

}  // namespace troupe::actors
