// SPDX-License-Identifier: Apache-2.0
// Jobs whose hosts are in pods: the hosts are names that the processes tell the job, and so are the pods.

#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <poll.h>
#include <unistd.h>

#include "engine/world/join.hpp"
#include "tests/processes/all_collectives.hpp"
#include "tests/processes/processes.hpp"
#include "tests/seed.hpp"

using namespace process_tests;
using troupe::communicator;
using troupe::errc;

namespace {

namespace pods {

/// Hosts in two pods, the next one in turn.
troupe::join_options in_pods(const member& m, int processes_of_host = 1) {
  const int host = m.process / processes_of_host;
  troupe::join_options how = m.how();
  how.host = "host" + std::to_string(host);
  how.pod = host % 2 == 0 ? "hall/even" : "hall/odd";
  how.interfaces = "lo";
  how.key = std::string(64, '7');
  return how;
}

void must(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const troupe::error& e) {
    return e.code().message() + ": " + e.what();
  }
  return "no error";
}

void check_sums(communicator& c) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{100'000}}) {
    std::vector<long> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = c.rank() + static_cast<long>(i);
    c.all_reduce(data, troupe::sum);
    const long n = c.size();
    for (std::size_t i = 0; i < count; ++i) must(data[i] == n * (n - 1) / 2 + n * static_cast<long>(i), "a sum");
  }
}

}  // namespace pods

}  // namespace

using namespace pods;

TEST_CASE("pods: all collectives by choreographies that know pods, and by what the planner takes") {
  const std::uint64_t drawn = seed() + 13;
  for (const std::string choreography : {"hierarchical", "hierarchical_nhr", "auto"})
    for (const int of_host : {1, 2}) {
      CAPTURE(choreography);
      CAPTURE(of_host);
      const auto all = run_processes(4 * of_host, [&](const member& m) {
        troupe::engine_options options;
        for (const char* what : {"all_reduce", "all_gather", "reduce_scatter"})
          if (choreography != "auto") options.choreography_of[what] = choreography;
        troupe::engine engine{options};
        communicator comm = engine.join(in_pods(m, of_host));
        m.say(troupe::layout_of_job(engine).to_string());
        perform_all_collectives(comm, drawn);
        if (choreography == "hierarchical_nhr") return;  // which needs two levels
        // A part of each pod, and what is left of both.
        communicator part = comm.split(m.process / of_host % 2, m.process);
        check_sums(part);
        communicator three = comm.split(m.process < 3 * of_host ? 0 : 1, m.process);
        check_sums(three);
      });
      CHECK(trouble(all) == "");
      for (const ended& e : all)
        CHECK(e.said == std::vector<std::string>{of_host == 1
                                                     ? "0.0.0.0,1.0.0.0,0.1.0.0,1.1.0.0"
                                                     : "0.0.0.0,0.0.0.1,1.0.0.0,1.0.0.1,0.1.0.0,0.1.0.1,1.1.0.0,"
                                                       "1.1.0.1"});
    }
}

TEST_CASE("pods: a host whose process names none, or two of one host that differ, are told to all") {
  const auto silent = run_processes(3, [](const member& m) {
    troupe::join_options how = in_pods(m);
    if (m.process == 2) how.pod.clear();
    troupe::engine engine;
    m.say(error_of([&] { engine.join(how); }));
  });
  CHECK(trouble(silent) == "");
  for (const ended& e : silent) {
    REQUIRE(e.said.size() == 1);
    CHECK_MESSAGE(e.said[0].find("is in pod hall/even, and process 2 (") != std::string::npos, e.said[0]);
    CHECK_MESSAGE(e.said[0].find("names no pod; say it of all hosts of the job (TROUPE_POD") != std::string::npos,
                  e.said[0]);
    CHECK(e.said[0] == silent[0].said[0]);
  }
  const auto two = run_processes(2, [](const member& m) {
    troupe::join_options how = m.how();
    how.pod = m.process == 0 ? "a" : "b";
    troupe::engine engine;
    m.say(error_of([&] { engine.join(how); }));
  });
  CHECK(trouble(two) == "");
  for (const ended& e : two) {
    REQUIRE(e.said.size() == 1);
    CHECK_MESSAGE(e.said[0].find("; a host is in one pod (TROUPE_POD)") != std::string::npos, e.said[0]);
  }
}

TEST_CASE("pods: TROUPE_POD says it, too, and what is no pod is refused before anybody is asked") {
  const auto all = run_processes(4, [](const member& m) {
    troupe::join_options how = in_pods(m);
    how.pod.clear();
    ::setenv("TROUPE_POD", m.process % 2 == 0 ? "a" : "b", 1);
    troupe::engine engine;
    communicator comm = engine.join(how);
    m.say(troupe::layout_of_job(engine).to_string());
    check_sums(comm);
  });
  CHECK(trouble(all) == "");
  for (const ended& e : all) CHECK(e.said == std::vector<std::string>{"0.0.0.0,1.0.0.0,0.1.0.0,1.1.0.0"});
  const auto wrong = run_processes(1, [](const member& m) {
    troupe::join_options how = m.how();
    how.pod = "a//b";
    troupe::engine engine;
    m.say(error_of([&] { engine.join(how); }));
  });
  REQUIRE(wrong[0].said.size() == 1);
  CHECK_MESSAGE(wrong[0].said[0].find("join_options::pod is \"a//b\"; a group's name has 1") != std::string::npos,
                wrong[0].said[0]);
}

TEST_CASE("pods: what is left of a job keeps them, and a new host brings its own") {
  std::array<int, 2> letter{};
  REQUIRE(::pipe(letter.data()) == 0);
  const auto all = run_processes(
      6,
      [&](const member& m) {
        troupe::engine_options options;
        options.log_level = "off";
        options.choreography_of["all_reduce"] = "hierarchical";
        troupe::engine engine{options};
        troupe::join_options how = in_pods(m);
        if (m.process == 5) {  // comes instead of process 1
          std::string word(261, ' ');
          pollfd there{letter[0], POLLIN, 0};
          must(::poll(&there, 1, 40'000) == 1, "an invitation");
          must(::read(letter[0], word.data(), word.size()) == static_cast<ssize_t>(word.size()), "a whole one");
          how.rendezvous = word, how.process = -1, how.processes = 0;
          communicator grown = engine.join(how);
          check_sums(grown);
          m.say(troupe::layout_of_job(engine).to_string());
          return;
        }
        how.processes = 5;
        communicator comm = engine.join(how);
        check_sums(comm);
        if (m.process == 1) {  // when its barrier is over the others' need not be
          comm.barrier();
          ::kill(::getpid(), SIGKILL);
        }
        try {
          for (;;) comm.barrier();
        } catch (const troupe::error& e) {
          must(e.code_value() == errc::peer_lost, "a lost process");
        }
        comm = comm.shrink();
        must(comm.size() == 4, "four are left");
        check_sums(comm);
        comm =
            comm.grow(1, {.invite = [&](const std::string& word) {
                        must(::write(letter[1], word.data(), word.size()) == static_cast<ssize_t>(word.size()), "sent");
                      }});
        must(comm.size() == 5, "five again");
        check_sums(comm);
      },
      {}, std::chrono::seconds{100});
  ::close(letter[0]), ::close(letter[1]);
  CHECK(all[1].signal == SIGKILL);
  for (const std::size_t p : {0u, 2u, 3u, 4u, 5u})
    CHECK_MESSAGE(all[p].exit == 0, p << ": " << all[p].log << (all[p].said.empty() ? "" : all[p].said.back()));
  // Processes 0, 2, 3, 4 and the new one: hosts 0, 2, 4 of the even pod, 3 and 5 of the odd one.
  CHECK(all[5].said == std::vector<std::string>{"0.0.0.0,0.1.0.0,1.0.0.0,0.2.0.0,1.1.0.0"});
}
