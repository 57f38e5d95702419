// SPDX-License-Identifier: Apache-2.0
// Divisions of communicators. A crash: ranks that a layout places apart have no boards, but those of a split that lie on one core group got plans
// for boards. Wrong without a word: a split is an all-gather of two i32 underneath, and matched another rank's all-gather of two i32, which read
// colors as its data, while its data were colors.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

using namespace troupe;

namespace {

using rank_call = std::function<void(communicator&)>;

/// What a rank that calls `mine` beside one that calls `theirs` is told; and both go on.
std::string told(engine& e, const rank_call& mine, const rank_call& theirs) {
  std::string text;
  e.run(2, [&](communicator& world) {
    errc code = errc::ok;
    try {
      (world.rank() == 0 ? mine : theirs)(world);
    } catch (const error& why) {
      code = why.code_value();
      if (world.rank() == 0) text = why.what();
    }
    CHECK(code == errc::mismatch);
    int after = 1;
    world.all_reduce(after);
    CHECK(after == 2);
  });
  return text;
}

}  // namespace

TEST_CASE("a split onto one core group of a layout with several has boards of its own") {
  engine_options o;
  o.layout = "0.0.0,0.0.0,1.0.0,1.0.0";
  engine e{o};
  e.run(4, [](communicator& world) {
    communicator pair = world.split(world.rank() / 2, world.rank());
    REQUIRE(pair.size() == 2);
    for (const std::size_t count : {2U, 200'000U}) {
      std::vector<float> mine(count, static_cast<float>(1 + world.rank()));
      pair.all_reduce(mine, sum);
      CHECK(mine.front() == (world.rank() < 2 ? 3 : 7));
      pair.all_reduce_async(mine, mine, sum).wait();
      CHECK(mine.back() == (world.rank() < 2 ? 6 : 14));
    }
  });
}

TEST_CASE("a split matches splits only, and errors call it by its name") {
  engine e;
  const rank_call split = [](communicator& world) { static_cast<void>(world.split(0, 0)); };
  const rank_call split_async = [](communicator& world) {
    communicator part;
    world.split_async(part, 0, 0).wait();
  };
  const rank_call duplicate = [](communicator& world) { static_cast<void>(world.duplicate()); };
  const rank_call gather = [](communicator& world) {
    const std::array<std::int32_t, 2> mine{5, 6};
    std::array<std::int32_t, 4> all{};
    world.all_gather(mine, all);
  };
  const rank_call gather_async = [](communicator& world) {
    const std::array<std::int32_t, 2> mine{5, 6};
    std::array<std::int32_t, 4> all{};
    world.all_gather_async(mine, all).wait();
  };
  for (const rank_call& one : {split, split_async})
    for (const rank_call& other : {gather, gather_async, duplicate}) {
      const std::string text = told(e, one, other);
      CAPTURE(text);
      CHECK(text.find("rank 0: split()") != std::string::npos);
    }
  CHECK(told(e, duplicate, gather).find("rank 0: duplicate()") != std::string::npos);
}

TEST_CASE("an exchange of experts that is made matches no all-gather") {
  engine e;
  const auto make = [](communicator& world) {
    expert_options o;
    o.hidden = 4;
    static_cast<void>(world.expert_exchange(2, o));
  };
  const auto gather = [](communicator& world) {
    const std::array<std::uint8_t, 16> mine{};
    std::array<std::uint8_t, 32> all{};
    world.all_gather(mine, all);
  };
  CHECK(told(e, make, gather).find("rank 0: expert_exchange()") != std::string::npos);
}
