// Who performs for a rank: its operations one after the other, and groups of them.

#include <algorithm>
#include <thread>

#include "actors/rank/slot_desk_seat.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {

using clock = std::chrono::steady_clock;

thread_local slot_desk::gathering* my_gathering = nullptr;
thread_local int callbacks = 0;

/// Of all ranks together, which who starts last may have to work on alone: some 10 µs. Starting more than that must not be performing it:
/// the caller has something else to do meanwhile.
constexpr std::size_t long_bytes = 512 * 1024;

bool takes_long(const operation& op, int ranks) {
  return op.what.count > long_bytes / size_of(op.what.type) / static_cast<std::size_t>(ranks);
}

}  // namespace

bool slot_desk::in_callback() noexcept { return callbacks > 0; }

// -- an owner performs --------------------------------------------------------------------------------------------------

bool slot_desk::claim(seat& s) {
  const locker lock(s);
  if (s.owned || (!s.current && s.queue.empty())) return false;
  s.unattended.store(0, std::memory_order_relaxed);
  return s.owned = true;
}

/// Leaves what cannot go on now to whoever comes first.
void slot_desk::park(seat& s) {
  {
    const locker lock(s);
    s.owned = false;
    s.unattended.store(1);
  }
  if (!asleep_.load()) [[likely]]
    return;
  if (have_attendant()) return wake_attendant();
  if (claim(s)) end_all(s);
}

/// Everything is failing, and nobody else is here to say so. @pre owned, and closed
void slot_desk::end_all(seat& s) {
  for (bool moved = false; drive(s, moved);) {}
}

/// As far as the rank's operations go at once.
void slot_desk::start_here(rank_t rank) {
  seat& s = at(rank);
  bool moved = false;
  if (claim(s) && drive(s, moved)) park(s);
}

/// False: nothing is left to do for the rank, which is nobody's any more.
bool slot_desk::drive(seat& s, bool& moved) {
  while (true) {
    if (is_broken_.load(std::memory_order_acquire) || s.failure_count.load(std::memory_order_acquire) > 0)
      settle_failures(s);
    if (!s.current && !next_operation(s)) return false;
    const progress made = advance(s);
    moved = moved || made != progress::none;
    if (made != progress::done) return true;
  }
}

/// Makes the operation's call the last remembered one.
void slot_desk::recall(seat& s, const operation& op) {
  // Only the owner changes them, so he need not lock to look.
  if (s.calls.is_last(op.what) && s.calls.last().how == op.plan) return;
  {
    const locker lock(s);
    if (s.calls.recall(op.what) && s.calls.last().how == op.plan) return;
  }
  remember(s, op.what, op.plan);
}

bool slot_desk::next_operation(seat& s) {
  bool leaves = false, nothing = false;
  epoch_t operations = 0;
  {
    const locker lock(s);
    nothing = s.queue.empty();
    if (!nothing) {
      s.current = std::move(s.queue.front());
      s.queue.pop_front();
      s.active = s.current->epoch;
    } else {
      s.owned = false;
      s.active = operation::unset;
      leaves = s.leaving && !s.left;
      s.left = s.left || leaves;
      operations = epoch_of(s.next);
    }
  }
  if (leaves) out_->leave(s.rank, operations);
  if (nothing) return false;
  operation& op = *s.current;
  s.sequence = op.sequence;
  if (op.stalled) return true;  // cancelled before it was launched
  try {
    recall(s, op);
    if (s.running != s.calls.last().code) s.running = s.calls.last().code;
    set_up(s, *s.running, *op.plan, op.what, op.input, op.output, s.calls.last().fingerprint);
  } catch (...) {
    stall(op, reason_of_exception());
  }
  return true;
}

slot_desk::progress slot_desk::advance(seat& s) {
  operation& op = *s.current;
  if (op.stalled) return progress::none;
  auto status = slot_performer::status::waiting;
  const std::size_t before = s.performer->steps_taken();
  try {
    status = s.performer->advance();
  } catch (...) {
    stall(op, reason_of_exception());
    return progress::some;
  }
  if (status == slot_performer::status::performed) return finish(s, nullptr), progress::done;
  if (status == slot_performer::status::mismatch) {
    op.stalled = true;  // the membership has seen, or will see, all calls, and tells every rank the same table
    enroll(s, op);
  }
  return s.performer->steps_taken() != before ? progress::some : progress::none;
}

/// The membership compares the calls, and says what becomes of it.
void slot_desk::enroll(seat& s, operation& op) {
  if (op.registered) return;
  op.registered = true;
  out_->called(op.epoch, s.rank, op.what);
}

void slot_desk::settle_failures(seat& s) {
  if (s.current)
    if (failure_ptr why = failure_of(s, s.current->epoch)) finish(s, std::move(why));
  std::vector<std::pair<operation_ptr, failure_ptr>> over;
  failure_ptr broken;
  if (is_broken_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(mutex_);
    broken = broken_;
  }
  {
    const locker lock(s);
    for (const operation_ptr& op : s.queue) {
      const failure_ptr own = s.failures.take(op->epoch);
      if (broken || own) over.emplace_back(op, broken ? broken : own);
    }
    std::erase_if(s.queue, [&](const operation_ptr& op) {
      return std::any_of(over.begin(), over.end(), [&](const auto& entry) { return entry.first == op; });
    });
    s.failure_count.store(s.failures.range_count(), std::memory_order_release);
  }
  for (auto& [op, why] : over) complete(s, op, std::move(why));
}

/// The current operation is over.
void slot_desk::finish(seat& s, failure_ptr why) {
  const operation* over = s.current.get();
  if (!why) why = failure_of(s, over->epoch);
  else drop(s, over->sequence);
  if (!why) divide_average(over->what, s.rank, ranks_, over->output);
  operation_ptr op;
  {
    const locker lock(s);
    op = std::move(s.current);
  }
  complete(s, op, std::move(why));
}

void slot_desk::complete(seat& s, const operation_ptr& op, failure_ptr why) {
  if (op->registered) out_->withdraw(op->epoch, s.rank);
  ++callbacks;
  op->done->complete(std::move(why));
  --callbacks;
}

// -- asynchronous operations --------------------------------------------------------------------------------------------

void slot_desk::submit(rank_t rank, operation_ptr op) {
  seat& s = at(rank);
  if (op->deadline) {  // otherwise nobody asks before the attendant does
    op->begun = clock::now();
    op->expires = expiry(op->begun, op->deadline);
  }
  const bool elsewhere = takes_long(*op, ranks_);
  // What may throw comes first: peers wait for every number that was given.
  if (my_gathering != nullptr) my_gathering->make_room();
  {
    const locker lock(s);
    operation& queued = *s.queue.emplace_back(std::move(op));
    queued.sequence = s.next++;
    queued.epoch = epoch_of(queued.sequence);
    if (s.owned) return;
  }
  if (my_gathering != nullptr) my_gathering->queued_.push_back({this, rank, elsewhere});
  else begin_somewhere(rank, elsewhere);
}

void slot_desk::begin_somewhere(rank_t rank, bool elsewhere) {
  // Begun here inside a callback, it could end here, and its callback begin the next …
  if (elsewhere || callbacks > 0) ask_attendant(rank, false);
  else start_here(rank);
}

void slot_desk::help_briefly(rank_t rank) {
  if (board_ && callbacks == 0) start_here(rank);
}

void slot_desk::attend_now(rank_t rank) {
  if (board_ && at(rank).unattended.load() != 0) ask_attendant(rank, false);
}

void slot_desk::help(rank_t rank, const completion& done, steady_time until) {
  if (!board_ || callbacks > 0 || done.done()) return;
  seat& s = at(rank);
  if (!claim(s)) return;
  while (true) {
    bool moved = false;
    if (!drive(s, moved)) return;
    if (done.done() || clock::now() >= until) return park(s);
    if (look_again(s, done)) continue;
    if (!sleep_for(s, until)) break;
  }
  ask_attendant(rank, true);
}

/// Looks for as long as that has paid lately. True: something has moved.
bool slot_desk::look_again(seat& s, const completion& done) {
  if (s.current->stalled) return false;  // perhaps never begun: the performer may still know the operation before
  const auto before = s.performer->steps_taken();
  const int looks = std::max(s.spin, 1);
  for (int i = 0; i < looks + waiting_.yields; ++i) {
    if (s.current->stalled || done.done()) return false;
    try {
      if (s.performer->advance() != slot_performer::status::waiting || s.performer->steps_taken() != before)
        return true;
    } catch (...) {
      return stall(*s.current, reason_of_exception()), false;
    }
    if (i % 16 == 15) help_others(s);
    if (i >= looks) std::this_thread::yield();
    else if (i >= least_spin) pause_core();
  }
  return false;
}

/// One thread may drive several ranks, so it must not wait for what it has left itself.
void slot_desk::help_others(const seat& own) {
  for (const auto& other : seats_) {
    if (other.get() == &own || other->unattended.load(std::memory_order_relaxed) == 0 || !claim(*other)) continue;
    bool moved = false;
    if (drive(*other, moved)) park(*other);
  }
}

/// Sleeps until the rank is written to. False: for long, the attendant shall see to it.
bool slot_desk::sleep_for(seat& s, steady_time until) {
  if (s.current->stalled) return false;
  const steady_time expires = std::min(until, s.current->expires);
  patience watch(*this, s, expires);
  slot_wait_options how = waiting_;
  how.spin = how.yields = 0;
  how.patience = std::clamp<std::chrono::nanoseconds>(expires - clock::now(), std::chrono::nanoseconds{0}, long_wait);
  how.watch = &watch;
  const auto asleep = clock::now();
  try {
    wait_slots(*s.performer, how);
    learn(s, clock::now() - asleep);
  } catch (...) {
    stall(*s.current, reason_of_exception());
  }
  return !watch.tired() || clock::now() >= until;
}

// -- groups -----------------------------------------------------------------------------------------------------------

slot_desk::gathering::gathering() : outer_(std::exchange(my_gathering, this)) {}

slot_desk::gathering::~gathering() {
  my_gathering = outer_;
  for (const queued& one : queued_) {
    if (my_gathering != nullptr) my_gathering->queued_.push_back(one);
    else one.desk->begin_somewhere(one.rank, one.elsewhere);
  }
}

void slot_desk::gathering::drive() {
  struct rank_here {
    slot_desk* desk;
    seat* at;
  };
  std::vector<rank_here> here;
  my_gathering = outer_;  // what callbacks begin is not part of it
  for (const queued& one : queued_)
    if (one.desk->claim(one.desk->at(one.rank))) here.push_back({one.desk, &one.desk->at(one.rank)});
  queued_.clear();
  for (int idle = 0; !here.empty();) {
    bool moved = false;
    std::erase_if(here, [&](const rank_here& r) { return !r.desk->drive(*r.at, moved); });
    idle = moved ? 0 : idle + 1;
    if (here.empty()) return;
    const int spin = here.front().desk->waiting_.spin / 4;
    if (idle > spin + most_yields) break;
    if (idle > spin) std::this_thread::yield();
  }
  for (const rank_here& r : here) r.desk->ask_attendant(r.at->rank, true);
}

}  // namespace troupe::actors
