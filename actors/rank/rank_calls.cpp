// SPDX-License-Identifier: Apache-2.0
// What rank_cell does for a blocking call over the boards, and for blocking sends and receives.
#include <algorithm>
#include <exception>

#include "actors/rank/rank_turn.hpp"
#include "actors/waiting/yielding.hpp"
#include "memory/exception_text.hpp"

namespace troupe::actors {

namespace {
using clock = std::chrono::steady_clock;

/// A rank that never waits notes where it is once in so many calls.
constexpr unsigned quick_calls_a_note = 16;
/// About what it takes a line to get to another core and back.
constexpr int pauses_before_answer = 2;
/// Of what a peer copies: waiting for more is worth a look as long as the copy.
constexpr std::size_t much_to_copy = 64 * 1024;
/// For a peer's copy.
constexpr std::chrono::nanoseconds longest_look = std::chrono::milliseconds{1};

}  // namespace

plan_ptr rank_cell::plan_again(const call& what) {
  if (state_.port() == nullptr || !try_turn()) return nullptr;
  plan_ptr known = state_.port()->plan_of(what);
  end_turn();
  return known;
}

/// Takes the turn, if a call may begin now; else gives it back. Everything that comes before the call has been read.
[[gnu::always_inline]] inline bool rank_cell::turn_for_call() noexcept {
  if (!take_turn(holder::call)) return false;
  if (at_rest_ && inbox_.empty()) [[likely]]
    return true;
  return may_begin_in_turn();
}

/// As turn_for_call(), whatever has come. @pre the turn is held
bool rank_cell::may_begin_in_turn() noexcept {
  if (!inbox_.empty()) drain();
  at_rest_ = state_.at_rest() && !broke_down_ && !pending_.load(std::memory_order_relaxed);
  if (at_rest_ || state_.may_begin_at_once()) return true;
  end_turn();
  return false;
}

/// Whether the port remembers the call; if not, or if there is no memory for its sizes, the turn is given back.
template <class Recall>
[[gnu::always_inline]] inline bool rank_cell::recalled(Recall&& recall) {
  try {
    if (recall()) [[likely]]
      return true;
  } catch (...) {
    end_turn();
    throw;
  }
  end_turn();
  return false;
}

rank_cell::call_end rank_cell::perform_again(const call& what, const std::optional<checked_call>& checked,
                                             const call_buffers& memory, time_limit deadline) {
  if (!turn_for_call()) return call_end::not_begun;
  board_port& port = *state_.port();
  if (!recalled([&] { return port.recall(what); })) return call_end::not_begun;
  if (checked) port.note_checked(*checked);
  return perform_begun(memory, deadline);
}

/// @param recall whether the port remembers it
template <class Recall>
[[gnu::always_inline]] inline rank_cell::call_end
rank_cell::perform_if(const checked_call& words, Recall&& recall, const call_buffers& memory, time_limit deadline) {
  board_port& port = *state_.port();
  const checked_calls::place* const at = port.where_checked(words);
  if (at == nullptr || !turn_for_call()) return call_end::not_begun;
  if (!recalled([&] { return recall(port, *at); })) return call_end::not_begun;
  return perform_begun(memory, deadline);
}

rank_cell::call_end rank_cell::perform_unchecked(const checked_call& words, const call& what,
                                                 const call_buffers& memory, time_limit deadline) {
  return perform_if(
      words, [&](board_port& port, const auto& at) { return port.recall(at, words, what); }, memory, deadline);
}

rank_cell::call_end rank_cell::perform_unchecked(const plain_call& what, time_limit deadline) {
  const auto words = repeatable(what);
  if (!words) return call_end::not_begun;
  return perform_if(
      *words, [&](board_port& port, const auto& at) { return port.recall(at, *words, what.count); },
      {what.input, what.output}, deadline);
}

rank_cell::call_end rank_cell::perform_listed(const listed_call& what, time_limit deadline) {
  const checked_call words = words_of(what);
  return perform_if(
      words, [&](board_port& port, const auto& at) { return port.recall(at, words, what); },
      {what.input, what.output, what.input_displacements, what.output_displacements}, deadline);
}

rank_cell::call_end rank_cell::perform(const call& what, const plan_ptr& how, const call_buffers& memory,
                                       time_limit deadline) {
  if (!turn_for_call()) return call_end::not_begun;
  try {
    state_.port()->remember(what, how);
  } catch (...) {
    end_turn();
    throw;
  }
  return perform_begun(memory, deadline);
}

void rank_cell::learn(std::chrono::nanoseconds slept) { spin_ = learn_spin(spin_, waiting_, slept); }

/// True: performed. False: it takes long, a message has come, or it does not fit. Most end here, before anything of a wait is set up.
[[gnu::always_inline]] inline bool rank_cell::perform_here(time_limit deadline, steady_time begun) {
  board_port& port = *state_.port();
  const auto status = port.advance();
  if (status != board_performer::status::performed) [[unlikely]]
    return wait_here(status, deadline, begun);
  if (++quick_calls_ % quick_calls_a_note == 0) [[unlikely]]
    port.board().cores().note(rank());
  return true;
}

/// The same of what has not ended at the first look.
bool rank_cell::wait_here(board_performer::status status, time_limit deadline, steady_time begun) {
  board_port& port = *state_.port();
  shared_cores& cores = port.board().cores();
  if (status == board_performer::status::waiting) cores.note(rank());
  wait_course course{{spin_}};
  while (status == board_performer::status::waiting) {
    const auto step = course.next();
    if (step == wait_course::step::sleep) break;
    if (course.taken() == eager_looks + 1 && cores.is_shared(rank()) && !leaver_.leave(cores, rank())) break;
    if (step == wait_course::step::pause) pause_core();
    status = port.advance();
  }
  if (status == board_performer::status::performed) return true;
  watch tired{*this, deadline.after(begun)};
  slot_wait_options how;
  how.spin = 0;
  how.yields = waiting_.yields;
  how.beside = waiting_.beside;
  how.patience = state_.patience();
  if (deadline) how.patience = std::clamp(*deadline, std::chrono::nanoseconds{0}, how.patience);
  how.watch = &tired;
  const auto asleep = clock::now();
  const auto ended = wait_slots(port.performer(), how).how;
  learn(clock::now() - asleep);
  return ended == slot_wait_result::ended::performed;
}

/// @pre turn_for_call(), and the call is the port's last
[[gnu::always_inline]] inline rank_cell::call_end rank_cell::perform_begun(const call_buffers& memory,
                                                                           time_limit deadline) {
  const auto begun = deadline ? clock::now() : steady_time{};
  try {
    state_.begin_inline(memory);
  } catch (...) {
    end_turn();
    throw;
  }
  number_of_call_ = state_.last_called();
  std::exception_ptr problem;  // taking it needs no memory that might be lacking
  try {
    if (perform_here(deadline, begun)) [[likely]] {
      state_.end_inline(memory.output);
      if (at_rest_) end_turn_at_rest();
      else end_turn();
      return call_end::performed;
    }
  } catch (...) {
    problem = std::current_exception();
  }
  return perform_later(memory, deadline, deadline ? begun : clock::now(), problem);
}

/// It becomes an operation. @param problem what a user's function threw; or null
rank_cell::call_end rank_cell::perform_later(const call_buffers& memory, time_limit deadline, steady_time begun,
                                             const std::exception_ptr& problem) {
  at_rest_ = false;
  left_ = {nullptr, nullptr};
  try {
    left_.still_to_do = state_.adopt_inline(memory, deadline, begun);
  } catch (...) {  // peers wait for this rank, and nobody can go on for it
    state_.drop_inline();
    left_.why = *no_memory_;
    break_down();
    end_turn();
    return call_end::later;
  }
  if (problem) transit([&] { state_.stall_on_board(text_of(problem), *out_); });
  turn();
  end_turn();
  return call_end::later;
}

namespace {
std::size_t bytes_of(std::span<const pair_call> calls) {
  std::size_t bytes = 0;
  for (const pair_call& c : calls) bytes += c.count * size_of(c.type);
  return bytes;
}
}  // namespace

rank_cell::pairs_end rank_cell::perform_pairs(std::span<const pair_call> calls, time_limit deadline) {
  if (!try_turn()) return pairs_end::not_begun;
  if (pairs_waited_ != std::chrono::nanoseconds{-1}) learn(std::exchange(pairs_waited_, std::chrono::nanoseconds{-1}));
  if (!inbox_.empty()) drain();
  for (const pair_call& c : calls)
    if (!state_.may_begin_pair_at_once(c.peer, c.sending)) [[unlikely]] {
      end_turn();
      return pairs_end::not_begun;
    }
  const auto begun = deadline ? clock::now() : steady_time{};
  try {
    state_.begin_pairs_inline(calls);
  } catch (...) {
    end_turn();
    throw;
  }
  bool all = false;
  const bool to_be_taken = calls.size() == 1 && calls.front().sending && !state_.left_pairs();
  const bool whole = within_memory([&] {
    const std::size_t bytes = bytes_of(calls);
    all = look_at_pairs(to_be_taken, bytes) || sleep_for_pairs(bytes, deadline, begun);
  });
  if (all) [[likely]] {
    state_.end_pairs_inline();
    end_turn();
    return pairs_end::performed;
  }
  pairs_to_do_ = state_.adopt_pairs_inline(deadline, deadline ? begun : clock::now(), *out_);
  if (!whole) break_down();
  turn();
  end_turn();
  return pairs_end::later;
}

void rank_cell::waited_for_pairs(std::chrono::nanoseconds time, std::size_t bytes) noexcept {
  // Where much is copied, it has been looked for as long as that takes.
  pairs_waited_ = std::max(pairs_waited_, bytes < much_to_copy ? time_without_copies(time, bytes) : time);
}

/// Looks for as long as that has paid lately. True: all are performed. @param send nothing but a send that is to be taken @param bytes of all
/// @pre begun inline
bool rank_cell::look_at_pairs(bool send, std::size_t bytes) {
  auto status = pair_status::waiting;
  shared_cores& cores = state_.port()->board().cores();
  if (!send) status = state_.look_at_pairs(*out_, false);
  if (status == pair_status::waiting || ++quick_calls_ % quick_calls_a_note == 0) cores.note(rank());
  if (status != pair_status::waiting) [[likely]]
    return status == pair_status::performed;
  // A peer that is looking, too, has taken the message by then. A look at once would take its answer's line away from it.
  for (int i = 0; send && i < pauses_before_answer && spin_ > 0; ++i) pause_core();
  wait_course course{{spin_}, eager_pair_looks};
  while (status == pair_status::waiting) {
    const auto step = course.next();
    if (step == wait_course::step::sleep) break;
    if (course.taken() == eager_pair_looks + 1 && cores.is_shared(rank()) && !leaver_.leave(cores, rank())) break;
    if (step == wait_course::step::pause) pause_core();
    status = state_.look_at_pairs(*out_, course.taken() % eager_looks == 0);
  }
  // A peer that copies much at the moment is soon through. A rank that sleeps is woken by the system, and copies are the system's then.
  if (status == pair_status::waiting && bytes >= much_to_copy && waiting_.spin > 0 && !cores.is_shared(rank()) &&
      long_looks_.due()) {
    const auto until =
        clock::now() + std::min<std::chrono::nanoseconds>(brief_sleep + copying_time(bytes), longest_look);
    // The same course again and again: how often to look follows from how long the copy takes, which no number of looks says.
    wait_course beside_copy{{eager_looks}, 0};
    while (status == pair_status::waiting) {
      if (beside_copy.next() == wait_course::step::sleep) {
        if (!inbox_.empty() || clock::now() >= until) break;
        beside_copy.restart();
        continue;
      }
      pause_core();
      status = state_.look_at_pairs(*out_);
    }
    long_looks_.looked(status != pair_status::waiting);
  }
  if (status != pair_status::waiting) return status == pair_status::performed;
  // The peer may perform it, if it has the core meanwhile.
  state_.offer_pairs();
  status = state_.look_at_pairs(*out_);
  wait_course rest{{0, waiting_.yields}};
  while (status == pair_status::waiting && inbox_.empty() && rest.next() == wait_course::step::yield && yield_core())
    status = state_.look_at_pairs(*out_);
  return status == pair_status::performed;
}

/// Sleeps until a peer wakes it. True: all are performed. False: it takes long, a message has come, or it does not fit. @pre begun inline, and looked at
bool rank_cell::sleep_for_pairs(std::size_t bytes, time_limit deadline, steady_time begun) {
  // Within a process the other end's thread turns this rank, and wakes its caller when all is done.
  if (!inbox_.empty() || !state_.awaits_far_pairs()) return false;
  slot_board& board = state_.port()->board();
  const auto asleep = clock::now();
  const auto until = std::min(asleep + state_.patience(), deadline.after(begun));
  auto status = pair_status::waiting;
  watch messages{*this, until};
  state_.go_away_from_pairs();
  do {
    {
      slot_board::sleep sleep{board, rank()};
      sleep.announce(rank(), slot_board::no_writer);
      status = state_.look_at_pairs(*out_);
      if (status != pair_status::waiting || messages.stop()) break;
      sleep.until(until);
    }
    status = state_.look_at_pairs(*out_);
  } while (status == pair_status::waiting && !messages.stop() && clock::now() < until);
  waited_for_pairs(clock::now() - asleep, bytes);
  return status == pair_status::performed;
}

}  // namespace troupe::actors
