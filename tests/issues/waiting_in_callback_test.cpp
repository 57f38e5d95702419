// SPDX-License-Identifier: Apache-2.0
// Waiting inside a callback was std::logic_error when the callback came late, and allowed when its operation was done already: which of
// the two was a matter of timing.

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "engine/api/troupe.hpp"

using namespace troupe;

TEST_CASE("a callback may not wait, whether it is called at once or later, and the error is troupe's") {
  engine on;
  auto comms = on.communicators(2);
  std::vector<float> a(4, 1), b(4, 1), never(4);
  request pending = comms[0].recv_async(never, 1);
  for (const bool late : {false, true}) {
    CAPTURE(late);
    std::atomic<errc> refused{errc::ok};
    const auto waits = [&](std::error_code) {
      try {
        pending.wait();
      } catch (const error& e) {
        refused = e.code_value();
      }
    };
    request first = comms[0].all_reduce_async(a);
    if (!late) first.then(waits);
    comms[1].all_reduce(b);
    first.wait();
    if (late) first.then(waits);
    while (!late && refused == errc::ok) std::this_thread::yield();
    CHECK(refused.load() == errc::invalid_argument);
  }
  // The thread may wait again once the callback has returned.
  comms[1].send(b, 0);
  pending.wait();
  CHECK(never == b);
}
