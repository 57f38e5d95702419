// SPDX-License-Identifier: Apache-2.0
// Groups of sends and receives between processes of a host: everybody to everybody, of all sizes, among collectives; and who is late, differs, cancels or
// is killed.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "tests/processes/processes.hpp"
#include "tests/seed.hpp"

using namespace process_tests;
using troupe::communicator;
using troupe::errc;

namespace {

namespace process_groups {

void must(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

/// Of message `number` from one rank to another.
std::vector<int> message(int from, int to, int number, std::size_t count) {
  std::vector<int> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = from * 1000 + to * 100 + number * 7 + static_cast<int>(i % 91);
  return made;
}

/// As many messages each way between all pairs as `sizes` has, in orders of their own, in one group. Checks what came.
void everybody_to_everybody(communicator& c, const std::vector<std::size_t>& sizes, std::mt19937_64& random,
                            bool collective) {
  const int n = c.size(), me = c.rank();
  struct half {
    int peer;
    bool sends;
    std::vector<std::vector<int>> data{};
  };
  std::vector<half> halves;
  for (int d = 1; d < n; ++d) {
    halves.push_back({(me + d) % n, true});
    halves.push_back({(me + d) % n, false});
  }
  std::shuffle(halves.begin(), halves.end(), random);
  std::vector<long> sum{me};
  troupe::group g;
  for (half& h : halves)
    for (std::size_t m = 0; m < sizes.size(); ++m) {
      const int number = static_cast<int>(m);
      h.data.push_back(h.sends ? message(me, h.peer, number, sizes[m]) : std::vector<int>(sizes[m], -1));
    }
  for (half& h : halves)
    for (std::vector<int>& each : h.data)
      if (h.sends) c.send_async(g, each, h.peer);
      else c.recv_async(g, each, h.peer);
  if (collective) c.all_reduce_async(g, std::span{sum}, troupe::sum);
  g.wait();
  must(!collective || sum[0] == n * (n - 1) / 2, "a sum among them");
  for (const half& h : halves)
    for (std::size_t m = 0; m < sizes.size(); ++m)
      must(h.sends || h.data[m] == message(h.peer, me, static_cast<int>(m), sizes[m]),
           "a message from rank " + std::to_string(h.peer));
}

}  // namespace process_groups

}  // namespace

using namespace process_groups;

TEST_CASE("groups between processes: all sizes, more messages than slots, who comes late, and collectives among them") {
  const std::uint64_t drawn = seed() + 31;
  for (const int processes : {2, 3, 5}) {
    CAPTURE(processes);
    const auto all = run_processes(processes, [&](const member& m) {
      troupe::engine engine;
      communicator c = engine.join(m.how());
      std::mt19937_64 alike{drawn}, own{drawn + static_cast<std::uint64_t>(m.process)};
      for (int round = 0; round < 120; ++round) {
        std::vector<std::size_t> sizes;
        for (std::uint64_t many = 1 + alike() % 9; sizes.size() < many;) {
          constexpr std::size_t most[] = {1, 30, 400, 20'000, 300'000};
          sizes.push_back(alike() % (1 + most[alike() % (round % 20 == 0 ? 5 : 4)]));
        }
        const bool collective = alike() % 3 == 0;
        if (own() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds{own() % 3000});
        everybody_to_everybody(c, sizes, own, collective);
        if (alike() % 4 == 0) {  // blocking ones and others under way in between
          int data = m.process, got = -1;
          const int n = c.size(), next = (m.process + 1) % n, before = (m.process + n - 1) % n;
          c.send_recv(std::span{&data, 1}, next, std::span{&got, 1}, before);
          must(got == before, "a blocking one");
          auto sent = c.send_async(std::span{&data, 1}, next);
          auto received = c.recv_async(std::span{&got, 1}, before);
          everybody_to_everybody(c, {3}, own, false);
          received.wait(), sent.wait();
        }
      }
    });
    CHECK(trouble(all) == "");
  }
}

TEST_CASE(
    "groups between processes: what one end refuses or gives up ends at both, and the rest of the group arrives") {
  const auto all = run_processes(3, [](const member& m) {
    troupe::engine engine;
    communicator c = engine.join(m.how());
    const int me = c.rank(), next = (me + 1) % 3, before = (me + 2) % 3;
    for (const std::size_t count : {std::size_t{4}, std::size_t{200'000}})
      for (int odd = 0; odd < 3; ++odd)
        for (const errc expected : {errc::mismatch, errc::timed_out, errc::cancelled}) {
          const std::vector<int> to_next = message(me, next, 0, count), to_before = message(me, before, 0, count);
          std::vector<int> from_next(count), from_before(count + 1);
          // Of the message from the rank before `odd`: odd expects an element more; or it is not sent until odd has given up.
          const bool gives_up = expected != errc::mismatch;
          troupe::call_options hasty;
          if (expected == errc::timed_out) hasty.deadline = std::chrono::milliseconds{20};
          troupe::request refused;
          std::jthread canceller;
          const errc ended = code_of([&] {
            troupe::group g;
            if (me == odd) {
              refused = c.recv_async(g, std::span{from_before}.first(gives_up ? count : count + 1), before, hasty);
              if (expected == errc::cancelled)
                canceller = std::jthread{[&refused] {
                  std::this_thread::sleep_for(std::chrono::milliseconds{10});
                  refused.cancel();
                }};
            } else {
              c.recv_async(g, std::span{from_before}.first(count), before);
            }
            if (next != odd || !gives_up) c.send_async(g, to_next, next);
            c.send_async(g, to_before, before);
            c.recv_async(g, from_next, next);
            g.wait();
          });
          const bool concerned = me == odd || (next == odd && !gives_up);
          must(ended == (concerned ? expected : errc::ok), "who has to know of it");
          must(from_next == message(next, me, 0, count), "the other direction");
          if (me != odd) from_before.pop_back(), must(from_before == message(before, me, 0, count), "the others");
          c.barrier();
          if (next == odd && gives_up) {  // a short one may be left before this rank has heard of it
            const errc late = code_of([&] { c.send(to_next, next); });
            must(late == expected || (count == 4 && late == errc::ok), "what odd has given up");
          }
          c.barrier();
        }
  });
  CHECK(trouble(all) == "");
}

TEST_CASE("groups between processes: one that is killed is told to the others, whatever they wait for") {
  for (const std::size_t count : {std::size_t{8}, std::size_t{300'000}}) {
    CAPTURE(count);
    const auto all = run_processes(
        3,
        [&](const member& m) {
          troupe::engine_options options;
          options.log_level = "off";
          troupe::engine engine{options};
          communicator c = engine.join(m.how());
          std::mt19937_64 random{static_cast<std::uint64_t>(m.process)};
          m.say("here");
          for (;;) everybody_to_everybody(c, {count, 3, count}, random, false);
        },
        [](job_control& job) {
          job.wait_for_lines(3);
          ::usleep(30'000);
          ::kill(job.pids[1], SIGKILL);
        });
    CHECK(all[1].signal == SIGKILL);
    for (const std::size_t p : {0u, 2u}) {
      REQUIRE(all[p].said.size() == 2);
      CHECK_MESSAGE(all[p].said[1].find("rank 1 was lost") != std::string::npos, all[p].said[1]);
    }
  }
}
