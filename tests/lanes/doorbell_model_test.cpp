// SPDX-License-Identifier: Apache-2.0
// A model of the doorbell (actors/waiting/doorbell.hpp) at which a NIC's thread dozes before it sleeps for good, and of those who leave something for it: on
// its list of queues (nic_thread.hpp) or by a ring. All steps are sequentially consistent. Every interleaving is visited.

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "tests/lanes/explorer.hpp"

namespace doorbell_model_test {

namespace {

/// Each may be broken, which the explorer must notice.
struct rules {
  bool announces = true;            ///< T3 before a sleep
  bool looks_at_list = true;        ///< once more, between T3 and T4
  bool sleep_says_sleep = true;     ///< a sleep is not announced as a doze
  bool rings_after_leaving = true;  ///< W1 before W2
  bool asks_rings = true;           ///< T4 sleeps only if nobody has rung since T1
};

enum : std::uint8_t { awake, asleep, dozing };
/// Writers: a rank of the process, which puts its queue on the list; one elsewhere; and who waits, or wants its memory back.
enum : int { own, far, hurried };
constexpr std::uint8_t most_dozes = 2;

struct state {
  std::uint8_t rings = 0, says = awake;
  std::uint8_t left = 0, taken = 0;        ///< a bit a writer
  std::uint8_t seen = 0, found = 0;        ///< T1, T2
  std::uint8_t dozes = 0, blocked = 0;     ///< 1: it dozes 2: it sleeps
  std::uint8_t at_thread = 0, at[3] = {};  ///< next steps
};

/// T1 to T5, over and over. It takes what it finds.
bool thread(state& s, const rules& r) {
  const bool doze = s.dozes < most_dozes;
  switch (s.at_thread) {
    case 0: s.seen = s.rings; break;
    case 1:
      s.found = s.left & static_cast<std::uint8_t>(~s.taken);
      s.taken |= s.found;
      if (s.found != 0) {
        s.at_thread = 0;
        return true;
      }
      break;
    case 2:
      if (doze || !r.sleep_says_sleep) s.says = dozing;
      else if (r.announces) s.says = asleep;
      break;
    case 3: s.found = r.looks_at_list ? s.left & static_cast<std::uint8_t>(~s.taken) & 1U << own : 0; break;
    case 4:
      if (s.found == 0 && (s.rings == s.seen || !r.asks_rings)) s.blocked = doze ? 1 : 2;
      break;
    case 5:
      if (s.blocked != 0) return false;
      s.says = awake;
      if (doze) ++s.dozes;
      s.at_thread = 0;
      return true;
    default: return false;
  }
  ++s.at_thread;
  return true;
}

void wake(state& s) {
  s.says = awake;
  ++s.rings;
  s.blocked = 0;
}

/// W1 to W3.
bool writer(state& s, int who, const rules& r) {
  const auto leave = [&] { s.left |= static_cast<std::uint8_t>(1U << who); };
  switch (s.at[who]) {
    case 0:
      if (r.rings_after_leaving || who == own) leave();
      else ++s.rings;
      break;
    case 1:
      if (who == own) break;
      if (r.rings_after_leaving) ++s.rings;
      else leave();
      break;
    case 2:
      if (s.says == asleep || (s.says == dozing && who == hurried)) wake(s);
      break;
    default: return false;
  }
  ++s.at[who];
  return true;
}

model::outcome explore(const rules& r) {
  const std::vector<model::thread<state>> threads{
      {"thread", [&](state& s, int choice) { return choice == 0 && thread(s, r); }},
      {"doze-over",
       [](state& s, int choice) {
         if (choice != 0 || s.blocked != 1) return false;
         s.blocked = 0;
         return true;
       }},
      {"own", [&](state& s, int choice) { return choice == 0 && writer(s, own, r); }},
      {"far", [&](state& s, int choice) { return choice == 0 && writer(s, far, r); }},
      {"hurried", [&](state& s, int choice) { return choice == 0 && writer(s, hurried, r); }}};
  const auto lost = [](const state& s) {
    for (const int who : {own, far, hurried}) {
      const bool there = s.at[who] == 3 && (s.left & ~s.taken & (1U << who)) != 0;
      if (there && s.blocked == 2) return std::string{"it sleeps, and something was left for it"};
      if (there && who == hurried && s.blocked == 1) return std::string{"it dozes, and somebody waits"};
    }
    return std::string{};
  };
  return model::explore<state>(state{}, threads, lost, [](const state&) { return std::string{}; });
}

}  // namespace

TEST_CASE("doorbell model: nothing that is left is slept over, whoever is in a hurry ends a doze") {
  const model::outcome all = explore({});
  INFO(model::told(all));
  CHECK(all.wrong.empty());
  CHECK(all.states > 500);
}

TEST_CASE("doorbell model: each of its rules is needed") {
  const auto breaks = [](bool rules::*which) {
    rules r;
    r.*which = false;
    return !explore(r).wrong.empty();
  };
  CHECK(breaks(&rules::announces));
  CHECK(breaks(&rules::looks_at_list));
  CHECK(breaks(&rules::sleep_says_sleep));
  CHECK(breaks(&rules::rings_after_leaving));
  CHECK(breaks(&rules::asks_rings));
}

}  // namespace doorbell_model_test
