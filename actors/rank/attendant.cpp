// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/attendant.hpp"

#include <algorithm>
#include <new>

#include "actors/waiting/yielding.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {

using clock = std::chrono::steady_clock;
using care = rank_cell::care;

/// Between two looks at a board, before it sleeps: the ranks whose turns it has share its core.
constexpr waiting_policy at_boards{0, 32};
/// Until it asks again for the turn of a rank whose time has come while somebody else had it.
constexpr std::chrono::nanoseconds again = std::chrono::milliseconds{1};

}  // namespace

attendant::attendant(const cell_list& cells, slot_board* board, int ranks, std::function<void()> start,
                     std::pmr::memory_resource& memory)
    : cells_(cells),
      board_(board),
      start_(std::move(start)),
      asked_for_(&memory),
      taken_(&memory),
      mine_(&memory),
      rest_(&memory),
      timers_(&memory) {
  asked_for_.reserve(static_cast<std::size_t>(ranks));
  taken_.reserve(static_cast<std::size_t>(ranks));
  mine_.reserve(static_cast<std::size_t>(ranks));
  rest_.reserve(static_cast<std::size_t>(ranks));
  timers_.reserve(static_cast<std::size_t>(ranks));
}

// -- any thread ---------------------------------------------------------------------------------------------------------------

/// False: closed.
bool attendant::start_if_none() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    if (std::exchange(started_, true)) return true;
  }
  try {
    start_();
    return true;
  } catch (const std::exception& e) {
    no_thread(e.what());
    return false;
  }
}

/// Nobody can go on here, nor anywhere.
void attendant::no_thread(const char* reason) noexcept {
  try {
    const auto why = make_failure(
        errc::out_of_memory, std::string{"no thread can be started for operations that nobody waits for: "} + reason);
    for (const auto& cell : cells_)
      cell->post(rank_order{[why](rank_state& s, rank_outbox& out) { s.broken(why, out); }});
    close();
    work();
  } catch (const std::bad_alloc&) {  // not even for that: the next turn tries again
    const std::lock_guard lock(mutex_);
    started_ = false;
  }
}

void attendant::something_left() {
  if (!asleep_.load()) [[likely]]
    return;
  if (start_if_none()) wake();
}

void attendant::take(rank_cell& which) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_ && std::find(asked_for_.begin(), asked_for_.end(), &which) == asked_for_.end())
      asked_for_.push_back(&which);
  }
  fresh_.store(true);
  if (start_if_none()) return wake();
  which.run();  // everything is failing, and nobody else is here to say so
}

void attendant::wake() {
  fresh_.store(true);
  {
    const std::lock_guard lock(mutex_);  // it does not fall asleep between its look and its wait
  }
  something_.notify_one();
  if (const rank_t rank = sleeping_.load(); rank >= 0) board_->wake(rank);
}

void attendant::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake();
}

bool attendant::any_left() const {
  return std::any_of(cells_.begin(), cells_.end(), [](const auto& cell) {
    const care now = cell->unattended.load();
    return now == care::left || now == care::seen;
  });
}

bool attendant::stands_still() {
  {
    const std::lock_guard lock(mutex_);
    if (!started_ || closed_) return true;
  }
  const bool still = idle_.load() && !fresh_.load() && answered_.load() == asked_.load() && !any_left();
  asked_.fetch_add(1);
  { const std::lock_guard lock(mutex_); }
  something_.notify_one();
  if (const rank_t rank = sleeping_.load(); rank >= 0) board_->wake(rank);
  return still;
}

// -- its own thread -----------------------------------------------------------------------------------------------------------

void attendant::work() {
  asleep_.store(false);
  for (wait_course course{at_boards};;) {
    const std::uint64_t asked = asked_.load();
    const bool closed = take_asked();
    const auto now = clock::now();
    adopt(closed, now);
    keep_time(now);
    const bool moved = turn_all();
    if (closed) {
      let_all_go();
      asleep_.store(true);  // who leaves a rank from now on finds everything closed
      if (!any_left()) return;
      asleep_.store(false);
      continue;
    }
    if (mine_.empty()) {
      wait_for_work(asked);
      continue;
    }
    if (moved) {
      course.restart();
      continue;
    }
    steady_time next = next_timer();
    for (rank_cell* cell : mine_) next = std::min(next, cell->tick());
    if (course.next() != wait_course::step::yield || !yield_core()) sleep_on_board(next, asked);
  }
}

/// True: closed.
bool attendant::take_asked() {
  if (!fresh_.exchange(false)) return false;
  bool closed = false;
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(asked_for_);
    closed = closed_;
  }
  for (rank_cell* cell : taken_)
    if (cell->try_turn()) care_for(*cell);
  taken_.clear();
  if (closed) fresh_.store(true);
  return closed;
}

/// Takes the ranks that have been left for a nap.
void attendant::adopt(bool closed, steady_time now) {
  if (now < next_look_ && !closed) return;
  bool left = false, taken = false;
  for (const auto& cell : cells_) {
    care seen = cell->unattended.load();
    if (seen == care::none || (seen == care::timed && !closed)) continue;
    left = true;
    if (seen == care::left && !closed) cell->unattended.compare_exchange_strong(seen, care::seen);
    else if (cell->try_turn()) care_for(*cell), taken = true;
  }
  naps_.looked(left, taken);
  next_look_ = now + naps_.next();
}

/// An operation on the board needs a thread that looks. For the rest it is enough to come back in time. @pre its turn was just taken
void attendant::care_for(rank_cell& cell) {
  cell.begin_queued();
  cell.turn();
  const steady_time next = cell.tick();
  if (cell.state().on_board() != nullptr) {
    cell.attended.store(true, std::memory_order_relaxed);
    mine_.push_back(&cell);
    return;
  }
  const auto known = std::find_if(timers_.begin(), timers_.end(), [&](const timer& t) { return t.cell == &cell; });
  if (known != timers_.end()) known->when = next;
  else if (next != no_deadline) timers_.push_back({next, &cell});
  cell.end_turn(care::timed);
}

void attendant::keep_time(steady_time now) {
  for (std::size_t i = 0; i < timers_.size(); ++i) {
    if (timers_[i].when > now) continue;
    rank_cell* const cell = timers_[i].cell;
    if (cell->unattended.load() != care::timed)
      timers_[i].when = no_deadline;  // somebody came: it is left once more, or over
    else if (cell->try_turn()) timers_[i].when = no_deadline, care_for(*cell);
    else timers_[i].when = now + again;
  }
  std::erase_if(timers_, [](const timer& t) { return t.when == no_deadline; });
}

steady_time attendant::next_timer() const {
  steady_time next = no_deadline;
  for (const timer& t : timers_) next = std::min(next, t.when);
  return next;
}

/// Every rank's turn; those with nothing left on the board are let go. True: something has moved.
bool attendant::turn_all() {
  bool moved = false;
  rest_.clear();
  std::erase_if(mine_, [&](rank_cell* cell) {
    moved = cell->turn() || moved;
    if (cell->state().on_board() != nullptr && !cell->state().has_ended()) return false;
    rest_.push_back(cell);
    return true;
  });
  for (rank_cell* cell : rest_) {
    cell->attended.store(false, std::memory_order_relaxed);
    cell->end_turn(care::none);
    if (cell->try_turn()) care_for(*cell);
  }
  return moved;
}

/// Closed: everything is failing.
void attendant::let_all_go() {
  for (rank_cell* cell : mine_) {
    cell->attended.store(false, std::memory_order_relaxed);
    cell->end_turn();
  }
  mine_.clear();
  timers_.clear();
}

/// False: ranks have been left meanwhile.
bool attendant::fall_asleep() {
  asleep_.store(true);
  if (!any_left()) return true;
  asleep_.store(false);
  naps_.missed();
  return false;
}

void attendant::wait_for_work(std::uint64_t asked) {
  std::unique_lock lock(mutex_);
  const auto called = [&] { return fresh_.load() || asked_.load() != asked; };
  const steady_time next = next_timer();
  if (!naps_.over()) {
    something_.wait_until(lock, std::min(next, clock::now() + naps_.next()), called);
    return;
  }
  if (!fall_asleep()) return;
  answered_.store(asked);
  idle_.store(true);
  if (next == no_deadline) something_.wait(lock, called);
  else something_.wait_until(lock, next, called);
  naps_.woken();
  idle_.store(false);
  asleep_.store(false);
}

void attendant::sleep_on_board(steady_time until, std::uint64_t asked) {
  if (!naps_.over()) until = std::min(until, clock::now() + naps_.next());
  else if (!fall_asleep()) return;
  const rank_t leader = mine_.front()->state().port()->rank();
  for (rank_cell* cell : mine_) cell->falls_asleep(true);
  {
    slot_board::sleep sleep{*board_, leader};
    for (rank_cell* cell : mine_) {
      if (cell->state().on_board()->stalled) sleep.announce(cell->state().port()->rank(), slot_board::anybody);
      else cell->state().port()->performer().announce(sleep);
    }
    sleeping_.store(leader);
    sleep.fence();
    const bool moved = std::any_of(mine_.begin(), mine_.end(),
                                   [](rank_cell* cell) { return !cell->inbox_empty() || cell->advance(); });
    if (!moved && !fresh_.load() && asked_.load() == asked) {
      if (asleep_.load()) answered_.store(asked), idle_.store(true);
      sleep.until(until);
      idle_.store(false);
    }
    sleeping_.store(-1);
  }
  for (rank_cell* cell : mine_) cell->falls_asleep(false);
  asleep_.store(false);
}

}  // namespace troupe::actors
