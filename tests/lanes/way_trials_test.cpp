// SPDX-License-Identifier: Apache-2.0
// Which of two ways is taken, as trials show: the class alone, told times that a test makes up.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <random>
#include <vector>

#include "actors/ports/direct/store_trials.hpp"
#include "actors/ports/segment/staging_trials.hpp"
#include "actors/ports/segment/way_trials.hpp"

using troupe::staging_trials;
using troupe::store_trials;
using troupe::way_trials;

namespace {

struct ways {
  double staged, system;
};

/// What `messages` of them took in all. @param late one in so many takes ten times as long, as its receiver comes late; 0: none
struct outcome {
  int staged = 0;
  double time = 0;
};
outcome send(way_trials& trials, bool expected, ways cost, int messages, unsigned late = 0) {
  std::mt19937 random{17};
  outcome all;
  for (int i = 0; i < messages; ++i) {
    const bool staged = trials.takes_second(expected);
    double took = staged ? cost.staged : cost.system;
    if (late > 0 && random() % late == 0) took *= 10;
    trials.took(staged, took);
    all.staged += staged ? 1 : 0;
    all.time += took;
  }
  return all;
}

}  // namespace

TEST_CASE("trials: the first messages go as costs say, and a wrong beginning is left soon") {
  for (const bool expected : {false, true}) {
    CAPTURE(expected);
    way_trials trials;
    // The way that is taken for the faster one takes five times as long.
    const ways cost = expected ? ways{500, 100} : ways{100, 500};
    for (unsigned i = 0; i < way_trials::between_occasions / 2; ++i) {
      const bool staged = trials.takes_second(expected);
      CHECK(staged == expected);
      trials.took(staged, 500);
    }
    send(trials, expected, cost, way_trials::shortest_gap);
    const outcome later = send(trials, expected, cost, 4000);
    CHECK((expected ? later.staged : 4000 - later.staged) < 80);
    CHECK(later.time < 4000 * 100 * 1.06);
  }
}

TEST_CASE("trials: what is right stays, and trials take little of the time") {
  for (const double worse : {1.05, 1.5, 3.0, 5.0}) {
    CAPTURE(worse);
    way_trials trials;
    send(trials, true, {100, 100 * worse}, 3000);
    const outcome all = send(trials, true, {100, 100 * worse}, 20'000);
    CHECK(all.staged > 20'000 * 3 / 4);
    CHECK(all.time < 20'000 * 100 * (1 + 1.1 / way_trials::part_for_trials));
    CHECK(all.staged < 20'000);  // or nobody would ever know that it has changed
  }
}

TEST_CASE("trials: a computer that becomes another one in the middle of a job is noticed") {
  way_trials trials;
  CHECK(send(trials, true, {40, 90}, 3000).staged > 2700);
  // The cores are no neighbours any more: a staging buffer's lines come slowly.
  send(trials, true, {480, 90}, 64);
  CHECK(send(trials, true, {480, 90}, 3000).staged < 200);
  // They are again, which only trials show: the other way takes as long as before.
  send(trials, true, {40, 90}, 2 * static_cast<int>(way_trials::longest_gap));
  CHECK(send(trials, true, {40, 90}, 3000).staged > 2700);
}

TEST_CASE("trials: receivers that come late now and then change nothing") {
  way_trials trials;
  CHECK(send(trials, true, {100, 150}, 20'000, 8).staged > 18'000);
  way_trials others;
  CHECK(send(others, true, {150, 100}, 20'000, 8).staged < 2'000);
}

TEST_CASE("trials: times that come late, and those of messages for which there was no staging buffer") {
  way_trials trials;
  std::mt19937 random{5};
  std::vector<bool> under_way;
  int staged = 0;
  for (int i = 0; i < 20'000; ++i) {
    under_way.push_back(trials.takes_second(true));
    staged += under_way.back() ? 1 : 0;
    while (under_way.size() > random() % 8) {
      const bool went = under_way.front() && random() % 5 != 0;
      trials.took(went, went ? 200 : 100);
      under_way.erase(under_way.begin());
    }
  }
  CHECK(staged < 2'000);
}

TEST_CASE("trials: ranks whose changes pay only together find that out") {
  for (const bool expected : {false, true})
    for (const bool mixed : {false, true}) {
      CAPTURE(expected);
      CAPTURE(mixed);
      std::array<way_trials, 4> ranks;
      // If one rank goes the slow way, all wait for it.
      const auto call = [&](bool slow) {
        std::array<bool, 4> staged{};
        bool any_slow = false;
        for (std::size_t r = 0; r < 4; ++r) {
          staged[r] = ranks[r].takes_second(mixed && r % 2 == 0 ? !expected : expected);
          any_slow = any_slow || staged[r] == slow;
        }
        for (std::size_t r = 0; r < 4; ++r)
          ranks[r].took(staged[r], (any_slow ? 300.0 : 100.0) + static_cast<double>(r));
        return any_slow;
      };
      for (const bool slow : {expected, !expected}) {  // and it changes
        for (unsigned i = 0; i < way_trials::longest_gap + way_trials::shortest_gap; ++i) call(slow);
        int late = 0;
        for (int i = 0; i < 2000; ++i) late += call(slow) ? 1 : 0;
        CHECK(late < 200);
      }
    }
}

TEST_CASE("store trials: sizes have trials of their own, up to one that finds nothing in a cache") {
  store_trials all;
  CHECK_FALSE(store_trials::tries(store_trials::shortest - 1));
  CHECK_FALSE(store_trials::tries(store_trials::longest + 1));
  CHECK(&all.of(store_trials::shortest) == &all.of(2 * store_trials::shortest - 1));
  CHECK(&all.of(store_trials::shortest) != &all.of(2 * store_trials::shortest));
  CHECK(&all.of(4 * store_trials::shortest) != &all.of(2 * store_trials::shortest));
  CHECK(&all.of(4 * store_trials::shortest) == &all.of(store_trials::longest));
}

TEST_CASE("staging trials: lengths have trials of their own") {
  staging_trials all;
  CHECK_FALSE(staging_trials::tries(staging_trials::shortest - 1));
  CHECK_FALSE(staging_trials::tries(staging_trials::longest + 1));
  CHECK(&all.of(staging_trials::shortest) == &all.of(100'000));
  CHECK(&all.of(100'000) != &all.of(200'000));
  CHECK(&all.of(200'000) != &all.of(600'000));
  CHECK(&all.of(600'000) != &all.of(staging_trials::longest));
}
