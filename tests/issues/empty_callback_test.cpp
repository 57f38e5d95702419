// SPDX-License-Identifier: Apache-2.0
// An empty function was taken as a callback, and its call logged as an exception; a null one that reduces, or a null choreography, crashed; and ranks
// beyond what a process performs took memory without end.

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include <troupe.hpp>

using namespace troupe;

TEST_CASE("request::then refuses an empty function, of an operation under way, an ended one, and an empty request") {
  engine e;
  auto comms = e.communicators(2);
  const auto refused = [](request& which) {
    try {
      which.then({});
    } catch (const error& why) {
      CHECK(std::string{why.what()}.find("the callback is empty") != std::string::npos);
      return why.code() == make_error_code(errc::invalid_argument);
    }
    return false;
  };
  request under_way = comms[0].barrier_async();
  CHECK(refused(under_way));
  comms[1].barrier_async().wait();
  under_way.wait();
  CHECK(refused(under_way));
  request none;
  CHECK(refused(none));
}

TEST_CASE("partitioned::then with an empty function takes the earlier callback back") {
  engine e;
  auto comms = e.communicators(2);
  std::array<int, 4> in[2]{}, out[2]{};
  std::vector<partitioned> calls;
  for (std::size_t r = 0; r < 2; ++r) calls.push_back(comms[r].all_reduce_init(in[r], out[r], sum, partitions(2)));
  int told = 0;
  for (int part = 0; part < 2; ++part) calls[0].then(part, [&](int) { ++told; });
  calls[0].then(1, {});
  for (partitioned& one : calls) one.start();
  for (int part = 0; part < 2; ++part)
    for (partitioned& one : calls) one.ready(part);
  for (partitioned& one : calls) one.wait();
  calls.clear();  // callbacks have returned
  CHECK(told == 1);
}

TEST_CASE("a null function is refused where it is to reduce") {
  engine e;
  auto comms = e.communicators(1);
  std::array<int, 2> data{1, 2};
  int (*const none)(int, int) = nullptr;
  const std::function<int(int, int)> empty;
  const auto refused = [&](const auto& function) {
    try {
      comms[0].all_reduce(data, function);
    } catch (const error& why) {
      CHECK(std::string{why.what()}.find("the function that reduces is null") != std::string::npos);
      return why.code() == make_error_code(errc::invalid_argument);
    }
    return false;
  };
  CHECK(refused(none));
  CHECK(refused(empty));
  const std::function<int(int, int)> some = [](int a, int b) { return a + b; };
  comms[0].all_reduce(data, some);
  CHECK(data == std::array{1, 2});
}

TEST_CASE("a null choreography of engine_options is refused, and so are more ranks than a process performs") {
  engine_options options;
  options.choreographies.push_back(nullptr);
  CHECK_THROWS_WITH_AS(engine{options}, doctest::Contains("engine_options::choreographies holds a null pointer"),
                       error);
  engine e;
  CHECK_THROWS_WITH_AS(static_cast<void>(e.communicators(1025)),
                       doctest::Contains("one process performs at most 1024 ranks, not 1025"), error);
}
