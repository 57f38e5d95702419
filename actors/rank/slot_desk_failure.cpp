// What ends operations over slots: the membership's decisions, cancellation, leaving, the end of the communicator.

#include <algorithm>

#include "actors/rank/slot_desk_seat.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

// -- failure ----------------------------------------------------------------------------------------------------------

bool slot_desk::has_failed(seat& s, epoch_t epoch) const {
  if (s.failure_count.load(std::memory_order_acquire) == 0) return false;
  const locker lock(s);
  return s.failures.contains(epoch);
}

void slot_desk::failed(epoch_t epoch, const failure_ptr& why) {
  if (!board_) return;
  for (const auto& s : seats_) {
    const locker lock(*s);
    const bool queued =
        std::any_of(s->queue.begin(), s->queue.end(), [&](const operation_ptr& op) { return op->epoch == epoch; });
    if (before(epoch, epoch_of(s->next)) && s->active != epoch && !queued) continue;  // over, or not over slots
    s->failures.add(epoch, why);
    s->failure_count.store(s->failures.range_count(), std::memory_order_release);
  }
  for (rank_t r = 0; r < ranks_; ++r) board_->wake(r);
  wake_attendant();
}

void slot_desk::broken(const failure_ptr& why) {
  if (!board_) return;
  {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    broken_ = why;
  }
  is_broken_.store(true, std::memory_order_release);
  for (rank_t r = 0; r < ranks_; ++r) board_->wake(r);
  wake_attendant();
}

void slot_desk::close() {
  if (!board_) return;
  broken(make_failure(errc::engine_closed, "the communicator ended with this operation under way"));
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_attendant();
}

void slot_desk::end(rank_t rank, epoch_t epoch, const failure_ptr& why) {
  seat& s = at(rank);
  operation_ptr op;
  {
    const locker lock(s);
    if (s.current && s.current->epoch == epoch) op = s.current;
    for (const operation_ptr& queued : s.queue)
      if (queued->epoch == epoch) op = queued;
  }
  if (op) out_->fail(epoch, op->title(), why);
}

std::vector<slot_desk::presence> slot_desk::present(epoch_t epoch) {
  std::vector<presence> found;
  if (!board_) return found;
  bool here = false;
  for (const auto& s : seats_) {
    const locker lock(*s);
    std::optional<call> what;
    if (s->active == epoch) what = s->current ? s->current->what : s->calls.last().what;
    for (const operation_ptr& op : s->queue)
      if (op->epoch == epoch) what = op->what;
    here = here || what;
    if (what || before(epoch, epoch_of(s->next))) found.push_back({s->rank, std::move(what)});
  }
  return here ? found : std::vector<presence>{};
}

epoch_t slot_desk::settled(rank_t rank, epoch_t called) const {
  seat& s = at(rank);
  const locker lock(s);
  return s.followed == called ? epoch_of(s.next) : called;
}

void slot_desk::leave(rank_t rank) {
  seat& s = at(rank);
  epoch_t operations = 0;
  {
    const locker lock(s);
    s.leaving = true;
    if (s.owned || s.current || !s.queue.empty() || s.left) return;
    s.left = true;
    operations = epoch_of(s.next);
  }
  out_->leave(rank, operations);
}

/// It cannot be begun or continued here, so nowhere.
void slot_desk::stall(operation& op, const std::string& why) {
  op.stalled = true;
  out_->fail(op.epoch, op.title(), make_failure(errc::aborted, "it cannot be performed: " + why));
}

}  // namespace troupe::actors
