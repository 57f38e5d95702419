// SPDX-License-Identifier: Apache-2.0
// A model of a rank's turn being given back (rank_cell.hpp) while a peer writes to the rank and a caller of it is falling asleep: neither a
// message that moves something nor an operation on the board is left to nobody. All accesses of the first model are sequentially consistent; in
// the second one a store is not. The third one is of a caller that gives the turn away while it yields.

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

#include "tests/lanes/explorer.hpp"

namespace turn_model_test {

namespace {

struct rules {
  bool looks_after_release = true;     ///< H2: the holder looks at the inbox when it has given the turn back
  bool enters_before_look = true;      ///< the caller says that it waits, then looks for something to do
  bool tells_of_board = true;          ///< the holder wakes a caller for what it leaves on the board
  bool deserts_before_release = true;  ///< and marks that before it gives the turn back
};

struct state {
  std::uint8_t holder = 0, writer = 0, caller = 0, worker = 0;  ///< next step of each
  std::uint8_t board = 1;     ///< the caller's operation is on the board; else the message ends it
  std::uint8_t done = 0;      ///< it has ended
  std::uint8_t messages = 0;  ///< in the inbox
  std::uint8_t held = 1, pending = 0, deserted = 0, waiters = 0;
  std::uint8_t token = 0, parked = 0;  ///< of the caller's parker
  std::uint8_t job = 0;                ///< the rank is in the scheduler's queue
  std::uint8_t seen = 0;               ///< what a step has read and a later one uses: bit by thread
};

enum : std::uint8_t { by_holder = 1, by_worker = 2 };

void wake(state& s) {
  s.token = 1;
  s.parked = 0;
}
void summon(state& s) {
  if (s.waiters) wake(s);
  else s.job = 1;
}

/// Somebody who has the turn reads the inbox.
void drain(state& s) {
  if (!std::exchange(s.messages, 0) || s.board) return;
  s.done = 1;
  wake(s);
}

/// Has the turn, and an operation on the board that is not its own; gives the turn back and goes.
bool holder(state& s, const rules& r) {
  switch (s.holder) {
    case 0: drain(s); break;
    case 1: s.pending = 1; break;
    case 2:
      if (r.deserts_before_release) s.deserted = s.board;
      break;
    case 3: s.held = 0; break;
    case 4:
      if (!r.deserts_before_release) s.deserted = s.board;
      break;
    case 5: s.seen = static_cast<std::uint8_t>(s.seen | (r.looks_after_release && s.messages ? by_holder : 0)); break;
    case 6:
      if (s.seen & by_holder) summon(s);
      else if (r.tells_of_board && s.board && s.waiters) wake(s);
      break;
    default: return false;
  }
  ++s.holder;
  return true;
}

bool writer(state& s) {
  switch (s.writer) {
    case 0: s.messages = 1; break;
    case 1:
      // A holder that is awake sees it.
      if (s.held || !s.pending) s.writer = 8;
      break;
    case 2: summon(s); break;
    default: return false;
  }
  ++s.writer;
  return true;
}

/// Waits for the operation on the board; the holder of the turn then stays until it is over, so its taking the turn is the end.
bool caller(state& s, const rules& r) {
  switch (s.caller) {
    case 0:
      if (r.enters_before_look) s.waiters = 1;
      break;
    case 1:
      if (s.done) s.caller = 7;
      else if (!s.held && (s.messages || s.deserted)) s.caller = 4;
      break;
    case 2:
      if (!r.enters_before_look) s.waiters = 1;
      break;
    case 3:
      if (s.parked) return false;
      if (std::exchange(s.token, 0)) s.caller = 0;  // to step 1
      else s.parked = 1, s.caller = 2;              // and again, once woken
      break;
    case 5:
      if (s.held) s.caller = 0;  // somebody else was faster
      else s.held = 1, s.deserted = 0, s.messages = 0, s.caller = 7;
      break;
    default: return false;
  }
  ++s.caller;
  return true;
}

/// Turns a rank that was put into the queue; the operation on the board does not end by that.
bool worker(state& s, const rules& r) {
  switch (s.worker) {
    case 0:
      if (!s.job) return false;
      s.job = 0;
      break;
    case 1:
      if (s.held) s.worker = 9;  // to step 0
      else s.held = 1, s.deserted = 0;
      break;
    case 2: drain(s); break;
    case 3: s.deserted = s.board; break;
    case 4: s.held = 0; break;
    case 5:
      s.seen = static_cast<std::uint8_t>((s.seen & ~by_worker) | (r.looks_after_release && s.messages ? by_worker : 0));
      break;
    default:
      if (s.seen & by_worker) summon(s);
      else if (r.tells_of_board && s.board && s.waiters) wake(s);
      s.worker = 9;
  }
  s.worker = s.worker == 9 ? 0 : static_cast<std::uint8_t>(s.worker + 1);
  return true;
}

model::outcome explore(const rules& r, bool board) {
  const auto alone = [](auto step) { return [step](state& s, int choice) { return choice == 0 && step(s); }; };
  state start;
  start.board = board;
  return model::explore<state>(
      start,
      {{"holder", alone([&](state& s) { return holder(s, r); })},
       {"writer", alone([&](state& s) { return writer(s); })},
       {"caller", alone([&](state& s) { return caller(s, r); })},
       {"worker", alone([&](state& s) { return worker(s, r); })}},
      [](const state&) { return std::string{}; },
      [](const state& s) { return std::string{s.caller == 8 ? "" : "the caller sleeps, and nobody has the turn"}; });
}

}  // namespace

TEST_CASE("model of the turn: what is left when it is given back is left to somebody") {
  for (const bool board : {true, false}) {
    const auto found = explore({}, board);
    CHECK_MESSAGE(found.wrong.empty(), model::told(found));
    CHECK(found.states > 100);
  }
}

/// Not that of deserting before the release, nor, without a board, that of entering before the look: in this model another rule mends
/// what they would break.
TEST_CASE("model of the turn: the explorer notices rules that are missing") {
  const auto finds = [](bool board, auto breaks) {
    rules r;
    breaks(r);
    return !explore(r, board).wrong.empty();
  };
  CHECK(finds(true, [](rules& r) { r.enters_before_look = false; }));
  CHECK(finds(false, [](rules& r) { r.looks_after_release = false; }));
  CHECK(finds(true, [](rules& r) { r.tells_of_board = false; }));
}

// -- a call that ends at rest ---------------------------------------------------------------------------------------------

namespace {

/// Each may be broken.
struct rest_rules {
  bool looks_after_release = true;  ///< the call looks whether a message is urgent, behind its plain store
  bool passes_barrier = true;       ///< who finds the call in the turn has all threads pass a barrier
  bool looks_again = true;          ///< … and looks at the turn again
};

/// A blocking call gives the turn back by a store that only it has seen for a while (rank_cell::end_turn_at_rest()); a writer leaves an urgent
/// message (rank_cell::notify()).
struct rest_state {
  std::uint8_t call = 0, writer = 0;  ///< next step of each
  std::uint8_t held = 1, buffered = 0;
  std::uint8_t urgent = 0, seen = 0;
  std::uint8_t summoned = 0;
};

model::outcome explore(const rest_rules& r) {
  const auto call = [&r](rest_state& s, int choice) {
    if (choice != 0) return false;
    switch (s.call) {
      case 0: s.buffered = 1; break;
      case 1: s.seen = r.looks_after_release && s.urgent; break;
      case 2: s.summoned |= s.seen; break;
      default: return false;
    }
    ++s.call;
    return true;
  };
  const auto flush = [](rest_state& s) {
    if (std::exchange(s.buffered, 0)) s.held = 0;
  };
  const auto memory = [&](rest_state& s, int choice) {
    if (choice != 0 || !s.buffered) return false;
    flush(s);
    return true;
  };
  const auto writer = [&](rest_state& s, int choice) {
    if (choice != 0) return false;
    switch (s.writer) {
      case 0: s.urgent = 1; break;
      case 1:
        if (!s.held) s.writer = 3;  // to step 4
        break;
      case 2:
        if (r.passes_barrier) flush(s);
        break;
      case 3:
        if (s.held || !r.looks_again) s.writer = 4;  // the call sees it
        break;
      case 4: s.summoned = 1; break;
      default: return false;
    }
    ++s.writer;
    return true;
  };
  return model::explore<rest_state>(
      {}, {{"call", call}, {"memory", memory}, {"writer", writer}}, [](const rest_state&) { return std::string{}; },
      [](const rest_state& s) { return std::string{s.summoned ? "" : "nobody was told of the urgent message"}; });
}

}  // namespace

TEST_CASE("model of the turn: a call that ends at rest and an urgent message do not miss each other") {
  const auto found = explore(rest_rules{});
  CHECK_MESSAGE(found.wrong.empty(), model::told(found));
  CHECK(found.states > 20);
  for (const auto breaks :
       {+[](rest_rules& r) { r.looks_after_release = false; }, +[](rest_rules& r) { r.passes_barrier = false; },
        +[](rest_rules& r) { r.looks_again = false; }}) {
    rest_rules r;
    breaks(r);
    CHECK(!explore(r).wrong.empty());
  }
}

// -- a caller that yields -------------------------------------------------------------------------------------------------

namespace {

/// Each may be broken.
struct yield_rules {
  bool says_left = true;           ///< a caller that does not get the turn back says that something is left …
  bool returned_before_it = true;  ///< … when nobody can take it for coming back any more
};

/// A caller gives the turn away for a yield (rank_cell::yield_turn()), with an operation that messages move; two peers each leave one, and may do
/// what follows from it. What is said to be left the attendant adopts, which reads the inbox.
struct yield_state {
  std::uint8_t caller = 0, peer[2] = {0, 0}, worker = 0;  ///< next step of each
  std::uint8_t held = 1, returning = 0, messages = 0, left = 0;
  std::uint8_t job = 0;  ///< the rank is in the scheduler's queue
  std::uint8_t cares =
      0;  ///< who leaves the rest to others, as read when it was about to give the turn back: bit by thread
};

bool take(yield_state& s) {
  if (s.held) return false;
  s.held = 1;
  s.left = 0;
  return true;
}

/// Of somebody else than the caller, from the turn on; step by step. False: it is over.
bool turn_and_go(yield_state& s, std::uint8_t step, std::uint8_t me) {
  switch (step) {
    case 0: s.messages = 0; return true;
    case 1: s.cares = static_cast<std::uint8_t>(s.returning ? s.cares & ~me : s.cares | me); return true;
    case 2:
      if (s.cares & me) s.left = 1;
      return true;
    case 3: s.held = 0; return true;
    default:
      if (s.messages && !s.returning) s.job = 1;
      return false;
  }
}

model::outcome explore(const yield_rules& r) {
  constexpr std::uint8_t with_turn = 9, without = 10;
  const auto caller = [&r](yield_state& s, int choice) {
    if (choice != 0) return false;
    switch (s.caller) {
      case 0: s.returning = 1; break;
      case 1: s.held = 0; break;
      case 2: s.caller = take(s) ? 4 : 2; break;  // to step 5 or 3
      case 3:
        if (!r.returned_before_it) s.left = 1;
        else s.returning = 0;
        break;
      case 4: s.caller = take(s) ? 5 : 6; break;  // to step 6 or 7
      case 5: s.returning = 0; break;
      case 6:
        s.messages = s.returning = 0;
        s.caller = with_turn;
        return true;
      case 7:
        if (!r.returned_before_it) s.returning = 0;
        else if (r.says_left) s.left = 1;
        s.caller = without;
        return true;
      default: return false;
    }
    ++s.caller;
    return true;
  };
  const auto peer = [](int which) {
    return [which](yield_state& s, int choice) {
      constexpr std::uint8_t over = 20;
      std::uint8_t& at = s.peer[which];
      const bool chooses = at == 3;
      if (at == over || choice > (chooses ? 1 : 0)) return false;
      switch (at) {
        case 0: s.messages = 1; break;
        case 1:
          if (s.held) at = over - 1;  // who has the turn sees it
          break;
        case 2:
          if (!s.returning) s.job = 1, at = over - 1;
          break;
        case 3:
          if (choice == 1 || !take(s)) at = over - 1;
          break;
        default:
          if (!turn_and_go(s, static_cast<std::uint8_t>(at - 4), static_cast<std::uint8_t>(1 << which))) at = over - 1;
      }
      ++at;
      return true;
    };
  };
  const auto worker = [](yield_state& s, int choice) {
    if (choice != 0 || (s.worker == 0 && !s.job)) return false;
    if (s.worker == 0) {
      s.job = 0;
      s.worker = take(s) ? 1 : 0;
      return true;
    }
    s.worker = turn_and_go(s, static_cast<std::uint8_t>(s.worker - 1), 4) ? static_cast<std::uint8_t>(s.worker + 1) : 0;
    return true;
  };
  return model::explore<yield_state>(
      {}, {{"caller", caller}, {"first", peer(0)}, {"second", peer(1)}, {"worker", worker}},
      [](const yield_state&) { return std::string{}; },
      [](const yield_state& s) {
        return std::string{s.caller == with_turn || s.left ? "" : "nobody sees to what is left"};
      });
}

}  // namespace

TEST_CASE("model of the turn: what happens while a caller yields is the caller's, or is left to somebody") {
  const auto found = explore(yield_rules{});
  CHECK_MESSAGE(found.wrong.empty(), model::told(found));
  CHECK(found.states > 100);
  CHECK(!explore(yield_rules{.says_left = false}).wrong.empty());
  CHECK(!explore(yield_rules{.returned_before_it = false}).wrong.empty());
}

}  // namespace turn_model_test
