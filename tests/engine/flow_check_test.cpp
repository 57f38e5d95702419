// SPDX-License-Identifier: Apache-2.0
// What is refused when a flow is built or checked, each with what is wrong, where, and what would be right.

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/api/troupe.hpp"
#include "engine/flow/flow.hpp"

namespace flow_check_test {

using namespace troupe;

namespace {

void nothing(tile<float>) {}
void look(tile<const float>) {}
void same(tile<const float>, tile<float>) {}

/// The text with which `build` is refused.
std::string refused(const std::function<void()>& build) {
  try {
    build();
  } catch (const error& e) {
    CHECK(e.code_value() == errc::invalid_argument);
    return e.what();
  }
  return "nothing was refused";
}

}  // namespace

TEST_CASE("a tensor has at most four dimensions, none of them empty") {
  CHECK(refused([] {
          tensor_shape{1, 2, 3, 4, 5};
        }) == "a tensor of 5 dimensions: there are at most 4; make one of those that belong together");
  CHECK(refused([] { tensor_shape{4, 0}; }) == "the shape 4x0 has an extent of 0; each is at least 1");
  const std::size_t many = std::size_t{1} << 40;
  CHECK_THROWS_WITH_AS((tensor_shape{many, many}),
                       "the shape 1099511627776x1099511627776 has more elements than can be counted", error);
}

TEST_CASE("nodes have names of their own") {
  engine e;
  flow f{e, "f"};
  const auto a = f.source<float>("a", {4}, 2, nothing);
  CHECK(refused([&] { f.map("a", a, same); }) ==
        "flow f: node a: there is a node of this name already; give each its own");
  CHECK(refused([&] { f.map("", a, same); }) == "flow f: node 1 has no name");
}

TEST_CASE("types, shapes and numbers of tiles fit where streams meet") {
  engine e;
  flow f{e, "f"};
  const auto a = f.source<float>("a", {4, 2}, 6, nothing);
  const auto b = f.source<float>("b", {4, 2}, 5, nothing);
  CHECK(refused([&] { f.sink("join", from(a, b), [](tile<const float>, tile<const float>) {}); }) ==
        "flow f: node join: input 0 has 6 tiles and input 1 has 5; it takes one of each, so they must be as many");
  const node_description typed{.name = "typed",
                               .inputs = {a},
                               .takes = {stream_type{datatype::f64, {4, 2}, 6}},
                               .work = [](std::span<const tile_place>, const tile_place*, int) {}};
  CHECK(refused([&] { f.add(typed); }) == "flow f: node typed: input 0 takes tiles of f64, and gets f32");
  node_description shaped = typed;
  shaped.takes = {stream_type{datatype::f32, {2, 4}, 6}};
  CHECK(refused([&] { f.add(shaped); }) == "flow f: node typed: input 0 takes tiles of shape 2x4, and gets 4x2");
  CHECK(refused([&] { f.fold<float>("fold", a, 4, {1}, [](tile<const float>, tile<float>, int) {}); }) ==
        "flow f: node fold: it makes a tile of every 4, and its input has 6 tiles; 4 must divide them");
  flow other{e, "other"};
  CHECK(refused([&] { other.map("far", a, same); }) ==
        "flow other: node far: one of its inputs is a stream of another flow; a node takes streams of its own flow");
  CHECK(refused([&] { f.source<float>("none", {4}, 0, nothing); }) ==
        "flow f: node none: it would give 0 tiles; at least 1");
  CHECK(refused([&] { f.map("stuck", a, same, {.credit = 0}); }) ==
        "flow f: node stuck: a credit of 0 lets no tile pass; at least 1");
}

TEST_CASE("every port is connected") {
  engine e;
  flow f{e, "f"};
  CHECK(refused([&] { f.check(); }) == "flow f: it has no nodes");
  const auto a = f.source<float>("a", {4}, 2, nothing);
  const auto b = f.map("b", a, same);
  CHECK(refused([&] { f.check(); }) ==
        "flow f: node b: nobody takes its tiles; give its stream to an operator, a collective or a sink");
  const auto promised = f.later<float>("promised", {4}, 2);
  f.sink("end", from(b, promised), [](tile<const float>, tile<const float>) {});
  CHECK(refused([&] { f.check(); }) ==
        "flow f: node end: its input promised was promised by later(), and no node gives "
        "it; call close() with one that does");
  const auto c = f.source<float>("c", {8}, 2, nothing);
  CHECK(refused([&] { f.close(promised, c); }) ==
        "flow f: node promised: promised were 2 tiles of shape 4, and come 2 of shape 8");
}

TEST_CASE("a cycle needs a buffer, and goes round with one") {
  constexpr int tiles = 5;
  for (const bool buffered : {false, true}) {
    engine e;
    flow f{e, "sums"};
    const auto ones = f.source<float>("ones", {1}, tiles, [](tile<float> out) { out(0) = 1; });
    const auto before = f.later<float>("before", {1}, tiles);
    const auto total =
        f.map("total", from(ones, before),
              [](tile<const float> one, tile<const float> sum, tile<float> out) { out(0) = one(0) + sum(0); });
    std::vector<float> seen;
    f.sink("end", total, [&](tile<const float> in) { seen.push_back(in(0)); });
    if (!buffered) {
      const auto again = f.map("again", total, same);
      f.close(before, again);
      CHECK(refused([&] { f.check(); }) == "flow sums: the nodes total → again → total wait for each other's tiles: a "
                                           "cycle needs a buffer() in it, which gives the first ones");
      continue;
    }
    f.close(before, f.buffer("carry", total, 1, [](tile<float> out) { out(0) = 0; }));
    for (int run = 0; run < 2; ++run) {
      seen.clear();
      f.start();
      f.wait();
      CHECK(seen == std::vector<float>{1, 2, 3, 4, 5});
    }
  }
}

TEST_CASE("a credit with which a flow would stop is found before it runs") {
  engine e;
  std::vector<communicator> comms = e.communicators(3);
  // The first tile comes back from the collectives when three have gone there, and reaches the join beside the first.
  const auto build = [&](flow& f, int credit) {
    const auto a = f.source<float>("a", {4}, 6, nothing, {.credit = credit});
    const auto part = f.reduce_scatter("scatter", a, comms[0]);
    const auto whole = f.all_gather("gather", part, comms[0]);
    f.sink("join", from(a, whole), [](tile<const float>, tile<const float>) {});
  };
  flow narrow{e, "narrow"}, wide{e, "wide"};
  build(narrow, 2);
  CHECK(
      refused([&] { narrow.check(); }) ==
      "flow narrow: it would stop before its end (a has given 2 tiles, and waits until scatter and join give one back; "
      "scatter waits for tile 2 of a; gather waits for tile 0 of scatter; join waits for tile 0 of gather); give the "
      "nodes that wait for tiles to come back a larger credit");
  build(wide, 3);
  wide.check();
}

TEST_CASE("collectives want a communicator of the flow's engine, and tiles in their order where it matters") {
  engine one, two;
  std::vector<communicator> mine = one.communicators(1), others = two.communicators(1);
  flow f{one, "f"};
  const auto a = f.source<float>("a", {4}, 6, nothing);
  CHECK(refused([&] { f.all_gather("gather", a, others[0]); }) ==
        "flow f: node gather: communicator world is not of the engine that the flow was made with");
  communicator empty;
  CHECK(refused([&] { f.all_gather("gather", a, empty); }) == "flow f: node gather: its communicator is empty");
  const auto whole = f.all_gather("gather", a, mine[0], {.order = tile_order::as_arrived});
  const auto still = f.map("still", whole, same);
  f.sink("join", from(a, still), [](tile<const float>, tile<const float>) {});
  CHECK(refused([&] { f.check(); }) == "flow f: node join: it needs its tiles in the order of their numbers, and those "
                                       "of collective gather come as they "
                                       "arrive; give that tile_order::by_index");
}

TEST_CASE("collectives of several ranks want numbers of tiles that their blocks divide, and one place for them") {
  engine e;
  std::vector<communicator> comms = e.communicators(3);
  flow f{e, "f"};
  const auto a = f.source<float>("a", {4}, 7, nothing);
  CHECK(refused([&] { f.reduce_scatter("scatter", a, comms[0]); }) ==
        "flow f: node scatter: reduce_scatter of 3 ranks takes 3·k tiles, and gets 7");
  const auto b = f.source<float>("b", {4}, 6, nothing);
  f.sink("1", f.reduce_scatter("scatter", b, comms[0]), look);
  f.sink("2", f.all_reduce("reduce", b, comms[0]), look);
  f.sink("3", a, look);
  CHECK(
      refused([&] { f.check(); }) ==
      "flow f: node reduce: it needs the tiles of b in 1 block, and scatter has them in 3; put a map() between, whose "
      "tiles are its own");
  const auto many = f.source<float>("many", {1}, 2000, nothing);
  CHECK(refused([&] { f.all_reduce("large", many, comms[0]); }) ==
        "flow f: node large: a block of 2000 tiles; at most 1024, so take larger ones");
}

TEST_CASE("a broadcast gets its tiles from the root alone, and roots are ranks") {
  engine e;
  std::vector<communicator> comms = e.communicators(2);
  flow f{e, "f"};
  const auto a = f.source<float>("a", {4}, 6, nothing);
  CHECK(refused([&] { f.broadcast("b", a, comms[0], 2); }) ==
        "flow f: node b: its root is rank 2 of 2; ranks are 0 … 1");
  CHECK(refused([&] { f.reduce("b", a, comms[0], -1); }) ==
        "flow f: node b: its root is rank -1 of 2; ranks are 0 … 1");
  CHECK(refused([&] { f.broadcast("b", a, comms[0], 1); }) ==
        "flow f: node b: its root is rank 1, and this is rank 0; it gives the shape and the number of the tiles that "
        "come");
  CHECK(refused([&] { f.broadcast<float>("b", {4}, 6, comms[0], 0); }) ==
        "flow f: node b: this rank is the root; it gives the stream that it broadcasts");
  CHECK(refused([&] { f.broadcast<float>("b", {4}, 0, comms[0], 1); }) ==
        "flow f: node b: it would give 0 tiles; at least 1");
}

TEST_CASE("a flow that was checked takes nothing more, and one that runs is not started again") {
  engine e;
  flow f{e, "f"};
  const auto a = f.source<float>("a", {4}, 2, nothing);
  f.sink("end", a, look);
  CHECK(refused([&] { f.wait(); }) == "flow f: it was not started yet; call start() first");
  f.check();
  CHECK(refused([&] { f.map("b", a, same); }) ==
        "flow f: nothing can be added once it was checked or started; build another flow");
  CHECK(f.describe() == "a: 2 tiles of f32 4, credit 4\nend ← a\n");
}

TEST_CASE("a stream that no memory can hold is refused with the names of its flow and node") {
  engine e;
  const auto refused_at = [&](const tensor_shape& shape, errc code) -> std::string {
    flow f{e, "f"};
    f.sink("end", f.source<float>("a", shape, 4, nothing), look);
    try {
      f.start();
    } catch (const error& why) {
      CHECK(why.code_value() == code);
      return why.what();
    }
    return "nothing was refused";
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("not checked under a sanitizer: refusal by the system (the sanitizer ends the program instead)");
#else
  CHECK(refused_at({std::size_t{1} << 45}, errc::out_of_memory) ==
        "flow f: node a: there is no memory for 4 tiles of f32 35184372088832, which its stream holds at a time; make "
        "them smaller, or fewer by its credit");
#endif
  CHECK(refused_at({std::size_t{1} << 61}, errc::size_overflow) ==
        "flow f: node a: no memory can have 4 tiles of f32 2305843009213693952, which its stream holds at a time; make "
        "them smaller, or fewer by its credit");
}

TEST_CASE("a flow that was moved from says so") {
  engine e;
  flow f{e, "f"};
  const auto a = f.source<float>("a", {4}, 2, nothing);
  f.sink("end", a, look);
  flow moved = std::move(f);
  const std::string text = "this flow is empty, since it was moved from; use the one that it was moved to";
  // NOLINTBEGIN(bugprone-use-after-move): that is what is looked at
  CHECK(refused([&] { f.start(); }) == text);
  CHECK(refused([&] { f.wait(); }) == text);
  CHECK(refused([&] { f.check(); }) == text);
  CHECK(refused([&] { f.map("b", a, same); }) == text);
  CHECK(refused([&] { static_cast<void>(f.describe()); }) == text);
  CHECK(f.try_wait() == make_error_code(errc::invalid_argument));
  CHECK(f.name().empty());
  CHECK(f.done());
  f.cancel();
  // NOLINTEND(bugprone-use-after-move)
  moved.start();
  moved.wait();
}

}  // namespace flow_check_test
