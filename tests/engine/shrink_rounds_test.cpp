// SPDX-License-Identifier: Apache-2.0
// How the ranks of one process take part in shrinks: the plain state.

#include <doctest/doctest.h>

#include <vector>

#include "engine/world/shrink_rounds.hpp"

using namespace troupe;
using ranks = std::vector<rank_t>;

namespace {

/// Of five ranks 1, 3 and 4 live here.
struct rounds_here : shrink_rounds {
  rounds_here() { prepare({1, 3, 4}, 5); }
};

using to_do = shrink_rounds::to_do;

bool is_nothing(const to_do& what) { return what.say.empty() && what.over.empty() && what.given_up.empty(); }

}  // namespace

TEST_CASE("a process says who of its ranks takes part when each has come or left") {
  rounds_here rounds;
  to_do next;
  CHECK(rounds.come(3, next) == 0);
  CHECK(rounds.come(1, next) == 0);
  CHECK(is_nothing(next));
  CHECK(rounds.missing(0) == ranks{4});
  rounds.leave(4, next);
  REQUIRE(next.say.size() == 1);
  CHECK(next.say[0].number == 0);
  CHECK(next.say[0].ranks == ranks{1, 3});
  CHECK(rounds.has_contributed(0));
  CHECK(rounds.waiting(0) == ranks{1, 3});
}

TEST_CASE("a rank that came and left before the others came is not named") {
  rounds_here rounds;
  to_do next;
  rounds.come(1, next);
  rounds.leave(1, next);
  rounds.leave(4, next);
  CHECK(is_nothing(next));
  rounds.come(3, next);
  REQUIRE(next.say.size() == 1);
  CHECK(next.say[0].ranks == ranks{3});
}

TEST_CASE("if all leave there is nothing to say") {
  rounds_here rounds;
  to_do next;
  rounds.come(1, next);
  for (const rank_t r : {1, 3, 4}) rounds.leave(r, next);
  CHECK(is_nothing(next));
}

TEST_CASE("who takes its place comes to the next round, and who has timed out to the same one") {
  rounds_here rounds;
  to_do next;
  for (const rank_t r : {1, 3, 4}) CHECK(rounds.come(r, next) == 0);
  CHECK(rounds.come(3, next) == 0);  // its caller had waited in vain
  rounds.decided(0, {0, 1, 3, 4}, nullptr, next);
  CHECK(next.over == std::vector<std::uint64_t>{0});
  CHECK(rounds.take(0, 1));
  CHECK(rounds.take(0, 3));
  CHECK(rounds.is_open(0));
  CHECK(rounds.come(1, next) == 1);
  CHECK(rounds.take(0, 4));
  CHECK(!rounds.is_open(0));
  CHECK(next.say.size() == 1);
  CHECK(next.given_up.empty());
}

TEST_CASE("a rank that leaves before it has taken its place gives it up, whether it is decided yet or not") {
  rounds_here rounds;
  to_do next;
  for (const rank_t r : {1, 3, 4}) rounds.come(r, next);
  rounds.leave(1, next);
  CHECK(next.given_up.empty());
  rounds.decided(0, {0, 1, 3}, nullptr, next);
  REQUIRE(next.given_up.size() == 1);
  CHECK(next.given_up[0].rank == 1);
  rounds.leave(3, next);
  REQUIRE(next.given_up.size() == 2);
  CHECK(next.given_up[1].rank == 3);
  rounds.leave(4, next);  // the answer leaves it out: it has no place
  CHECK(next.given_up.size() == 2);
  CHECK(rounds.open() == 0);
}

TEST_CASE("an error has no places to give up") {
  rounds_here rounds;
  to_do next;
  for (const rank_t r : {1, 3, 4}) rounds.come(r, next);
  rounds.decided(0, {}, make_failure(errc::peer_lost, "expelled"), next);
  for (const rank_t r : {1, 3, 4}) rounds.leave(r, next);
  CHECK(next.given_up.empty());
  CHECK(rounds.open() == 0);
}

TEST_CASE("a second answer changes nothing") {
  rounds_here rounds;
  to_do next;
  for (const rank_t r : {1, 3, 4}) rounds.come(r, next);
  rounds.decided(0, {1, 3, 4}, nullptr, next);
  rounds.decided(0, {1}, nullptr, next);
  CHECK(next.over.size() == 1);
  rounds.leave(3, next);
  CHECK(next.given_up.size() == 1);
}

TEST_CASE("closing ends rounds that wait and those that would begin, and gives up places that nobody has taken") {
  rounds_here rounds;
  to_do next;
  for (const rank_t r : {1, 3, 4}) rounds.come(r, next);
  rounds.decided(0, {0, 1, 3, 4}, nullptr, next);
  CHECK(rounds.take(0, 1));
  rounds.come(1, next);
  next = {};
  rounds.close(make_failure(errc::engine_closed, "closed"), next);
  CHECK(next.over == std::vector<std::uint64_t>{1});
  REQUIRE(next.given_up.size() == 2);
  CHECK(!rounds.take(0, 3));
  CHECK(!rounds.take(0, 4));
  next = {};
  CHECK(rounds.come(4, next) == 1);
  CHECK(next.over == std::vector<std::uint64_t>{1});
  CHECK(next.say.empty());
}
