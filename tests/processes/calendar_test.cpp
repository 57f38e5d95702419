// SPDX-License-Identifier: Apache-2.0
// Jobs on computers whose calendar jumps by hours (tests/calendar): ctest runs this and the failures' tests there. Nothing waits by the calendar, so nothing changes.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/processes/apart.hpp"
#include "tests/processes/processes.hpp"

using namespace process_tests;
using troupe::communicator;
using troupe::errc;

namespace {

using calendar = std::chrono::system_clock;

/// Of some looks at it, one after the other.
calendar::duration widest_step() {
  calendar::duration widest{};
  for (auto [i, before] = std::pair{0, calendar::now()}; i < 8; ++i) {
    const auto now = calendar::now();
    widest = std::max(widest, now > before ? now - before : before - now);
    before = now;
  }
  return widest;
}

}  // namespace

TEST_CASE("calendar: where it jumps, deadlines and silences are as long as ever, within a host and between hosts") {
  if (std::getenv("TROUPE_TEST_CALENDAR") == nullptr) {
    MESSAGE("skipped: the calendar does not jump here; ctest runs this as test_processes_calendar");
    return;
  }
  REQUIRE(widest_step() > std::chrono::minutes{30});
  for (const bool hosts : {false, true}) {
    CAPTURE(hosts);
    const std::string at = free_address();
    const auto ends = run_processes(2, [&](const member& m) {
      using clock = std::chrono::steady_clock;
      troupe::engine engine;
      communicator comm = engine.join(hosts ? apart(m, at) : m.how());
      for (int i = 0; i < 200; ++i) {
        std::array<int, 2> one{i, i};
        comm.all_reduce(one, troupe::sum);
        if (one[1] != 2 * i) throw std::runtime_error("a wrong sum");
      }
      if (m.process == 1) {
        std::array<int, 1> none{};
        const auto begun = clock::now();
        try {
          comm.recv(none, 0, {.deadline = std::chrono::milliseconds{300}});
          throw std::runtime_error("nobody has sent that");
        } catch (const troupe::error& e) {
          if (e.code_value() != errc::timed_out) throw;
        }
        if (clock::now() - begun < std::chrono::milliseconds{300})
          throw std::runtime_error("a deadline of 300 ms that has passed earlier");
      }
      comm.barrier();
    });
    CHECK(trouble(ends) == "");
  }
}
