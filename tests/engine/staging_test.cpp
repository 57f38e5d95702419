// SPDX-License-Identifier: Apache-2.0
// Pairwise by BCopy through staging memory of a given size.
#include "engine/api/troupe.hpp"
#include "engine/config/configuration.hpp"
#include "engine/planning/planner.hpp"
#include "memory/error.hpp"
#include "protocols/program/program.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace troupe;

namespace {

engine_options staged(std::size_t bytes) {
  engine_options o;
  o.choreography = "pairwise";
  o.through_scratch = true;
  o.scratch_bytes = bytes;
  o.tuning = "none";
  o.environment = false;
  return o;
}

call exchange_of(std::size_t count, bool in_place = false) {
  call what;
  what.what = collective::all_to_all;
  what.type = datatype::f32;
  what.count = count;
  what.in_place = in_place;
  return what;
}

std::uint32_t value_of(int from, int to, std::size_t i) {
  return static_cast<std::uint32_t>(from * 1'000'003 + to * 1009) + static_cast<std::uint32_t>(i);
}

}  // namespace

TEST_CASE("BCopy: a rank's staging memory is what the options give it, for blocks of any size") {
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{100'000}, std::size_t{1} << 20})
    for (const int ranks : {2, 3, 8})
      for (const std::size_t count : {std::size_t{1}, std::size_t{1023}, std::size_t{50'001}, std::size_t{1} << 18})
        for (const bool in_place : {false, true}) {
          CAPTURE(bytes);
          CAPTURE(ranks);
          CAPTURE(count);
          planner p{staged(bytes)};
          const call what = exchange_of(count, in_place);
          const auto made = p.plan_for(what, layout::flat(ranks));
          CHECK(made->choreography == "pairwise");
          call_shape shape;
          shape.count = count;
          shape.element_size = sizeof(float);
          const auto code = compile(*made->notes, 0, shape, made->cut());
          CHECK(code.scratch_bytes == 0);
          CHECK(code.l0_bytes <= bytes);
          // No more pieces than it takes, up to the class of sizes that share a plan and the lines on which pieces begin.
          const std::size_t cells = (ranks == 2 ? 2u : 4u) + (in_place ? static_cast<unsigned>(ranks) - 1 : 0);
          if (cells * largest_of_class(count) * sizeof(float) <= bytes)
            CHECK(code.l0_bytes == cells * count * sizeof(float));
        }
}

TEST_CASE("BCopy: 1 to 64 ranks exchange odd sizes through 4 KiB") {
  for (const int ranks : {1, 2, 3, 5, 8, 13, 33, 64}) {
    const std::size_t count = ranks > 16 ? 173 : 5003;
    CAPTURE(ranks);
    engine under{staged(4096)};
    under.run(ranks, [&](communicator& comm) {
      const auto n = static_cast<std::size_t>(comm.size());
      std::vector<std::uint32_t> send(n * count), received(n * count, 0);
      for (std::size_t to = 0; to < n; ++to)
        for (std::size_t i = 0; i < count; ++i) send[to * count + i] = value_of(comm.rank(), static_cast<int>(to), i);
      comm.all_to_all(send, received);
      for (std::size_t from = 0; from < n; ++from)
        for (std::size_t i = 0; i < count; ++i)
          REQUIRE(received[from * count + i] == value_of(static_cast<int>(from), comm.rank(), i));
    });
  }
}

TEST_CASE("BCopy: HCCL's selection gives it the CCL buffer where the data are larger") {
  engine_options o;
  o.planner = "hccl";
  o.tuning = "none";
  o.hccl.aicpu_unfolded = true;
  o.hccl.buffer = 64 << 10;
  planner p{o};
  const auto staging = [&](std::size_t count) {
    const auto made = p.plan_for(exchange_of(count), layout::grid(1, 4));
    call_shape shape;
    shape.count = count;
    shape.element_size = sizeof(float);
    return compile(*made->notes, 0, shape, made->cut()).l0_bytes;
  };
  CHECK(staging(1024) == 0);  // ZCopy: it fits
  CHECK(staging(1 << 18) > 32 << 10);
  CHECK(staging(1 << 18) <= 64 << 10);
}

TEST_CASE("BCopy: staging memory that makes no sense is an error that says what would be right") {
  CHECK_THROWS_WITH_AS(planner{staged(100)}, doctest::Contains("scratch_bytes is 100; staging needs at least 4096"),
                       error);
  planner small{staged(4096)};
  call insists = exchange_of(1 << 20);  // the options' name is a wish
  insists.choreography = "pairwise";
  CHECK_THROWS_WITH_AS(small.plan_for(insists, layout::flat(64)), doctest::Contains("its staging memory is too small"),
                       error);
  CHECK_THROWS_WITH_AS(small.plan_for(insists, layout::flat(64)), doctest::Contains("raise engine.scratch_bytes"),
                       error);
  configuration c;
  c.add_text("[engine]\nthrough_scratch = true\nscratch_bytes = \"64K\"\n", "a.toml");
  CHECK(c.engine().scratch_bytes == 64 << 10);
  for (const char* wrong : {"\"much\"", "0", "\"1K\"", "-5"}) {
    CAPTURE(wrong);
    configuration bad;
    CHECK_THROWS_WITH_AS(
        (bad.add_text("[engine]\nscratch_bytes = " + std::string{wrong} + "\n", "a.toml"), bad.engine()),
        doctest::Contains("a.toml:2"), error);
  }
}
