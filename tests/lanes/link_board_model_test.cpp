// SPDX-License-Identifier: Apache-2.0
// A model of how ranks hear of each other over a link_board (link_board.hpp, part_performer.cpp, rank_cell::hear): one sends two messages on a
// link that has room for one, the other one comes at any time and takes them. Every step is sequentially consistent there, so here it is
// one step of the model. Every interleaving is visited.

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "tests/lanes/explorer.hpp"

namespace {

/// Each may be broken, which the explorer must notice.
struct rules {
  bool bit_first = true;      ///< N1 before N2
  bool here_first = true;     ///< C1 before C2
  bool asks_again = true;     ///< W2 of a credit
  bool open_again = true;     ///< W2 of what is not taken
  bool queued_first = true;   ///< the message is out of the inbox before its reader looks at the board
  bool waits_for_all = true;  ///< the sender ends when all it has sent is taken
};

constexpr std::uint8_t messages = 2, room = 1;

struct state {
  std::uint8_t sent = 0, taken = 0, wanted = 0, open = 0, waits = 0;  // the link's words, and the sender's
  std::uint8_t news = 0, here = 0;                                    // the receiver's
  std::uint8_t queued = 0, inbox = 0;                                 // its one message
  std::uint8_t told = 0;                                              // the sender was
  std::uint8_t sender = 0, sender_saw = 0, ended = 0;
  std::uint8_t receiver = 0, received = 0, seen = 0;
};

/// Of rank_cell::hear(): a thread that finds the message queued leaves it to its reader.
void tell_receiver(state& s) {
  if (std::exchange(s.queued, std::uint8_t{1}) == 0) s.inbox = 1;
}

enum : std::uint8_t {
  s_credit,
  s_want,
  s_again,
  s_park,
  s_open,
  s_send,
  s_first,
  s_second,
  s_wait,
  s_look,
  s_rest,
  s_end
};

bool sender(state& s, const rules& r) {
  switch (s.sender) {
    case s_credit:
      if (s.sent == messages) s.sender = s_wait;
      else s.sender = s.sent - s.taken < room ? s_open : s_want;
      return true;
    case s_want: return s.wanted = 1, s.sender = s_again, true;
    case s_again: return s.sender = r.asks_again && s.sent - s.taken < room ? s_open : s_park, true;
    case s_park:
      if (std::exchange(s.told, std::uint8_t{0}) == 0) return false;
      return s.sender = s_credit, true;
    case s_open: return ++s.open, s.sender = s_send, true;
    case s_send: return ++s.sent, s.sender = s_first, true;
    case s_first:
    case s_second:
      if ((s.sender == s_first) == r.bit_first) {
        s.news = 1;
      } else {
        s.sender_saw = s.here;
        if (s.sender_saw != 0) tell_receiver(s);
      }
      s.sender = s.sender == s_first ? s_second : s_credit;
      return true;
    case s_wait:
      if (!r.waits_for_all) return s.ended = 1, s.sender = s_end, true;
      return s.waits = 1, s.sender = s_look, true;
    case s_look:
      if (r.open_again && s.open == 0) return s.ended = 1, s.sender = s_end, true;
      return s.sender = s_rest, true;
    case s_rest:
      if (std::exchange(s.told, std::uint8_t{0}) == 0) return false;
      if (s.open == 0) s.ended = 1, s.sender = s_end;
      return true;
    default: return false;
  }
}

enum : std::uint8_t {
  r_first,
  r_second,
  r_take,
  r_taken,
  r_wanted,
  r_open,
  r_waits,
  r_sleep,
  r_unqueue,
  r_look,
  r_late
};

bool receiver(state& s, const rules& r) {
  switch (s.receiver) {
    case r_first:
    case r_second:
      if ((s.receiver == r_first) == r.here_first) s.here = 1;
      else s.seen = std::exchange(s.news, std::uint8_t{0});
      if (s.receiver == r_first) return s.receiver = r_second, true;
      return s.receiver = s.seen != 0 ? r_take : r_sleep, true;
    case r_take:
      if (s.sent == s.received) return s.receiver = r_late, true;
      return ++s.received, s.receiver = r_taken, true;  // and copies what lies there
    case r_taken: return ++s.taken, s.receiver = r_wanted, true;
    case r_wanted:
      if (std::exchange(s.wanted, std::uint8_t{0}) != 0) s.told = 1;
      return s.receiver = r_open, true;
    case r_open: return s.receiver = --s.open == 0 ? r_waits : r_take, true;
    case r_waits:
      if (s.waits != 0) s.told = 1;
      return s.receiver = r_take, true;
    case r_late:  // only where it is broken
      if (!r.queued_first) s.queued = 0;
      return s.receiver = r_sleep, true;
    case r_sleep:
      if (s.inbox == 0) return false;
      s.inbox = 0;
      return s.receiver = r_unqueue, true;
    case r_unqueue:
      if (r.queued_first) s.queued = 0;
      return s.receiver = r_look, true;
    case r_look:
      s.seen = std::exchange(s.news, std::uint8_t{0});
      return s.receiver = s.seen != 0 ? r_take : r_late, true;
    default: return false;
  }
}

model::outcome explore(const rules& r) {
  const std::vector<model::thread<state>> threads{
      {"sender", [&](state& s, int choice) { return choice == 0 && sender(s, r); }},
      {"receiver", [&](state& s, int choice) { return choice == 0 && receiver(s, r); }}};
  const auto always = [](const state& s) -> std::string {
    if (s.sent - s.taken > room) return "a message was put where one lies that was not taken";
    if (s.ended != 0 && s.taken < messages) return "the sender has its buffer back before all was taken";
    return {};
  };
  const auto finally = [](const state& s) -> std::string {
    if (s.received < messages) return "a message lies there and nobody looks";
    return s.ended != 0 ? "" : "all is taken, and the sender does not hear of it";
  };
  return model::explore<state>(state{}, threads, always, finally);
}

}  // namespace

TEST_CASE("a model of a board of links: nobody overlooks anything, and nobody's buffer is given back early") {
  const auto right = explore({});
  CAPTURE(right.trace);
  CHECK(right.wrong == "");
  CHECK(right.states > 100);
}

TEST_CASE("the same model notices each rule of the board that is broken") {
  for (bool rules::*const broken : {&rules::bit_first, &rules::here_first, &rules::asks_again, &rules::open_again,
                                    &rules::queued_first, &rules::waits_for_all}) {
    rules r;
    r.*broken = false;
    CHECK(explore(r).wrong != "");
  }
}
