// SPDX-License-Identifier: Apache-2.0
// Layers of experts between processes of a host, and between hosts.

#include <doctest/doctest.h>

#include <csignal>

#include <unistd.h>

#include "memory/error.hpp"
#include "tests/experts/layer.hpp"
#include "tests/processes/processes.hpp"
#include "tests/seed.hpp"

using namespace expert_tests;
using namespace process_tests;
using troupe::communicator;
using troupe::engine;

TEST_CASE("random layers between processes of a host") {
  for (const int processes : {2, 3}) {
    const std::uint64_t drawn = seed() + static_cast<std::uint64_t>(processes);
    const auto ended = run_processes(processes, [&](const member& m) {
      engine e;
      communicator comm = e.join(m.how());
      random_numbers random{drawn};
      for (int round = 0; round < 15; ++round) {
        layer l = any_layer(random, processes);
        auto exchange = comm.expert_exchange(l.experts, l.options);
        for (int b = 0; b < 4; ++b) {
          draw_batch(random, l, processes);
          check_layer(exchange, l, comm.rank());
        }
      }
    });
    CHECK(trouble(ended) == "");
  }
}

TEST_CASE("threads of processes") {
  const std::uint64_t drawn = seed() + 9;
  const auto ended = run_processes(2, [&](const member& m) {
    engine e;
    e.join(
        2,
        [&](communicator& comm) {
          random_numbers random{drawn};
          for (int round = 0; round < 6; ++round) {
            layer l = any_layer(random, 4);
            auto exchange = comm.expert_exchange(l.experts, l.options);
            for (int b = 0; b < 3; ++b) {
              draw_batch(random, l, 4);
              check_layer(exchange, l, comm.rank());
            }
          }
        },
        m.how());
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("random layers between two hosts, each of which shares memory") {
  const std::uint64_t drawn = seed() + 17;
  const auto ended = run_processes(4, [&](const member& m) {
    engine e;
    auto how = m.how();
    how.host = m.process < 2 ? "one" : "other";
    how.key = std::string(64, 'e');
    communicator comm = e.join(how);
    random_numbers random{drawn};
    for (int round = 0; round < 8; ++round) {
      layer l = any_layer(random, 4);
      l.servers = {0, 0, 1, 1};
      auto exchange = comm.expert_exchange(l.experts, l.options);
      for (int b = 0; b < 4; ++b) {
        draw_batch(random, l, 4);
        check_layer(exchange, l, comm.rank());
      }
      const auto profile = exchange.profile();
      for (const auto& rank : profile.ranks) expect(rank.crossed <= rank.tokens, "a token that crosses twice");
    }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("a process that is killed is an error on the others, who then make another exchange") {
  const auto ended = run_processes(
      3,
      [](const member& m) {
        engine e;
        communicator comm = e.join(m.how());
        layer l;
        l.options.hidden = 1000;
        l.options.top_k = 2;
        l.tokens = {40, 50, 60};
        {
          auto exchange = comm.expert_exchange(l.experts, l.options);
          check_layer(exchange, l, comm.rank());
          m.say("begun");
          try {
            for (;; ++l.seed) check_layer(exchange, l, comm.rank());
          } catch (const troupe::error& why) {
            expect(why.code_value() == troupe::errc::peer_lost, why.what());
          }
        }
        communicator left = comm.shrink();
        l.tokens = {40, 50};
        auto exchange = left.expert_exchange(l.experts, l.options);
        check_layer(exchange, l, left.rank());
      },
      [](job_control& job) {
        job.wait_for_lines(3);
        ::kill(job.pids[1], SIGKILL);
      });
  CHECK(trouble(ended, 1) == "");
}
