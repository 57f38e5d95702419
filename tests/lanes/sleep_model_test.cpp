// SPDX-License-Identifier: Apache-2.0
// A model of sleeping and waking on the slot board (slot_board.hpp), with the store buffers of x86: a store is seen by others some time
// after its thread has gone on. Every interleaving is visited.

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

#include "tests/lanes/explorer.hpp"

namespace sleep_model_test {

namespace {

/// How S1 and W3 come in an order that both ends see.
enum class order : std::uint8_t {
  membarrier,    ///< plain; S2 makes everybody's stores seen
  fences,        ///< S2 and W2 make those of their own thread seen
  exchange_word  ///< read-modify-writes of one word
};

/// Each may be broken, which the explorer must notice.
struct rules {
  order by = order::membarrier;
  bool fence = true;          ///< S2 is made
  bool writers_fence = true;  ///< W2 is made
  bool looks_again = true;    ///< S3
  bool asks_ticket = true;    ///< S4 sleeps only if the ticket has not changed
  bool wants_both = true;     ///< both credits are announced
};

enum : std::uint8_t { slot_word, done_a, done_b, wanted_a, wanted_b, sleeping, word_count };
constexpr std::uint8_t none = 255;

/// One sleeper, who waits for a message or for one of two credits; a writer of each.
struct state {
  std::uint8_t memory[word_count]{};
  std::uint8_t buffered[4] = {none, none, none,
                              none};  ///< a store of each thread that only it has seen: a word that becomes 1
  std::uint8_t at[4]{};               ///< next step of the sleeper, and of the three writers
  std::uint8_t ticket = 0, ticket_before = 0, asleep = 0, seen = 0;
};

std::uint8_t load(const state& s, int who, std::uint8_t word) { return s.buffered[who] == word ? 1 : s.memory[word]; }
/// False: the buffer is full, which in the model holds one store.
bool store(state& s, int who, std::uint8_t word) {
  if (s.buffered[who] != none) return false;
  s.buffered[who] = word;
  return true;
}
void flush(state& s, int who) {
  if (s.buffered[who] != none) s.memory[s.buffered[who]] = 1;
  s.buffered[who] = none;
}
std::uint8_t exchange(state& s, int who, std::uint8_t word, std::uint8_t value) {
  flush(s, who);
  return std::exchange(s.memory[word], value);
}

bool sleeper(state& s, const rules& r) {
  switch (s.at[0]) {
    case 0: s.ticket_before = s.ticket; break;
    case 1:
      if (r.by == order::fences) {  // the fence is S2's
        if (!store(s, 0, sleeping)) return false;
      } else {
        exchange(s, 0, sleeping, 1);
      }
      break;
    // As on a processor where an exchange does not make the stores before it seen.
    case 2:
      if (r.by != order::fences) flush(s, 0);
      s.memory[wanted_a] = 1;
      break;
    case 3:
      if (r.wants_both) s.memory[wanted_b] = 1;
      break;
    case 4:
      if (r.fence && r.by == order::membarrier)
        for (int who = 0; who < 4; ++who) flush(s, who);
      if (r.fence && r.by == order::fences) flush(s, 0);
      break;
    case 5:
      if (r.looks_again && (load(s, 0, slot_word) || load(s, 0, done_a) || load(s, 0, done_b))) s.seen = 1;
      break;
    case 6:
      if (!s.seen && (s.ticket == s.ticket_before || !r.asks_ticket)) s.asleep = 1;
      break;
    default: return false;
  }
  ++s.at[0];
  return true;
}

void wake(state& s) {
  ++s.ticket;
  s.asleep = 0;
}

/// W1 to W3, of a message; and of a credit, where the first look is at `wanted`.
bool writer(state& s, int who, const rules& r) {
  const bool message = who == 1;
  const auto what = static_cast<std::uint8_t>(message ? slot_word : who == 2 ? done_a : done_b);
  const auto asked = static_cast<std::uint8_t>(who == 2 ? wanted_a : wanted_b);
  const auto look = [&](std::uint8_t word) {
    if (r.by == order::exchange_word) return exchange(s, who, word, s.memory[word]);
    if (r.by == order::fences && r.writers_fence) flush(s, who);
    return load(s, who, word);
  };
  switch (s.at[who]) {
    case 0:
      if (!store(s, who, what)) return false;
      break;
    case 1:
      if (!message && look(asked) == 0) s.at[who] = 8;
      break;
    case 2:
      if (!message) exchange(s, who, asked, 0);
      break;
    case 3:
      if (look(sleeping) != 0) wake(s);
      break;
    default: return false;
  }
  ++s.at[who];
  return true;
}

model::outcome explore(const rules& r) {
  std::vector<model::thread<state>> threads{
      {"sleeper", [&](state& s, int choice) { return choice == 0 && sleeper(s, r); }}};
  for (const auto& [name, who] : {std::pair{"message", 1}, std::pair{"credit-a", 2}, std::pair{"credit-b", 3}})
    threads.push_back({name, [&r, who = who](state& s, int choice) { return choice == 0 && writer(s, who, r); }});
  threads.push_back({"store", [](state& s, int choice) {
                       for (int who = 0; who < 4; ++who)
                         if (s.buffered[who] != none && choice-- == 0) return flush(s, who), true;
                       return false;
                     }});
  // A writer need not come: whatever has come must have woken the sleeper, or been seen.
  const auto lost = [](const state& s) {
    for (int who = 1; who < 4; ++who)
      if (s.buffered[who] != none || (s.at[who] > 0 && s.at[who] < 4)) return std::string{};
    const bool come = s.memory[slot_word] || s.memory[done_a] || s.memory[done_b];
    return std::string{s.asleep && come ? "it sleeps, and something that it waits for has come" : ""};
  };
  return model::explore<state>(state{}, threads, lost, [](const state&) { return std::string{}; });
}

}  // namespace

TEST_CASE("model of sleeping on the board: no wake-up is lost, with membarrier, with fences and with exchanges") {
  for (const order by : {order::membarrier, order::fences, order::exchange_word}) {
    rules r;
    r.by = by;
    const auto found = explore(r);
    CHECK_MESSAGE(found.wrong.empty(), model::told(found));
    CHECK(found.states > 1000);
  }
}

TEST_CASE("model of sleeping on the board: the explorer notices each rule that is missing") {
  const auto finds = [](auto breaks) {
    rules r;
    breaks(r);
    return !explore(r).wrong.empty();
  };
  CHECK(finds([](rules& r) { r.fence = false; }));
  CHECK(finds([](rules& r) { r.looks_again = false; }));
  CHECK(finds([](rules& r) { r.asks_ticket = false; }));
  CHECK(finds([](rules& r) { r.wants_both = false; }));
  CHECK(finds([](rules& r) { r.by = order::exchange_word, r.looks_again = false; }));
  CHECK(finds([](rules& r) { r.by = order::fences, r.looks_again = false; }));
  CHECK(finds([](rules& r) { r.by = order::fences, r.writers_fence = false; }));
  CHECK(finds([](rules& r) { r.by = order::fences, r.fence = false; }));
}

}  // namespace sleep_model_test
