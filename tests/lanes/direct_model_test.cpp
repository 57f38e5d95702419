// SPDX-License-Identifier: Apache-2.0
// A model of the direct board (direct_board.hpp): two ranks come, work on both ranks' buffers, leave, or give up in the middle; then they
// come to the next operation. They meet as many ranks do, by the count of those who have come. Whatever the order, nobody touches a buffer
// that its owner has back. The accesses in question are sequentially consistent or ordered by release and acquire on the same words, so
// every interleaving of whole steps is visited.

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

#include "tests/lanes/explorer.hpp"

namespace direct_model_test {

namespace {

struct rules {
  bool looks_when_touching = true;  ///< once `touching` is set, `here` is looked at again
  bool looks_each_unit = true;      ///< and before every unit
  bool waits_for_touching = true;   ///< who gives up waits for those who touch
  bool goes_away = true;            ///< `here` says nothing while the next operation's words are written
  bool leaves_when_over = true;     ///< not before
  bool counts_then_looks = true;    ///< a rank looks at the count when it is counted itself, not before
  bool counts_latest = true;        ///< who comes to a later operation starts the count again
};

constexpr int ranks = 2, operations = 2;
constexpr std::uint8_t units = 2;

enum step : std::uint8_t {
  coming,
  written,
  counting,
  meeting,
  touching,
  looking,
  claiming,
  performing,
  finishing,
  resting,
  giving_up,
  waiting,
  home
};

struct rank_state {
  std::uint8_t at = coming;
  std::uint8_t operation = 1;  ///< mark of the one it is at
  std::uint8_t has_back = 0;   ///< its buffers of this operation are its own again
  std::uint8_t here = 0;       ///< mark, or given_up
  std::uint8_t claimed = 0;    ///< `next`: operation · 8 + unit, of the rank's own body
  std::uint8_t touches = 0;    ///< `touching`
  std::uint8_t done = 0;       ///< units performed, not yet told
  std::uint8_t body = 0;       ///< whose unit it is at
  std::uint8_t address = 0;    ///< operation whose buffers stand in the words
  std::uint8_t met = 0;        ///< operation whose address it has taken from the other
  std::uint8_t looks = 0;      ///< it has come, and looks whether it is the last
};
struct state {
  rank_state r[ranks];
  std::uint8_t left = 0, over = 0, may_give_up = 1, touched_gone = 0;
  std::uint8_t came = 0;  ///< operation · 8 + how many have come to it
};
constexpr std::uint8_t given_up = 128;

/// What a unit does: reads and writes both ranks' buffers, at the addresses that were met.
void touch(state& s, int who) {
  for (int other = 0; other < ranks; ++other) {
    const rank_state& owner = s.r[other];
    const std::uint8_t known = other == who ? s.r[who].operation : s.r[who].met;
    if (known != owner.operation || owner.has_back) s.touched_gone = 1;
  }
}

void count(state& s, std::uint8_t operation, const rules& r) {
  const auto nobody = static_cast<std::uint8_t>(operation * 8);
  if (s.came / 8 > operation) return;
  const bool first = r.counts_latest && s.came / 8 < operation;
  s.came = static_cast<std::uint8_t>((first ? nobody : s.came) + 1);
}

bool all_here(const state& s, int who) {
  return s.r[0].here == s.r[who].operation && s.r[1].here == s.r[who].operation;
}

bool next_operation(state& s, int who) {
  rank_state& me = s.r[who];
  me.has_back = 1;
  if (me.operation == operations) return me.at = home, true;
  ++me.operation;
  me.at = coming;
  me.has_back = 0;
  me.done = 0;
  return true;
}

bool advance(state& s, int who, int choice, const rules& r) {
  rank_state& me = s.r[who];
  const rank_state& other = s.r[1 - who];
  // It may give up once, where performing waits: then its caller has been told of a failure, and all come to the next one.
  if (choice == 1) {
    if (!s.may_give_up || me.operation != 1 || (me.at != meeting && me.at != resting)) return false;
    s.may_give_up = 0;
    me.at = giving_up;
    return true;
  }
  if (choice > 1) return false;
  switch (me.at) {
    case coming:
      if (r.goes_away) me.here = 0;
      if (who == 0) s.left = ranks * units;
      me.claimed = static_cast<std::uint8_t>(me.operation * 8);
      me.at = written;
      return true;
    case written:
      me.address = me.operation;
      me.here = me.operation;
      me.at = counting;
      return true;
    case counting:
      me.looks = r.counts_then_looks || s.came == me.operation * 8 + ranks;
      count(s, me.operation, r);
      me.at = meeting;
      return true;
    case meeting:
      if (s.over == me.operation) return next_operation(s, who);
      if (me.operation == 1 && !s.may_give_up && other.here != 1) return me.at = giving_up, true;  // `failed` comes
      // Nobody wakes it when another has come: it looks once, and goes on only when all is over.
      if (!me.looks) return false;
      me.looks = 0;
      if (s.came != me.operation * 8 + ranks || other.here != me.operation) return true;
      me.met = other.address;
      me.at = touching;
      return true;
    case touching:
      me.touches = me.operation;
      me.at = looking;
      return true;
    case looking:
      me.at = r.looks_when_touching && !all_here(s, who) ? finishing : claiming;
      me.body = static_cast<std::uint8_t>(who);
      return true;
    case claiming: {
      if (r.looks_each_unit && !all_here(s, who)) return me.at = finishing, true;
      for (int k = 0; k < ranks; ++k) {
        std::uint8_t& next = s.r[(who + k) % ranks].claimed;
        if (next < me.operation * 8 || next >= me.operation * 8 + units) continue;
        ++next;
        me.at = performing;
        return true;
      }
      me.at = finishing;
      return true;
    }
    case performing:
      touch(s, who);
      ++me.done;
      me.at = claiming;
      return true;
    case finishing:
      if (me.done > 0) {
        s.left = static_cast<std::uint8_t>(s.left - me.done);
        if (s.left == 0) s.over = me.operation;
        me.done = 0;
      }
      me.touches = 0;
      me.at = resting;
      return true;
    case resting:
      if (s.over == me.operation || !r.leaves_when_over) return next_operation(s, who);
      if (me.operation == 1 && !s.may_give_up) return me.at = giving_up, true;  // `failed` comes
      return false;
    case giving_up:
      me.here = static_cast<std::uint8_t>(me.operation | given_up);
      me.at = waiting;
      return true;
    case waiting:
      if (r.waits_for_touching && other.touches == me.operation) return false;
      return next_operation(s, who);
    default: return false;
  }
}

model::outcome explore(const rules& r) {
  std::vector<model::thread<state>> threads;
  for (const auto& [name, who] : {std::pair{"rank-0", 0}, std::pair{"rank-1", 1}})
    threads.push_back({name, [&r, who = who](state& s, int choice) {
                         // The second alternative counts also where the first cannot go on.
                         if (choice == 0) {
                           state tried = s;
                           if (advance(tried, who, 0, r)) return s = tried, true;
                           return advance(s, who, 1, r);
                         }
                         state tried = s;
                         return choice == 1 && advance(tried, who, 0, r) && advance(s, who, 1, r);
                       }});
  return model::explore<state>(
      state{}, threads,
      [](const state& s) { return std::string{s.touched_gone ? "a buffer is touched that is gone" : ""}; },
      [](const state& s) {
        return std::string{s.r[0].at == home && s.r[1].at == home ? "" : "a rank waits for ever"};
      });
}

}  // namespace

TEST_CASE("model of the direct board: no buffer is touched that its owner has back, and every rank comes to an end") {
  const auto found = explore({});
  CHECK_MESSAGE(found.wrong.empty(), model::told(found));
  CHECK(found.states > 500);
}

TEST_CASE("model of the direct board: the explorer notices each rule that is missing") {
  const auto finds = [](auto breaks) {
    rules r;
    breaks(r);
    return !explore(r).wrong.empty();
  };
  CHECK(finds([](rules& r) { r.looks_when_touching = r.looks_each_unit = false; }));
  CHECK(finds([](rules& r) { r.waits_for_touching = false; }));
  CHECK(finds([](rules& r) { r.leaves_when_over = false; }));
  CHECK(finds([](rules& r) { r.counts_then_looks = false; }));
  CHECK(finds([](rules& r) { r.counts_latest = false; }));
}

}  // namespace direct_model_test
