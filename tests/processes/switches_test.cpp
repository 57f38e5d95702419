// SPDX-License-Identifier: Apache-2.0
// Choreographies of switches that reduce, between processes: on one host the board is the switch, between hosts ranks perform its lanes.

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/processes/processes.hpp"

using namespace process_tests;
using troupe::communicator;
using troupe::errc;

namespace {

void must(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

int number_given(int rank, std::size_t i) { return static_cast<int>(i % 1000) + 7 * rank; }

/// By name, so that nobody else performs it.
troupe::engine_options by(const std::string& choreography, const std::string& switches) {
  troupe::engine_options options;
  options.log_level = "off";
  options.layout = switches;
  for (const char* what : {"all_reduce", "reduce_scatter", "all_gather"})
    if (choreography == "nvls" || what == std::string{"all_reduce"}) options.choreography_of[what] = choreography;
  return options;
}

void check_sum(const std::vector<int>& out, std::size_t first, int ranks, const std::string& what) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    int sum = 0;
    for (int r = 0; r < ranks; ++r) sum += number_given(r, first + i);
    must(out[i] == sum, what + " of " + std::to_string(out.size()) + " at " + std::to_string(i));
  }
}

/// @param mapped the data lie where all map them
void check_all(troupe::engine& engine, communicator& c, std::size_t count, bool mapped, bool only_sums) {
  const auto n = static_cast<std::size_t>(c.size()), me = static_cast<std::size_t>(c.rank());
  troupe::vector<int> shown(mapped ? count * n : 0, engine);
  std::vector<int> own(count * n);
  int* const in = mapped ? shown.data() : own.data();
  for (std::size_t i = 0; i < count * n; ++i) in[i] = number_given(c.rank(), i);
  std::vector<int> out(count);
  c.all_reduce(std::span<const int>(in, count), std::span<int>(out), troupe::sum);
  check_sum(out, 0, c.size(), "an all_reduce");
  if (!only_sums) {
    c.reduce_scatter(std::span<const int>(in, count * n), std::span<int>(out), troupe::sum);
    check_sum(out, me * count, c.size(), "a reduce_scatter");
    std::vector<int> all(count * n);
    c.all_gather(std::span<const int>(in, count), std::span<int>(all));
    for (std::size_t i = 0; i < all.size(); ++i)
      must(all[i] ==
               number_given(static_cast<int>(i / std::max<std::size_t>(1, count)), i % std::max<std::size_t>(1, count)),
           "an all_gather");
  }
  c.all_reduce(std::span<int>(in, count), troupe::sum);
  check_sum({in, in + count}, 0, c.size(), "an all_reduce in place");
}

}  // namespace

TEST_CASE("nvls between processes of a host has all right, whatever the sizes and wherever the data") {
  struct shape {
    int processes, ranks_each;
  };
  for (const shape s : {shape{2, 1}, {3, 1}, {2, 2}, {5, 1}}) {
    CAPTURE(s.processes);
    CAPTURE(s.ranks_each);
    const auto all = run_processes(s.processes, [s](const member& m) {
      troupe::engine engine(by("nvls", ":inside"));
      engine.join(
          s.ranks_each,
          [&](communicator& c) {
            for (const std::size_t count : {0u, 1u, 3u, 100u, 5000u, 300'000u})
              for (const bool mapped : {false, true})
                for (int again = 0; again < 3; ++again) check_all(engine, c, count, mapped, false);
          },
          m.how());
    });
    CHECK(trouble(all) == "");
  }
}

TEST_CASE("between hosts ranks perform what the switches would") {
  for (const char* name : {"nvls", "nvls_tree", "collnet_direct", "collnet_chain"}) {
    CAPTURE(name);
    const auto all = run_processes(4, [name](const member& m) {
      troupe::join_options how = m.how();
      how.host = "host" + std::to_string(m.process / 2);
      how.key = std::string(64, '7');
      troupe::engine engine(by(name, ":both"));
      communicator c = engine.join(how);
      for (const std::size_t count : {1u, 5000u, 200'000u}) check_all(engine, c, count, false, true);
    });
    CHECK(trouble(all) == "");
  }
}

TEST_CASE("a killed process is told to who meets it at the switch") {
  for (const std::size_t count : {4u, 1u << 20}) {
    CAPTURE(count);
    const auto all = run_processes(
        3,
        [count](const member& m) {
          troupe::engine engine(by("nvls", ":inside"));
          communicator c = engine.join(m.how());
          std::vector<float> data(count);
          m.say("joined");
          try {
            while (true) c.all_reduce(data, troupe::sum);
          } catch (const troupe::error& e) {
            m.say((e.code_value() == errc::peer_lost ? "peer_lost " : "another error ") + std::string{e.what()});
          }
          communicator left = c.shrink();
          check_all(engine, left, 1000, false, false);
          m.say("went on with " + std::to_string(left.size()));
        },
        [](job_control& job) {
          job.wait_for_lines(3);
          ::usleep(20'000);
          ::kill(job.pids[1], SIGKILL);
        });
    CHECK(all[1].signal == SIGKILL);
    for (const std::size_t p : {std::size_t{0}, std::size_t{2}}) {
      CAPTURE(p);
      CAPTURE(all[p].log);
      REQUIRE(all[p].said.size() == 3);
      CHECK_MESSAGE(all[p].said[1].find("peer_lost ") == 0, all[p].said[1]);
      CHECK(all[p].said[2] == "went on with 2");
    }
  }
}

TEST_CASE("processes that were told of other switches do not join, nor do those that were told of places") {
  const auto all = run_processes(2, [](const member& m) {
    try {
      troupe::engine engine(by("nvls", m.process == 0 ? ":inside" : ":both"));
      static_cast<void>(engine.join(m.how()));
      m.say("joined");
    } catch (const troupe::error& e) {
      m.say(std::string{e.what()});
    }
    try {
      troupe::engine engine(by("nvls", "2:inside"));
      static_cast<void>(engine.join(m.how()));
      m.say("joined");
    } catch (const troupe::error& e) {
      m.say(std::string{e.what()});
    }
  });
  for (const ended& e : all) {
    REQUIRE(e.said.size() == 2);
    CHECK_MESSAGE(e.said[0].find("layout = :") != std::string::npos, e.said[0]);
    CHECK_MESSAGE(e.said[1].find("say behind a colon alone which switches reduce") != std::string::npos, e.said[1]);
  }
}
