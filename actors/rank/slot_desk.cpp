#include "actors/rank/slot_desk.hpp"

#include <algorithm>

#include "actors/rank/slot_desk_seat.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

}  // namespace

slot_desk::slot_desk(int ranks, bool slots, int cores, int spin, std::unique_ptr<outbox> out)
    : out_(std::move(out)),
      ranks_(ranks),
      waiting_(slot_waiting_for(ranks, cores)),
      no_memory_(make_failure(errc::out_of_memory,
                              "there is no memory left to go on with an operation that peers have begun")) {
  waiting_.spin = std::min(waiting_.spin, spin);
  inbox_.reserve(2 * static_cast<std::size_t>(ranks));
  taken_.reserve(2 * static_cast<std::size_t>(ranks));
  if (slots) board_ = std::make_unique<slot_board>(ranks);
  for (rank_t r = 0; r < ranks; ++r) {
    seats_.push_back(std::make_unique<seat>());
    seats_.back()->rank = r;
    seats_.back()->spin = waiting_.spin;
    if (slots) seats_.back()->performer.emplace(*board_, r);
  }
}

slot_desk::~slot_desk() = default;

// -- numbers ----------------------------------------------------------------------------------------------------------

void slot_desk::number(rank_t rank, operation& op) {
  seat& s = at(rank);
  const locker lock(s);
  op.sequence = s.next++;
  op.epoch = epoch_of(op.sequence);
  op.follows = std::exchange(s.followed, epoch_of(s.next));
}

// -- blocking callers -------------------------------------------------------------------------------------------------

/// @pre locked
slot_desk::turn slot_desk::take_turn(seat& s) {
  s.owned = true;
  s.sequence = s.next++;
  s.active = epoch_of(s.sequence);
  return {&s};
}

slot_desk::turn slot_desk::begin_again(rank_t rank, const call& what) {
  seat& s = at(rank);
  const locker lock(s);
  if (s.owned || s.current || !s.queue.empty() || !s.calls.recall(what)) return {};
  s.calls.last().what.reduction = what.reduction;
  return take_turn(s);
}

slot_desk::turn slot_desk::begin(rank_t rank, const call& what, const plan_ptr& how) {
  seat& s = at(rank);
  {
    const locker lock(s);
    if (s.owned || s.current || !s.queue.empty()) return {};
    s.owned = true;  // while it is remembered
  }
  try {
    remember(s, what, how);
  } catch (...) {
    release(s);
    throw;
  }
  {
    const locker lock(s);
    if (s.queue.empty()) return take_turn(s);
  }
  release(s);  // meanwhile others have submitted what comes first
  return {};
}

/// As the rank's last call, so that a repetition needs no plan and no program. @pre owned
void slot_desk::remember(seat& s, const call& what, const plan_ptr& how) {
  auto fresh = std::make_unique<remembered_calls::entry>(
      remembered_calls::entry{what, how, how->slot_program_of(s.rank), fingerprint(what, 0)});
  std::unique_ptr<remembered_calls::entry> forgotten;  // let go outside the lock
  const locker lock(s);
  forgotten = s.calls.put(std::move(fresh));
}

plan_ptr slot_desk::plan_again(rank_t rank, const call& what) const {
  const seat& s = at(rank);
  const locker lock(at(rank));
  const remembered_calls::entry* known = s.calls.find(what);
  return known != nullptr ? known->how : nullptr;
}

void slot_desk::set_up(seat& s, const slot_program& code, const plan& how, const call& what, const void* input,
                       void* output, std::uint64_t fingerprint) {
  // Operations that failed before they were begun here were not finished either, and peers wait for the slots that they have written.
  if (board_->done(s.rank) < s.sequence) [[unlikely]]
    board_->finish(s.rank, s.sequence - 1);
  if (s.scratch.size() < code.scratch_bytes) s.scratch.resize(code.scratch_bytes);
  if (s.l0.size() < code.l0_bytes) s.l0.resize(code.l0_bytes);
  if (keeps_input_apart(what.what, true) && what.root == s.rank && input == output && what.count > 0) {
    const auto* begin = static_cast<const std::byte*>(input);
    s.apart.assign(begin, begin + what.count * code.element_size);
    input = s.apart.data();
  }
  memory_map memory;
  memory.input = const_cast<std::byte*>(static_cast<const std::byte*>(input));
  memory.output = static_cast<std::byte*>(output);
  memory.scratch = s.scratch.data();
  memory.l0 = s.l0.data();
  s.performer->start(code, memory, how.work_type, what.reduction, s.sequence, fingerprint);
}

/// Looks again for as long as that has paid lately: it does not while the peers have no core of their own.
slot_performer::status slot_desk::spin(seat& s) const {
  auto status = s.performer->advance();
  for (int i = 0; i < s.spin && status == slot_performer::status::waiting; ++i) {
    if (i >= least_spin) pause_core();
    status = s.performer->advance();
  }
  return status;
}

/// What ends the operation, if anything does; the rank has seen it then.
failure_ptr slot_desk::failure_of(seat& s, epoch_t epoch) {
  if (is_broken_.load(std::memory_order_acquire)) [[unlikely]] {
    const std::lock_guard lock(mutex_);
    return broken_;
  }
  if (s.failure_count.load(std::memory_order_acquire) == 0) [[likely]]
    return nullptr;
  std::map<epoch_t, failure_ptr> stale;
  failure_ptr why;
  const locker lock(s);
  if (const auto found = s.failures.extract(epoch)) why = found.mapped();
  // Of operations that went through the rank's actor.
  const epoch_t oldest = s.active == operation::unset ? epoch : s.active;
  std::erase_if(s.failures, [&](const auto& entry) { return before(entry.first, oldest); });
  s.failure_count.store(s.failures.size(), std::memory_order_release);
  return why;
}

/// True: performed. False: it takes long, has failed, or does not fit.
bool slot_desk::perform_here(seat& s, const void* input, void* output, steady_time begun,
                             std::optional<std::chrono::nanoseconds> deadline) {
  const remembered_calls::entry& known = s.calls.last();
  set_up(s, *known.code, *known.how, known.what, input, output, known.fingerprint);
  // Most end here, before anything of a wait is set up.
  if (spin(s) == slot_performer::status::performed) return true;
  patience watch(*this, s, deadline ? expiry(begun, deadline) : no_deadline);
  slot_wait_options how = waiting_;
  how.spin = 0;
  how.patience = deadline ? std::clamp<std::chrono::nanoseconds>(*deadline, 0ns, long_wait) : long_wait;
  how.watch = &watch;
  const auto asleep = clock::now();
  const auto ended = wait_slots(*s.performer, how).how;
  learn(s, clock::now() - asleep);
  return ended == slot_wait_result::ended::performed;
}

slot_desk::result slot_desk::perform(turn mine, const void* input, void* output,
                                     std::optional<std::chrono::nanoseconds> deadline) {
  seat& s = *mine.at;
  const epoch_t epoch = epoch_of(s.sequence);
  failure_ptr why = failure_of(s, epoch);
  if (why) return give_up(s, std::move(why));
  std::string problem;
  const auto begun = deadline ? clock::now() : steady_time{};
  bool performed = false;
  try {
    performed = perform_here(s, input, output, begun, deadline);
  } catch (...) {
    problem = reason_of_exception();
  }
  if (performed) {
    why = failure_of(s, epoch);
    if (!why) divide_average(s.calls.last().what, s.rank, ranks_, output);
    release(s);
    return {std::move(why), nullptr};
  }
  if (problem.empty()) why = failure_of(s, epoch);
  if (why) return give_up(s, std::move(why));
  operation_ptr op;
  try {
    op = operation_of(s, input, output, deadline);
    op->begun = deadline ? begun : clock::now() - long_wait;
    op->expires = expiry(op->begun, deadline);
    if (!problem.empty()) stall(*op, problem);
  } catch (...) {  // peers wait for this rank, and nobody can go on for it
    broken(no_memory_);
    return give_up(s, no_memory_);
  }
  hand_over(s, op);
  return {nullptr, std::move(op)};
}

slot_desk::result slot_desk::give_up(seat& s, failure_ptr why) {
  drop(s, s.sequence);
  release(s);
  return {std::move(why), nullptr};
}

operation_ptr slot_desk::operation_of(seat& s, const void* input, void* output,
                                      std::optional<std::chrono::nanoseconds> deadline) const {
  auto op = std::make_shared<operation>();
  op->what = s.calls.last().what;
  op->plan = s.calls.last().how;
  op->input = input;
  op->output = output;
  op->deadline = deadline;
  op->sequence = s.sequence;
  op->epoch = epoch_of(s.sequence);
  return op;
}

void slot_desk::hand_over(seat& s, operation_ptr op) {
  s.running = s.calls.last().code;
  {
    const locker lock(s);
    s.current = std::move(op);
  }
  ask_attendant(s.rank, true);
}

/// The operation is not performed, and peers may reuse its slots.
void slot_desk::drop(seat& s, std::uint64_t sequence) {
  if (s.performer->idle()) board_->finish(s.rank, sequence);
  else s.performer->abandon();
}

void slot_desk::release(seat& s) {
  bool more = false, leaves = false;
  epoch_t operations = 0;
  {
    const locker lock(s);
    s.owned = false;
    s.active = operation::unset;
    more = !s.queue.empty();
    leaves = !more && s.leaving && !s.left;
    s.left = s.left || leaves;
    operations = epoch_of(s.next);
  }
  if (more) [[unlikely]]
    ask_attendant(s.rank, false);
  if (leaves) [[unlikely]]
    out_->leave(s.rank, operations);
}

}  // namespace troupe::actors
