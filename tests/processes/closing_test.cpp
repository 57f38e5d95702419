// SPDX-License-Identifier: Apache-2.0
// Engines that are destroyed while the other processes of their job go on.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/processes/apart.hpp"
#include "tests/processes/processes.hpp"

using namespace process_tests;
using namespace std::chrono_literals;
using troupe::communicator;

// The handle's last word waits for the holder of the rank's turn: here a worker that still computes, seldom the NIC's thread that was just done. The
// others were told that the engine had been destroyed with the communicator in use.
TEST_CASE(
    "closing: a communicator whose last operation is just being performed is not in use when the engine is destroyed") {
  const std::string at = free_address();
  const auto ends = run_processes(4, [&](const member& m) {
    std::optional<troupe::engine> engine{std::in_place};
    communicator comm = engine->join(apart(m, at));
    std::atomic<bool> computes{false};
    const auto slow = [&](float a, float b) {
      computes = true;
      std::this_thread::sleep_for(200ms);
      return a + b;
    };
    const float one = 1;
    float sum = 0;
    if (comm.rank() == 1) std::this_thread::sleep_for(600ms);  // the root waits for it while 2 goes away
    troupe::request all = comm.reduce_async(one, sum, slow, 0, {.choreography = "binomial"});
    if (comm.rank() == 2) {  // what it computes, of itself and 3, goes to the root
      while (!computes) std::this_thread::yield();
      comm = {};
      engine.reset();
    }
    all.wait();
    if (m.process == 0 && sum != 4) throw std::runtime_error("wrong sum");
  });
  CHECK(trouble(ends) == "");
}
