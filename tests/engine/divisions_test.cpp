// SPDX-License-Identifier: Apache-2.0
// Ranks that take their part of a communicator, and ranks that never will.

#include <doctest/doctest.h>

#include "engine/world/communicator_state.hpp"
#include "tests/engine/jobs.hpp"

using namespace engine_tests;
using troupe::communicator_state;
using troupe::divisions;

namespace {

struct maker {
  std::shared_ptr<troupe::engine_core> core = std::make_shared<troupe::engine_core>(troupe::engine_options{});
  int made = 0;
  std::shared_ptr<communicator_state> operator()() {
    ++made;
    return core->found("part", troupe::layout::flat(3), {0, 1, 2}, nullptr);
  }
};

/// The text of what a barrier of `rank` ends with.
std::string barrier_by(communicator_state& part, troupe::rank_t rank) {
  const auto op = part.prepare(rank, troupe::calls::barrier(), troupe::caller_waits::yes);
  part.cell(rank).submit(op);
  part.wait(rank, op->done);
  return op->done->why() ? op->done->why()->text : "";
}

}  // namespace

TEST_CASE("a part's ranks stand in the order of their keys, and of one key as in the whole") {
  using ranks = std::vector<troupe::rank_t>;
  const std::array<std::int32_t, 10> all{1, 5, 0, 9, 1, -2, -1, 0, 1, 5};
  CHECK(troupe::members_of_part(all, 1) == ranks{2, 0, 4});
  CHECK(troupe::members_of_part(all, 0) == ranks{1});
  CHECK(troupe::members_of_part(all, 7).empty());
}

TEST_CASE("a part is made once, and forgotten when all have taken it or given it up") {
  maker make;
  const std::function<std::shared_ptr<communicator_state>()> call = std::ref(make);
  const std::array<troupe::rank_t, 3> members{4, 5, 6};
  divisions parts{0};
  const auto first = parts.take(7, 1, members, call);
  CHECK(parts.take(7, 1, members, call) == first);
  CHECK(parts.open() == 1);
  parts.give_up(7, 6);
  CHECK(parts.open() == 0);
  CHECK(make.made == 1);
  CHECK(barrier_by(*first, 0).find("rank 2 left") != std::string::npos);
  make.core->close();
}

TEST_CASE("who gave up before anybody took has left the part, which is one though who took it drops it at once") {
  maker make;
  const std::function<std::shared_ptr<communicator_state>()> call = std::ref(make);
  const std::array<troupe::rank_t, 3> members{4, 5, 6};
  divisions parts{0};
  parts.give_up(7, 4);
  parts.give_up(8, 5);  // another operation
  static_cast<void>(parts.take(7, 1, members, call));
  CHECK(make.made == 1);
  const auto again = parts.take(7, 1, members, call);
  CHECK(make.made == 1);
  CHECK(parts.open() == 0);
  CHECK(barrier_by(*again, 2).find("rank 0 left the communicator") != std::string::npos);
  make.core->close();
}

TEST_CASE("of a split that failed at many ranks before one took its part, every one has left it") {
  troupe::division_state<int*> state;
  std::vector<troupe::rank_t> members, left;
  for (troupe::rank_t r = 0; r < 200; ++r) members.push_back(r);
  int part = 0;
  const auto leave = [&](int*, troupe::rank_t place) { left.push_back(place); };
  for (troupe::rank_t r = 0; r < 199; ++r) state.give_up(3, r, leave);
  CHECK(left.empty());
  state.take(
      3, 0, members, [&] { return &part; }, [](int*) { return std::size_t{200}; }, leave);
  CHECK(left.size() == 199);
  CHECK(state.open() == 0);
}

TEST_CASE("a split that failed at a rank is not forgotten for those that failed before, whatever their numbers") {
  troupe::division_state<int*> state;
  const std::array<troupe::rank_t, 2> members{0, 1};
  int part = 0;
  std::vector<troupe::rank_t> left;
  const auto leave = [&](int*, troupe::rank_t place) { left.push_back(place); };
  for (troupe::epoch_t shrink = 0; shrink < 64; ++shrink) state.give_up(troupe::epoch_t{1} << 63 | shrink, 1, leave);
  state.give_up(7, 1, leave);
  state.take(
      7, 0, members, [&] { return &part; }, [](int*) { return std::size_t{2}; }, leave);
  CHECK(left == std::vector<troupe::rank_t>{1});
  CHECK(state.open() == 0);
}

TEST_CASE("a shrink of a part does not wait for who never took its place there") {
  maker make;
  const std::function<std::shared_ptr<communicator_state>()> call = std::ref(make);
  const std::array<troupe::rank_t, 3> members{4, 5, 6};
  divisions parts{0};
  bool earlier = false;
  SUBCASE("and gave it up before anybody took one") { earlier = true; }
  SUBCASE("and gave it up later") {}
  if (earlier) parts.give_up(7, 4);
  const auto part = parts.take(7, 1, members, call);
  const auto round = part->shrunk.come(part, 1);
  part->shrunk.come(part, 2);
  if (!earlier) parts.give_up(7, 4);
  REQUIRE(round->done->done());
  CHECK(round->members == std::vector<troupe::rank_t>{1, 2});
  make.core->close();
}

TEST_CASE("splits that fail everywhere leave nothing behind") {
  divisions parts{0};
  for (troupe::epoch_t which = 0; which < 1000; ++which)
    for (troupe::rank_t r = 0; r < 3; ++r) parts.give_up(which, r);
  CHECK(parts.open() == 0);
}
