// SPDX-License-Identifier: Apache-2.0
// The engine's gate: nobody is inside after wait_until_empty(), by whichever way they came. Of its entrances a model, too, with the store buffers
// of x86: a store is seen by others some time after its thread has gone on. Every interleaving is visited.
#include "engine/api/gate.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/lanes/explorer.hpp"

namespace gate_test {

namespace {

using troupe::gate;

/// What lies behind a gate, and must not be used after the end.
struct house {
  gate door;
  std::atomic<bool> gone{false};
};

// -- the model ----------------------------------------------------------------------------------------------------------

/// Each may be broken, which the explorer must notice.
struct gate_rules {
  bool barrier = true;     ///< shut() has all threads pass one; else who enters makes a read-modify-write
  bool exchanges = false;  ///< so
  bool looks = true;       ///< who enters reads `closed` after that
  bool waits_for_all = true;
};

constexpr int goers = 2;
constexpr std::uint8_t most_visits = 2, most_stores = 3, free_store = 255;

/// Two threads, each with an entrance, and one that closes.
struct gate_state {
  std::uint8_t inside[goers]{};
  std::uint8_t stores[goers][most_stores] = {{free_store, free_store, free_store},
                                             {free_store, free_store, free_store}};
  std::uint8_t at[goers]{}, visits[goers]{};
  std::uint8_t closed = 0, closer = 0, gone = 0;
};

bool store(gate_state& s, int who, std::uint8_t value) {
  for (std::uint8_t& place : s.stores[who])
    if (place == free_store) return place = value, true;
  return false;
}
bool seen_by_others(gate_state& s, int who) {
  auto& all = s.stores[who];
  if (all[0] == free_store) return false;
  s.inside[who] = all[0];
  for (int i = 1; i < most_stores; ++i) all[i - 1] = all[i];
  all[most_stores - 1] = free_store;
  return true;
}

/// 0: store `inside`; 1: read `closed`; 2: is inside; 3: leaves.
bool come_or_go(gate_state& s, int who, const gate_rules& r) {
  std::uint8_t& at = s.at[who];
  switch (at) {
    case 0:
      if (s.visits[who] == most_visits || !store(s, who, 1)) return false;
      ++s.visits[who];
      if (r.exchanges)
        while (seen_by_others(s, who)) {}
      at = 1;
      return true;
    case 1: at = r.looks && s.closed ? 3 : 2; return true;
    case 2: at = 3; return true;
    default:
      if (!store(s, who, 0)) return false;
      at = 0;
      return true;
  }
}

bool close(gate_state& s, const gate_rules& r) {
  switch (s.closer) {
    case 0: s.closed = 1; break;
    case 1:
      if (r.barrier)
        for (int who = 0; who < goers; ++who)
          while (seen_by_others(s, who)) {}
      break;
    case 2:
      if (s.inside[0]) return false;
      break;
    case 3:
      if (r.waits_for_all && s.inside[1]) return false;
      break;
    case 4: s.gone = 1; break;
    default: return false;
  }
  ++s.closer;
  return true;
}

model::outcome explore(const gate_rules& r) {
  std::vector<model::thread<gate_state>> threads{
      {"closer", [&](gate_state& s, int choice) { return choice == 0 && close(s, r); }}};
  for (int who = 0; who < goers; ++who) {
    threads.push_back({who == 0 ? "one" : "other",
                       [&r, who](gate_state& s, int choice) { return choice == 0 && come_or_go(s, who, r); }});
    threads.push_back({"store", [who](gate_state& s, int choice) { return choice == 0 && seen_by_others(s, who); }});
  }
  return model::explore<gate_state>(
      gate_state{}, threads,
      [](const gate_state& s) {
        return std::string{s.gone && (s.at[0] == 2 || s.at[1] == 2) ? "somebody is inside, and it is gone" : ""};
      },
      [](const gate_state& s) { return std::string{s.gone ? "" : "whoever closes it waits for ever"}; });
}

}  // namespace

TEST_CASE("model of the gate: nobody is inside after the end, with a barrier in all threads and without") {
  for (const bool barrier : {true, false}) {
    const auto found = explore({.barrier = barrier, .exchanges = !barrier});
    CHECK_MESSAGE(found.wrong.empty(), model::told(found));
    CHECK(found.states > 500);
  }
}

TEST_CASE("model of the gate: the explorer notices each rule that is missing") {
  CHECK_FALSE(explore({.barrier = false}).wrong.empty());
  CHECK_FALSE(explore({.looks = false}).wrong.empty());
  CHECK_FALSE(explore({.waits_for_all = false}).wrong.empty());
}

TEST_CASE("gate: an entrance lets in until the gate is shut, and again never") {
  gate door;
  gate::entrance mine, other;
  {
    const gate::quick_pass inside{door, mine};
    CHECK(static_cast<bool>(inside));
    const gate::quick_pass also{door, other};
    CHECK(static_cast<bool>(also));
    door.shut();
  }
  CHECK_FALSE(static_cast<bool>(gate::quick_pass{door, mine}));
  CHECK_FALSE(static_cast<bool>(gate::quick_pass{door, other}));
  CHECK_FALSE(static_cast<bool>(gate::pass{door}));
  gate::entrance late;
  CHECK_FALSE(static_cast<bool>(gate::quick_pass{door, late}));
  door.wait_until_empty();
}

TEST_CASE("gate: entrances go in any order") {
  gate door;
  std::array<std::unique_ptr<gate::entrance>, 4> all;
  for (auto& each : all) {
    each = std::make_unique<gate::entrance>();
    CHECK(static_cast<bool>(gate::quick_pass{door, *each}));
  }
  for (const std::size_t i : {1u, 0u, 3u, 2u}) all[i].reset();
  door.shut();
  door.wait_until_empty();
}

TEST_CASE("gate: whoever is inside when it is shut is waited for") {
  gate door;
  gate::entrance mine;
  std::atomic<bool> left{false};
  REQUIRE(door.enter(mine));
  std::thread closing([&] {
    door.shut();
    door.wait_until_empty();
    CHECK(left.load());
  });
  while (static_cast<bool>(gate::pass{door})) std::this_thread::yield();  // until it is shut
  left = true;
  door.leave(mine);
  closing.join();
}

TEST_CASE("gate: nobody who comes and goes all the time is inside after the end") {
  constexpr int rounds = 200;
  std::atomic<long> seen_gone{0}, entered{0};
  for (int round = 0; round < rounds; ++round) {
    house h;
    std::atomic<bool> at_work{false};
    const auto come_and_go = [&] {
      gate::entrance mine;
      long times = 0;
      while (true) {
        const gate::quick_pass inside{h.door, mine};
        if (!inside) break;
        if (h.gone.load(std::memory_order_relaxed)) seen_gone.fetch_add(1);
        ++times;
        at_work.store(true, std::memory_order_relaxed);
      }
      entered.fetch_add(times);
    };
    std::thread one(come_and_go);
    while (!at_work.load()) std::this_thread::yield();
    for (int i = 0; i < round; ++i)
      std::atomic_signal_fence(std::memory_order_seq_cst);  // another moment in every round
    h.door.shut();
    h.door.wait_until_empty();
    h.gone.store(true, std::memory_order_relaxed);
    one.join();
  }
  CHECK(entered.load() >= rounds);
  CHECK(seen_gone.load() == 0);
}

}  // namespace gate_test
