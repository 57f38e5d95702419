// SPDX-License-Identifier: Apache-2.0
// LL-A2A between processes of a host.

#include <doctest/doctest.h>

#include <csignal>

#include "tests/ll/exchanges.hpp"
#include "tests/processes/processes.hpp"
#include "tests/seed.hpp"

using namespace ll_tests;
using namespace process_tests;
using troupe::communicator;
using troupe::engine;
using troupe::errc;
using troupe::ll_session;

TEST_CASE("random exchanges of LL-A2A between processes, and between threads of processes") {
  const std::uint64_t drawn = seed();
  for (const int processes : {2, 3}) {
    const auto ended = run_processes(processes, [&](const member& m) {
      engine e;
      communicator comm = e.join(m.how());
      random_exchanges(comm, drawn, 100);
    });
    CHECK(trouble(ended) == "");
  }
  const auto ended = run_processes(2, [&](const member& m) {
    engine e;
    e.join(
        2, [&](communicator& comm) { random_exchanges(comm, drawn + 1, 50); }, m.how());
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("epochs of LL-A2A wrap between processes") {
  const auto ended = run_processes(2, [](const member& m) {
    troupe::engine_options how;
    how.first_operation = 0xffffffff - 40;
    engine e{how};
    communicator comm = e.join(m.how());
    ll_session session{comm, {.elements = 2, .element_bytes = 8}};
    for (std::uint64_t i = 0; i < 200; ++i) one_exchange(session, comm, i);
    expect(session.epoch() == 2 + 159, "the epoch");
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("a process that is killed ends the waits of LL-A2A, and the others go on without it") {
  const auto ended = run_processes(
      3,
      [](const member& m) {
        engine e;
        communicator comm = e.join(m.how());
        {
          ll_session session{comm, {.elements = 3, .element_bytes = 8}};
          for (std::uint64_t i = 0; i < 10; ++i) one_exchange(session, comm, i);
          m.say("begun");
          try {
            for (std::uint64_t i = 0;; ++i) one_exchange(session, comm, i);
          } catch (const troupe::error& why) {
            expect(why.code_value() == errc::peer_lost, why.what());
          }
        }
        communicator left = comm.shrink();
        ll_session session{left, {.elements = 2, .element_bytes = 8}};
        for (std::uint64_t i = 0; i < 100; ++i) one_exchange(session, left, i);
      },
      [](job_control& job) {
        job.wait_for_lines(3);
        ::kill(job.pids[1], SIGKILL);
      });
  CHECK(trouble(ended, 1) == "");
}

TEST_CASE("processes of two hosts have no LL-A2A with each other, those of one have") {
  const auto ended = run_processes(4, [](const member& m) {
    engine e;
    auto how = m.how();
    how.host = m.process < 2 ? "one" : "other";
    how.key = std::string(64, 'e');
    communicator comm = e.join(how);
    errc code = errc::ok;
    try {
      troupe::ll_handle{comm};
    } catch (const troupe::error& why) {
      code = why.code_value();
    }
    expect(code == errc::unsupported, "two hosts");
    communicator host = comm.split(m.process / 2, comm.rank());
    ll_session session{host, {.elements = 2, .element_bytes = 8}};
    for (std::uint64_t i = 0; i < 100; ++i) one_exchange(session, host, i);
  });
  CHECK(trouble(ended) == "");
}
