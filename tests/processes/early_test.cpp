// SPDX-License-Identifier: Apache-2.0
// What comes for a communicator before its process has made it. Hosts are processes that say different names.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/processes/apart.hpp"
#include "tests/processes/processes.hpp"

using namespace process_tests;
using troupe::communicator;

// What was announced (a chunk of a collective above 256 KiB, a send above 128) was dropped then, and both ends waited for ever.
TEST_CASE("early: what is announced before its communicator is here is asked for when it is") {
  const std::string at = free_address();
  const auto ends = run_processes(3, [&](const member& m) {
    troupe::engine engine;
    communicator world = engine.join(apart(m, at));
    std::vector<float> data(1 << 20), sum(data.size());
    for (int i = 0; i < 12; ++i) {
      std::ranges::fill(data, static_cast<float>(i));
      communicator part = i % 2 == 0 ? world.split(0, world.rank()) : world.shrink();
      if (i % 4 < 2) {
        part.all_reduce(data, sum, troupe::sum);
      } else {
        const int next = (part.rank() + 1) % part.size(), before = (part.rank() + part.size() - 1) % part.size();
        part.send_recv(data, next, sum, before);
      }
      if (sum.back() != static_cast<float>(i % 4 < 2 ? 3 * i : i)) throw std::runtime_error("wrong bytes");
    }
  });
  CHECK(trouble(ends) == "");
}
