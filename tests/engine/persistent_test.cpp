// SPDX-License-Identifier: Apache-2.0
// Operations that are planned once and started many times.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/api/troupe.hpp"
#include "tests/code_of.hpp"

using namespace troupe;

namespace {

float sum_of_ranks(int ranks) { return static_cast<float>(ranks * (ranks + 1) / 2); }

}  // namespace

TEST_CASE(
    "a persistent operation reads its buffers anew at every start, small and large, on slots and through actors") {
  for (const char* protocol : {"auto", "simple"})
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{300'000}}) {
      CAPTURE(protocol);
      CAPTURE(count);
      engine_options o;
      o.protocol = protocol;
      engine e{o};
      e.run(3, [&](communicator& c) {
        std::vector<float> in(count), out(count);
        persistent all = c.all_reduce_init(in, out, sum);
        persistent to_two = c.broadcast_init(out, 2);
        for (int k = 1; k <= 4; ++k) {
          std::fill(in.begin(), in.end(), static_cast<float>(k * (c.rank() + 1)));
          if (k % 2 == 0) all.run();
          else all.start().wait();
          CHECK(std::all_of(out.begin(), out.end(),
                            [&](float x) { return x == static_cast<float>(k) * sum_of_ranks(3); }));
          if (c.rank() == 2) std::fill(out.begin(), out.end(), static_cast<float>(k));
          to_two.run();
          CHECK(std::all_of(out.begin(), out.end(), [&](float x) { return x == static_cast<float>(k); }));
        }
      });
    }
}

TEST_CASE("a forced choreography stays forced at every start") {
  engine e;
  e.run(2, [&](communicator& c) {
    call_options how;
    how.choreography = "ring";
    std::vector<std::int32_t> in{c.rank() + 1, 5}, out(2);
    persistent all = c.all_reduce_init(in, out, sum, how);
    for (int k = 0; k < 3; ++k) {
      all.run();
      CHECK(out == std::vector<std::int32_t>{3, 10});
    }
  });
}

TEST_CASE("one thread starts persistent operations of all ranks as a group, time after time") {
  engine e;
  auto comms = e.communicators(5);
  std::vector<std::vector<double>> in(5), out(5);
  std::vector<persistent> planned;
  for (communicator& c : comms) {
    const auto r = static_cast<std::size_t>(c.rank());
    in[r].assign(3, 0);
    out[r].assign(3, 0);
    planned.push_back(c.all_reduce_init(in[r], out[r], average));
  }
  for (int k = 0; k < 100; ++k) {
    for (std::size_t r = 0; r < 5; ++r) std::fill(in[r].begin(), in[r].end(), k + static_cast<double>(r));
    group all;
    for (persistent& p : planned) p.start(all);
    all.wait();
    for (const auto& got : out) CHECK(got == std::vector<double>(3, k + 2.0));
  }
}

TEST_CASE("starting it while it is under way is refused, and disturbs nothing") {
  engine e;
  auto comms = e.communicators(2);
  std::array<float, 4> a{1, 2, 3, 4}, b{1, 1, 1, 1};
  persistent first = comms[0].all_reduce_init(a, a, sum);
  request under_way = first.start();
  CHECK_THROWS_WITH_AS(static_cast<void>(first.start()), doctest::Contains("still under way"), error);
  CHECK_THROWS_WITH_AS(first.run(), doctest::Contains("still under way"), error);
  comms[1].all_reduce(b, b, sum);
  under_way.wait();
  CHECK(a == std::array<float, 4>{2, 3, 4, 5});
  CHECK(b == a);
}

TEST_CASE("what is wrong with it is said when it is made; what the ranks disagree on, at the start") {
  engine e;
  e.run(2, [&](communicator& c) {
    CHECK_THROWS_AS(static_cast<void>(c.all_reduce_init(static_cast<const float*>(nullptr),
                                                        static_cast<float*>(nullptr), 5, datatype::f32)),
                    error);
    std::vector<float> data(c.rank() == 0 ? 4u : 5u);
    persistent odd = c.all_reduce_init(data, data, sum);
    try {
      odd.run();
      FAIL("ranks with different counts must not succeed");
    } catch (const error& failure) {
      CHECK(failure.code_value() == errc::mismatch);
    }
  });
}

TEST_CASE("nobody leaves a persistent barrier before everybody has come, time after time, in whatever form the others "
          "call it") {
  for (const char* protocol : {"auto", "simple"}) {
    CAPTURE(protocol);
    engine_options o;
    o.protocol = protocol;
    engine e{o};
    std::atomic<int> came{0};
    e.run(4, [&](communicator& c) {
      persistent meet = c.barrier_init();
      persistent in_time = c.barrier_init({.deadline = std::chrono::minutes{1}});
      CHECK(static_cast<bool>(meet));
      for (int k = 0; k < 40; ++k) {
        came.fetch_add(1);
        if (k % 4 == c.rank()) c.barrier();
        else if (k % 3 == 0) meet.start().wait();
        else (k % 2 == 0 ? meet : in_time).run();
        CHECK(came.load() >= 4 * (k + 1));
        c.barrier();
      }
    });
    CHECK(came == 160);
  }
}

TEST_CASE("a persistent barrier ends only when the last rank comes, alone and in a group") {
  engine e;
  auto comms = e.communicators(3);
  std::vector<persistent> meet;
  for (communicator& c : comms) meet.push_back(c.barrier_init());
  for (int k = 0; k < 10; ++k) {
    request zero = meet[0].start(), one = meet[1].start();
    CHECK_FALSE(zero.wait_for(std::chrono::milliseconds{2}));
    CHECK_FALSE(one.done());
    request two = meet[2].start();
    for (request* r : {&zero, &one, &two}) r->wait();
    group all;
    for (persistent& p : meet) p.start(all);
    all.wait();
  }
}

TEST_CASE("what is wrong with a persistent barrier is said: when it is made, at a start too many, when others call "
          "something else") {
  engine e;
  auto comms = e.communicators(2);
  CHECK_THROWS_WITH_AS(static_cast<void>(comms[0].barrier_init({.choreography = "no_such"})),
                       doctest::Contains("no_such"), error);
  CHECK_THROWS_AS(static_cast<void>(communicator{}.barrier_init()), error);
  persistent meet = comms[0].barrier_init();
  {
    request under_way = meet.start();
    CHECK_THROWS_WITH_AS(static_cast<void>(meet.start()), doctest::Contains("still under way"), error);
    CHECK_THROWS_WITH_AS(meet.run(), doctest::Contains("still under way"), error);
    // Each of the two was a call that is refused, and this is the first one's.
    comms[1].barrier();
    under_way.wait();
  }
  using troupe_tests::code_of;
  auto others = e.communicators(2);
  persistent odd = others[0].barrier_init();
  std::array<int, 2> data{};
  request waits = odd.start();
  CHECK(code_of([&] { others[1].all_reduce(data); }) == errc::mismatch);
  CHECK(code_of([&] { waits.wait(); }) == errc::mismatch);
  auto late = e.communicators(2);
  persistent hasty = late[0].barrier_init({.deadline = std::chrono::milliseconds{20}});
  CHECK(code_of([&] { hasty.run(); }) == errc::timed_out);
}

TEST_CASE("a persistent operation outlives its communicator object and refuses after its engine") {
  persistent kept;
  std::array<int, 2> data{1, 2};
  {
    engine e;
    {
      auto comms = e.communicators(1);
      kept = comms[0].all_reduce_init(data, data, sum);
    }
    kept.run();
    CHECK(data == std::array<int, 2>{1, 2});
  }
  CHECK_THROWS_AS(kept.run(), error);
  CHECK_NOTHROW(persistent{}.run());
}
