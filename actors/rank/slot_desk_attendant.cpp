// The thread that performs what callers hand over, and sleeps while nothing is written.

#include <algorithm>
#include <thread>

#include "actors/rank/slot_desk_seat.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {

using clock = std::chrono::steady_clock;

/// Between two looks at unattended seats: what an operation that nobody waits for is late by, at most twice. Looks that find nothing to
/// take become rarer: callers wait for what they begin then, and a thread that wakes every 50 µs keeps Linux from moving one of two
/// callers that share a core to the other core (a core that is never idle for long looks for no work).
constexpr std::chrono::nanoseconds shortest_nap = std::chrono::microseconds{50},
                                   longest_nap = std::chrono::milliseconds{2};
constexpr int short_naps = 4;
/// Then there has been nothing unattended for a while.
constexpr int most_naps = 100;

}  // namespace

// -- the attendant ----------------------------------------------------------------------------------------------------

/// Starts it if there is none. False: closed.
bool slot_desk::have_attendant() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    if (std::exchange(started_, true)) return true;
  }
  try {
    out_->start_attendant();
  } catch (const std::exception& e) {  // no thread: nobody can go on here, nor anywhere
    broken(
        make_failure(errc::out_of_memory, std::string{"no thread can be started for small operations: "} + e.what()));
    close();
    attend();
  }
  return true;
}

void slot_desk::ask_attendant(rank_t rank, bool handed_over) {
  bool closed = false;
  {
    const std::lock_guard lock(mutex_);
    closed = closed_;
    const auto same = [&](const request_for& one) { return one.rank == rank && one.handed_over == handed_over; };
    if (!closed && std::none_of(inbox_.begin(), inbox_.end(), same)) inbox_.push_back({rank, handed_over});
  }
  if (!closed) {
    fresh_.store(true);
    if (have_attendant()) wake_attendant();
    return;
  }
  if (seat& s = at(rank); handed_over || claim(s)) end_all(s);
}

void slot_desk::wake_attendant() {
  fresh_.store(true);
  {
    const std::lock_guard lock(mutex_);  // it does not fall asleep between its look and its wait
  }
  something_.notify_one();
  if (const rank_t rank = sleeping_.load(); rank >= 0) board_->wake(rank);
}

bool slot_desk::stands_still() {
  if (!board_) return true;
  {
    const std::lock_guard lock(mutex_);
    if (!started_ || closed_) return true;
  }
  const bool still = idle_.load() && !fresh_.load() && answered_.load() == asked_.load() && !any_unattended();
  asked_.fetch_add(1);
  { const std::lock_guard lock(mutex_); }
  something_.notify_one();
  if (const rank_t rank = sleeping_.load(); rank >= 0) board_->wake(rank);
  return still;
}

bool slot_desk::any_unattended() const {
  return std::any_of(seats_.begin(), seats_.end(), [](const auto& s) { return s->unattended.load() != 0; });
}

void slot_desk::attend() {
  std::vector<seat*> mine;
  asleep_.store(false);
  for (int idle = 0;;) {
    const std::uint64_t asked = asked_.load();
    const bool closed = take_inbox(mine);
    const auto now = clock::now();
    adopt(mine, closed, now);
    const bool moved = drive_all(mine);
    if (closed && mine.empty()) {
      asleep_.store(true);  // who leaves a seat from now on finds everything closed
      if (!any_unattended()) return;
      asleep_.store(false);
    }
    if (mine.empty()) {
      wait_for_work(asked);
      continue;
    }
    idle = moved ? 0 : idle + 1;
    if (moved) continue;
    steady_time next = no_deadline;
    for (seat* s : mine) next = std::min(next, look_after(*s, now));
    if (idle <= most_yields) std::this_thread::yield();
    else sleep(mine, next, asked);
  }
}

/// Takes the seats that have been unattended for a nap.
void slot_desk::adopt(std::vector<seat*>& mine, bool closed, steady_time now) {
  if (now < next_look_ && !closed) return;
  restless_ = std::max(0, restless_ - 1);
  bool taken = false;
  for (const auto& s : seats_) {
    std::uint8_t seen = s->unattended.load();
    if (seen == 0) continue;
    restless_ = most_naps;
    if (seen == 1 && !closed) s->unattended.compare_exchange_strong(seen, 2);
    else if (claim(*s)) mine.push_back(s.get()), taken = true;
  }
  futile_looks_ = taken ? 0 : futile_looks_ + 1;
  if (taken) nap_ = shortest_nap;
  else if (futile_looks_ > short_naps) nap_ = std::min(nap_ * 2, longest_nap);
  next_look_ = now + nap_;
}

/// False: seats have been left unattended meanwhile.
bool slot_desk::fall_asleep() {
  asleep_.store(true);
  if (!any_unattended()) return true;
  asleep_.store(false);
  restless_ = most_naps;
  return false;
}

/// True: closed.
bool slot_desk::take_inbox(std::vector<seat*>& mine) {
  if (!fresh_.exchange(false)) return false;
  bool closed = false;
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(inbox_);
    closed = closed_;
  }
  for (const request_for& one : taken_)
    if (seat& s = at(one.rank); one.handed_over || claim(s)) mine.push_back(&s);
  taken_.clear();
  if (closed) fresh_.store(true);
  return closed;
}

/// Every rank's turn; those with nothing left to do are let go. True: something has moved.
bool slot_desk::drive_all(std::vector<seat*>& mine) {
  bool moved = false;
  std::erase_if(mine, [&](seat* s) { return !drive(*s, moved); });
  return moved;
}

/// As drive_all() while the ranks are announced as asleep, which nobody else may be: keeps them all. What has ended is
/// found again.
bool slot_desk::advance_all(const std::vector<seat*>& mine) {
  bool moved = false;
  for (seat* s : mine) {
    if (s->current->stalled) continue;
    const std::size_t before = s->performer->steps_taken();
    try {
      moved = s->performer->advance() != slot_performer::status::waiting || moved;
    } catch (...) {
      stall(*s->current, reason_of_exception());
    }
    moved = moved || s->current->stalled || s->performer->steps_taken() != before;
  }
  return moved;
}

/// What has taken long is told to the membership. Returns when to look again.
steady_time slot_desk::look_after(seat& s, steady_time now) {
  std::vector<operation_ptr> late;
  steady_time next = no_deadline;
  const auto look = [&](const operation_ptr& op) {
    if (op->expires <= now) {
      op->expires = no_deadline;
      late.push_back(op);
    }
    next = std::min(next, op->expires);
    if (op->begun == steady_time{}) op->begun = now;
  };
  look(s.current);
  {
    const locker lock(s);
    for (const operation_ptr& op : s.queue) look(op);
  }
  if (!s.current->registered) {
    if (now >= s.current->begun + long_wait || !late.empty()) enroll(s, *s.current);
    else next = std::min(next, s.current->begun + long_wait);
  }
  for (const operation_ptr& op : late) out_->fail(op->epoch, op->title(), deadline_passed(*op, s.rank));
  return next;
}

void slot_desk::wait_for_work(std::uint64_t asked) {
  std::unique_lock lock(mutex_);
  const auto called = [&] { return fresh_.load() || asked_.load() != asked; };
  if (restless_ > 0) {
    something_.wait_for(lock, nap_, called);
    return;
  }
  if (!fall_asleep()) return;
  answered_.store(asked);
  idle_.store(true);
  something_.wait(lock, called);
  nap_ = shortest_nap;
  futile_looks_ = 0;
  idle_.store(false);
  asleep_.store(false);
}

void slot_desk::sleep(std::vector<seat*>& mine, steady_time until, std::uint64_t asked) {
  if (restless_ > 0) until = std::min(until, clock::now() + nap_);
  else if (!fall_asleep()) return;
  const rank_t leader = mine.front()->rank;
  {
    slot_board::sleep sleep{*board_, leader};
    for (const seat* s : mine) {
      const slot_performer::lack lack = s->current->stalled ? slot_performer::lack{} : s->performer->lacks();
      sleep.announce(s->rank, lack.writer, lack.finishes);
    }
    sleeping_.store(leader);
    sleep.fence();
    if (!advance_all(mine) && !fresh_.load() && asked_.load() == asked) {
      if (asleep_.load()) answered_.store(asked), idle_.store(true);
      sleep.until(until);
      idle_.store(false);
    }
    sleeping_.store(-1);
  }
  asleep_.store(false);
}

}  // namespace troupe::actors
