// SPDX-License-Identifier: Apache-2.0
// Operations that are launched together.

#include <doctest/doctest.h>

#include "tests/engine/jobs.hpp"

using namespace engine_tests;

TEST_CASE("one thread drives eight ranks, without workers too") {
  for (const int workers : {-1, 0}) {
    troupe::engine_options options;
    options.workers = workers;
    troupe::engine engine(options);
    auto comms = engine.communicators(8);
    std::vector<std::vector<float>> data(8, std::vector<float>(1000));
    for (int round = 1; round <= 20; ++round) {
      for (std::size_t r = 0; r < 8; ++r)
        std::fill(data[r].begin(), data[r].end(), static_cast<float>(r) * static_cast<float>(round));
      troupe::group together;
      for (std::size_t r = 0; r < 8; ++r) comms[r].all_reduce_async(together, data[r]);
      CHECK(together.size() == 8);
      together.wait();
      CHECK(together.size() == 0);
      for (const auto& one : data) CHECK(one == std::vector<float>(1000, 28.0f * static_cast<float>(round)));
    }
  }
}

TEST_CASE("several collectives in one group, in the order of adding per rank") {
  troupe::engine engine;
  auto comms = engine.communicators(3);
  std::vector<std::vector<std::int32_t>> data(3, std::vector<std::int32_t>(5, 1)), all(3, std::vector<std::int32_t>(3)),
      word(3);
  std::vector<std::int32_t> mine{10, 20, 30};
  troupe::group together;
  for (std::size_t r = 0; r < 3; ++r) {
    word[r].assign(4, r == 1 ? 9 : 0);
    comms[r].all_reduce_async(together, data[r]);
    comms[r].all_gather_async(together, std::span(&mine[r], 1), all[r]);
    comms[r].broadcast_async(together, word[r], 1);
    comms[r].barrier_async(together);
  }
  together.wait();
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(data[r] == std::vector<std::int32_t>(5, 3));
    CHECK(all[r] == mine);
    CHECK(word[r] == std::vector<std::int32_t>(4, 9));
  }
}

TEST_CASE("a group over communicators of several sizes and engines, with sends among them") {
  troupe::engine first, second;
  auto a = first.communicators(2), b = first.communicators(3), c = second.communicators(2);
  std::vector<std::vector<std::int32_t>> data(7, std::vector<std::int32_t>(3, 1));
  std::int32_t out = 5, in = 0;
  troupe::group together;
  std::size_t k = 0;
  for (auto* comms : {&a, &b, &c})
    for (auto& comm : *comms) comm.all_reduce_async(together, data[k++]);
  a[1].recv_async(together, std::span(&in, 1), 0);
  a[0].send_async(together, std::span(&out, 1), 1);
  together.wait();
  CHECK(in == 5);
  for (std::size_t i = 0; i < 7; ++i) CHECK(data[i][2] == (i >= 2 && i < 5 ? 3 : 2));
}

TEST_CASE("nothing happens before launch; a group can be used again, and its destructor waits") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<std::int32_t> x(3, 1), y(3, 1);
  {
    troupe::group together;
    troupe::request r = comms[0].all_reduce_async(together, x);
    comms[1].all_reduce_async(together, y);
    CHECK_FALSE(r.wait_for(std::chrono::milliseconds(20)));
    CHECK_FALSE(r.test());
    together.launch();
    r.wait();
    together.wait();
    CHECK(x[0] == 2);
    comms[0].all_reduce_async(together, x);
    comms[1].all_reduce_async(together, y);
    together.wait();
    CHECK(x[0] == 4);
    comms[0].all_reduce_async(together, x);
    comms[1].all_reduce_async(together, y);
  }
  CHECK(x[0] == 8);
  CHECK(y == x);
  troupe::group nothing;
  nothing.launch();
  nothing.wait();
}

TEST_CASE("blocking, asynchronous and grouped forms meet in one operation") {
  troupe::engine engine;
  engine.run(3, [](communicator& comm) {
    std::vector<std::int32_t> data(6, comm.rank());
    if (comm.rank() == 0) comm.all_reduce(data);
    else if (comm.rank() == 1) comm.all_reduce_async(data).wait();
    else {
      troupe::group together;
      comm.all_reduce_async(together, data);
      together.wait();
    }
    CHECK(data == std::vector<std::int32_t>(6, 3));
  });
}

TEST_CASE("the first failure in the order of adding comes out, after everything has ended") {
  troupe::engine engine;
  auto good = engine.communicators(2), bad = engine.communicators(2);
  std::vector<float> g0(4, 1), g1(4, 1), b0(4), b1(5);
  troupe::group together;
  bad[0].all_reduce_async(together, b0);
  bad[1].all_reduce_async(together, b1);
  good[0].all_reduce_async(together, g0);
  auto last = good[1].all_reduce_async(together, g1);
  CHECK_THROWS_AS(together.wait(), troupe::error);
  CHECK(last.done());
  CHECK(g0 == std::vector<float>(4, 2));
}

TEST_CASE("wrong arguments are refused when they are added, and what is added behind them is performed") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<float> x(4, 1), y(4, 1);
  troupe::group together;
  comms[0].all_reduce_async(together, x);
  CHECK_THROWS_AS(comms[1].broadcast_async(together, y, 7), troupe::error);
  comms[0].all_reduce_async(together, x);
  comms[1].all_reduce_async(together, y);
  CHECK_THROWS_AS(together.wait(), troupe::error);
  CHECK(y[0] == 2);
}
