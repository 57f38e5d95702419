// SPDX-License-Identifier: Apache-2.0
// Callers that turn ranks while they wait for operations: one rank's caller, or that of a group, which turns all of its ranks at once.
#include <algorithm>
#include <exception>
#include <new>

#include "actors/rank/rank_turn.hpp"
#include "actors/waiting/crowded_core.hpp"
#include "actors/waiting/yielding.hpp"
#include "memory/exception_text.hpp"

namespace troupe::actors {

namespace {
using clock = std::chrono::steady_clock;

/// Looks in a row that find nothing, with a yield between, before a group's wait gives up.
constexpr int most_yields = 32;

}  // namespace

// -- helping ------------------------------------------------------------------------------------------------------------------

void rank_cell::help_briefly() {
  if (!in_callback()) run();
}

void rank_cell::help(const completion& done, steady_time until) {
  if (in_callback()) return;
  // At the turn of another thread: a peer's, which had news for this rank, soon gives it back.
  wait_course course{{std::min(eager_looks, waiting_.spin)}, 0};
  while (!done.done()) {
    if (try_turn()) {
      if (!help_in_turn(until, awaited{.done = &done})) return;
      course.restart();
    } else {
      if (course.next() == wait_course::step::sleep) return;
      pause_core();
    }
  }
}

void rank_cell::submit_and_help(std::span<const operation_ptr> ops) {
  const auto done = [&] {
    return std::all_of(ops.begin(), ops.end(), [](const auto& op) { return op->done->done(); });
  };
  if (in_callback() || calling_thread.gathering != nullptr || !try_turn()) {
    for (const operation_ptr& op : ops) submit(op);
    if (in_callback()) return;
  } else {
    {
      const visits others{*this};
      drain();
      for (const operation_ptr& op : ops) {
        enter(op);
        begin_queued();
      }
    }
    if (!help_in_turn(no_deadline, awaited{.ops = ops})) return;
  }
  while (!done() && try_turn() && help_in_turn(no_deadline, awaited{.ops = ops})) {}
}

/// Whether somebody is to be told now, or was.
bool rank_cell::has_ended(const awaited& what) const {
  if (state_.has_arrivals() || (what.done != nullptr && what.done->done())) return true;
  return what.ops.empty() ? state_.has_ended() : state_.have_ended(what.ops);
}

/// Until an operation has ended, or `what` has; gives the turn back. False: it takes long, or there is nothing to turn. @pre held
bool rank_cell::help_in_turn(steady_time until, const awaited& what) {
  bool later = false;
  begin_queued();  // what was to be begun by the attendant, which is only now being woken
  while (true) {
    turn();
    if (has_ended(what) || !state_.pending() || (until != no_deadline && clock::now() >= until)) break;
    const auto found = look_again(what);
    if (found == looked::turn_lost) return false;
    if (found == looked::moved) continue;
    later = state_.on_board() == nullptr || !sleep_on_board(until);
    if (later) break;
  }
  const bool attend = later && state_.on_board() != nullptr, more = state_.pending() || state_.has_ended();
  gives_way_.store(later && !attend && state_.gives_way_to_nic(), std::memory_order_relaxed);
  end_turn(attend ? care::none : care::left);
  if (attend) host_->attend(*this);
  return !later && more && (until == no_deadline || clock::now() < until);
}

/// False also where there is no memory to help with.
bool rank_cell::help_one() noexcept {
  try {
    return host_->help_one();
  } catch (...) {
    return false;
  }
}

/// Gives the turn away for a yield, so that a thread that has the core meanwhile does at once what follows for this rank from what it sends: an operation then
/// needs about one turn of the core a rank, and not one a message. False: somebody else has the rank's turn, and keeps it.
bool rank_cell::yield_turn(bool& yielded) noexcept {
  yields_on_.store(current_core(), std::memory_order_relaxed);
  returning_.fetch_add(1);
  end_turn(care::none);
  yielded = yield_core();
  bool held = try_turn();
  for (wait_course course{{eager_looks, waiting_.yields}}; !held && yielded; held = try_turn()) {
    const auto step = course.next();
    if (step == wait_course::step::sleep) break;
    if (step == wait_course::step::yield) yielded = yield_core();
    else pause_core();
  }
  returning_.fetch_sub(1);
  if (held || (held = try_turn())) return true;
  // The thread that has the turn may have seen that this one was coming back, and have left the rest to it.
  unattended.store(care::left);
  host_->unattended(*this);
  return false;
}

/// Looks for as long as that has paid lately.
rank_cell::looked rank_cell::look_again(const awaited& what) noexcept {
  const auto moved_if = [](bool moved) { return moved ? looked::moved : looked::nothing; };
  const bool board = state_.on_board() != nullptr && !state_.on_board()->stalled;
  // Threads that look would keep the NIC's from what they wait for, and so would those that yield: its thread is woken, they are not.
  if (!board && state_.gives_way_to_nic()) return moved_if(!inbox_.empty());
  board_port* const port = state_.port();
  shared_cores* const cores = port != nullptr ? &port->board().cores() : nullptr;
  const rank_t here = port != nullptr ? port->rank() : rank();
  if (cores != nullptr) cores->note(here);
  wait_course course{{board ? std::max(spin_, 1) : spin_, waiting_.yields}};
  const bool watches = state_.watches_pairs();
  const bool leaves_turn = what.is_known() && visits_ && !board && !watches;
  bool helped = false;  // right before: there is nothing new
  for (auto step = course.next(); step != wait_course::step::sleep; step = course.next()) {
    if (!inbox_.empty()) return looked::moved;
    if (board && advance()) return looked::moved;
    if (watches && look_at_watched()) return looked::moved;
    // One thread may drive several ranks, so it must not wait for what it has left itself.
    const int i = course.taken() - 1;
    if (i == eager_looks && cores != nullptr && cores->is_shared(here) && !leaver_.leave(*cores, here))
      return looked::nothing;
    if (i % 16 == 0 || step == wait_course::step::yield) {
      if (!helped && help_one()) return looked::moved;
      if (i % 64 == 0) host_->help_unattended(*this);
    }
    // A frame may come from a process that shares this core without our knowing.
    const bool gives_way = step == wait_course::step::yield || (!board && i >= eager_looks && core_is_crowded());
    if (gives_way && leaves_turn) {
      bool yielded = false;
      if (!yield_turn(yielded)) return looked::turn_lost;
      if (has_ended(what) || !state_.pending() || state_.on_board() != nullptr || state_.watches_pairs())
        return looked::moved;
      if (!yielded) return moved_if(!inbox_.empty());
    } else if (gives_way) {
      if (watches) state_.offer_watched();
      if (!yield_core()) return looked::nothing;
    } else if (step == wait_course::step::pause) {
      pause_core();
    }
    helped = gives_way && !board;
    if (helped && help_one()) return looked::moved;
  }
  return looked::nothing;
}

/// Sleeps until the rank is written to. False: for long.
bool rank_cell::sleep_on_board(steady_time until) {
  const operation* op = state_.on_board();
  if (op->stalled) return false;
  const steady_time expires = std::min(until, op->expires);
  watch tired{*this, expires};
  slot_wait_options how;
  how.spin = how.yields = 0;
  how.patience =
      std::clamp<std::chrono::nanoseconds>(expires - clock::now(), std::chrono::nanoseconds{0}, state_.patience());
  how.watch = &tired;
  const auto asleep = clock::now();
  transit([&] {
    try {
      wait_slots(state_.port()->performer(), how);
      learn(clock::now() - asleep);
    } catch (...) {
      state_.stall_on_board(text_of(std::current_exception()), *out_);
    }
  });
  return !tired.tired() || clock::now() >= until;
}

// -- groups -------------------------------------------------------------------------------------------------------------------

rank_cell::gathering::gathering() : outer_(std::exchange(calling_thread.gathering, this)) {}

/// True: the turn is kept here. Else the rank is noted; throws std::bad_alloc before anything is changed.
bool rank_cell::gathering::take(rank_cell& which) {
  if (which.keeper_.load(std::memory_order_relaxed) == this) return true;
  if (which.try_turn()) return keep(which), true;
  add_other(which);
  return false;
}

/// @pre the turn is held
void rank_cell::gathering::keep(rank_cell& which) noexcept {
  which.state_.watch_pairs();  // this thread looks until it gives the turn back
  which.keeper_.store(this, std::memory_order_relaxed);
  which.next_kept_ = nullptr;
  *std::exchange(end_, &which.next_kept_) = &which;
}

/// The first of those that are kept, with its turn; null: none.
rank_cell* rank_cell::gathering::give() noexcept {
  rank_cell* const cell = first_;
  if (cell == nullptr) return nullptr;
  first_ = cell->next_kept_;
  if (first_ == nullptr) end_ = &first_;
  cell->keeper_.store(nullptr, std::memory_order_relaxed);
  return cell;
}

void rank_cell::gathering::add_other(rank_cell& which) {
  if (std::find(others_.begin(), others_.end(), &which) == others_.end()) others_.push_back(&which);
}

/// Of what was only queued, where nobody here takes the turn.
void rank_cell::begin_soon() noexcept {
  try {
    post(rank_order{[](rank_state& s, rank_outbox& out) { s.begin(out); }});
  } catch (...) {
    host_->attend(*this);  // which begins what is queued
  }
}

rank_cell::gathering::~gathering() {
  calling_thread.gathering = outer_;
  while (rank_cell* const cell = give()) {
    if (outer_ != nullptr) {
      outer_->keep(*cell);
    } else if (in_callback()) {
      cell->end_turn(care::none);
      cell->begin_soon();
    } else {
      cell->begin_queued();
      cell->turn();
      cell->end_turn();
    }
  }
  for (rank_cell* cell : others_) {
    if (outer_ != nullptr) {
      try {
        outer_->add_other(*cell);
        continue;
      } catch (const std::bad_alloc&) {}
    }
    cell->begin_soon();
    cell->help_briefly();
  }
}

rank_cell* rank_cell::gathering::drive() {
  calling_thread.gathering = outer_;  // what callbacks begin is not part of it
  for (rank_cell* cell : others_) {
    if (cell->try_turn()) keep(*cell);
    else cell->begin_soon();
  }
  others_.clear();
  for (rank_cell* cell = first_; cell != nullptr; cell = cell->next_kept_) cell->begin_queued();
  if (first_ != nullptr && first_->next_kept_ == nullptr && first_->state_.watches_pairs()) {
    rank_cell* const alone = give();
    return alone->drive_alone() ? nullptr : alone;
  }
  wait_course course{{first_ == nullptr ? 0 : first_->waiting_.spin / 4, most_yields}};
  for (auto step = wait_course::step::look; first_ != nullptr && step != wait_course::step::sleep;) {
    if (step == wait_course::step::yield) {
      for (rank_cell* cell = first_; cell != nullptr; cell = cell->next_kept_) cell->state_.offer_watched();
      if (!yield_core()) course.stop_yielding();
    }
    if (turn_each()) course.restart();
    step = course.next();
  }
  while (rank_cell* const cell = give()) {
    const bool attend = cell->state_.on_board() != nullptr;
    cell->end_turn(attend ? care::none : care::left);
    if (attend) cell->host_->attend(*cell);
  }
  return nullptr;
}

/// One rank, whose peers are other threads' or processes': it is turned as for a blocking call. False: something is still under way. @pre held
bool rank_cell::drive_alone() noexcept {
  do turn();
  while (state_.pending() && (state_.watches_alone() ? look_at_group() : look_again({}) == looked::moved));
  const bool attend = state_.on_board() != nullptr, all = !state_.pending();
  end_turn(attend ? care::none : care::left);
  if (attend) host_->attend(*this);
  return all;
}

/// As look_at_pairs(), at what a group has under way. True: something has moved, or may.
bool rank_cell::look_at_group() noexcept {
  if (state_.gives_way_to_nic()) return !inbox_.empty();
  constexpr int looks_a_poll = 64;  // what comes in frames may be a word about one of these
  shared_cores& cores = state_.port()->board().cores();
  cores.note(rank());
  wait_course course{{spin_}};
  for (auto step = course.next(); step != wait_course::step::sleep; step = course.next()) {
    if (!inbox_.empty() || look_at_watched()) return true;
    if (course.taken() == eager_pair_looks + 1 && cores.is_shared(rank()) && !leaver_.leave(cores, rank())) break;
    if (step == wait_course::step::pause) pause_core();
    if (course.taken() % looks_a_poll == 0 && help_one()) return true;
  }
  // A peer may perform it, if it has the core meanwhile.
  state_.offer_watched();
  wait_course rest{{0, waiting_.yields}};
  do
    if (!inbox_.empty() || look_at_watched()) return true;
  while (rest.next() == wait_course::step::yield && yield_core());
  return help_one();
}

void rank_cell::waited_for_group(std::chrono::nanoseconds time, std::size_t bytes) noexcept {
  if (!try_turn()) return;
  learn(time_without_copies(time, bytes));
  end_turn();
}

/// Gives back the turns of ranks that have nothing under way any more. True: something has moved.
bool rank_cell::gathering::turn_each() noexcept {
  bool moved = false;
  rank_cell* cell = std::exchange(first_, nullptr);
  end_ = &first_;
  while (cell != nullptr) {
    rank_cell* const next = cell->next_kept_;
    moved = cell->turn() || moved;
    if (cell->state_.pending()) {
      keep(*cell);
    } else {
      cell->keeper_.store(nullptr, std::memory_order_relaxed);
      cell->end_turn();
    }
    cell = next;
  }
  return moved;
}

}  // namespace troupe::actors
