// SPDX-License-Identifier: Apache-2.0
// Going on after processes were killed: shrink and revoke between real processes.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "engine/tools/simulate/dice.hpp"
#include "tests/processes/hosts.hpp"
#include "tests/processes/processes.hpp"
#include "tests/seed.hpp"

namespace shrink_test {

using namespace process_tests;
using troupe::communicator;
using troupe::errc;

namespace {

troupe::engine_options quiet() {
  troupe::engine_options o;
  o.log_level = "off";
  return o;
}

/// Works with the communicator until somebody is lost, then with those who are left, and so on, `good` times at last.
communicator work(communicator comm, int good) {
  std::vector<long> data(5000);
  for (int done = 0; done < good;) {
    try {
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = comm.rank() + static_cast<long>(i);
      comm.all_reduce(data, troupe::sum);
      const long n = comm.size();
      for (std::size_t i = 0; i < data.size(); ++i)
        if (data[i] != n * (n - 1) / 2 + n * static_cast<long>(i)) throw std::runtime_error("a wrong sum");
      ++done;
    } catch (const troupe::error& e) {
      if (e.code_value() != errc::peer_lost) throw;
      comm = comm.shrink(
          {.deadline = std::chrono::seconds{20}});  // less than the limit, so that it says whom it waits for
      done = 0;
    }
  }
  return comm;
}

std::string ranks_before(communicator& comm, int mine) {
  std::vector<int> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::array{mine}, all);
  std::string text;
  for (const int r : all) text += std::to_string(r) + " ";
  return text;
}

/// All who live have said the same last line.
std::string common_line(const std::vector<ended>& all) {
  std::string line;
  for (const ended& e : all) {
    if (e.late) FAIL_CHECK("it did not end; it wrote: " << e.log);
    if (e.signal != 0) continue;
    CAPTURE(e.log);
    CHECK(e.exit == 0);
    REQUIRE_FALSE(e.said.empty());
    if (line.empty()) line = e.said.back();
    CHECK(e.said.back() == line);
  }
  return line;
}

/// Works until one is lost, and says who is left, or that it is itself the one.
void go_on_without_one(const member& m, troupe::join_options how) {
  troupe::engine engine(quiet());
  how.silence = std::chrono::milliseconds{1500};  // on a busy computer nobody else is still for nearly as long
  communicator comm = engine.join(how);
  const int mine = comm.rank();
  m.say("joined");
  try {
    while (comm.size() == m.processes) comm = work(std::move(comm), 50);
  } catch (const troupe::error& e) {
    m.say(std::string{e.code_value() == errc::peer_lost ? "peer_lost " : "another error "} + e.what());
    return;
  }
  m.say(ranks_before(comm, mine));
}

void check_that_one_is_out(const std::vector<ended>& all, std::size_t out) {
  std::string others;
  for (std::size_t p = 0; p < all.size(); ++p)
    if (p != out) others += std::to_string(p) + " ";
  for (std::size_t p = 0; p < all.size(); ++p) {
    CAPTURE(p);
    CAPTURE(all[p].late);
    CAPTURE(all[p].signal);
    CAPTURE(all[p].log);
    // It was stopped while it, or its NIC, had to do with others' memory: they have ended it (docs/hosts.md).
    if (p == out && all[p].signal == SIGKILL) continue;
    REQUIRE_FALSE(all[p].said.empty());
    const std::string& last = all[p].said.back();
    if (p != out) {
      CHECK(last == others);
      continue;
    }
    CHECK_MESSAGE(last.find("peer_lost ") == 0, last);
    const bool knows = last.find("taken for lost") != last.npos || last.find("was stopped for longer") != last.npos;
    CHECK_MESSAGE(knows, last);
  }
}

}  // namespace

TEST_CASE("those who are left go on, in their old order, whoever was killed") {
  for (const auto& victims : std::vector<std::vector<std::size_t>>{{0}, {2}, {0, 1}, {1, 3}, {0, 2, 3}}) {
    CAPTURE(victims.size());
    CAPTURE(victims.front());
    const auto all = run_processes(
        4,
        [&](const member& m) {
          troupe::engine engine(quiet());
          communicator comm = engine.join(m.how());
          const int mine = comm.rank();
          m.say("joined");
          // More than are going to be killed: a rank that is done early waits for nobody else's failure.
          while (comm.size() > 4 - static_cast<int>(victims.size())) comm = work(std::move(comm), 50);
          m.say(comm.name().substr(0, 12) + " " + ranks_before(comm, mine));
        },
        [&](job_control& job) {
          job.wait_for_lines(4);
          for (const std::size_t v : victims) {
            ::usleep(3000);
            ::kill(job.pids[v], SIGKILL);
          }
        });
    std::string expected = "world.shrink ";
    for (std::size_t r = 0; r < 4; ++r)
      if (std::find(victims.begin(), victims.end(), r) == victims.end()) expected += std::to_string(r) + " ";
    CHECK(common_line(all) == expected);
  }
}

TEST_CASE("processes that are killed while others shrink change nothing but who is left") {
  troupe::simulate::dice dice(seed());
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    const int wait_us = static_cast<int>(dice.below(4000)), between_us = static_cast<int>(dice.below(1500));
    const std::size_t first = dice.index(6), second = (first + 1 + dice.index(5)) % 6;
    const auto all = run_processes(
        6,
        [&](const member& m) {
          troupe::engine engine(quiet());
          communicator comm = engine.join(m.how());
          const int mine = comm.rank();
          m.say("joined");
          while (comm.size() > 4) comm = work(std::move(comm), 20);
          m.say(ranks_before(comm, mine));
        },
        [&](job_control& job) {
          job.wait_for_lines(6);
          ::usleep(static_cast<useconds_t>(wait_us));
          ::kill(job.pids[first], SIGKILL);
          ::usleep(static_cast<useconds_t>(between_us));
          ::kill(job.pids[second], SIGKILL);
        });
    std::string expected;
    for (std::size_t r = 0; r < 6; ++r)
      if (r != first && r != second) expected += std::to_string(r) + " ";
    CHECK(common_line(all) == expected);
  }
}

TEST_CASE("several ranks of a process shrink together, with those of other processes") {
  const auto all = run_processes(
      3,
      [&](const member& m) {
        troupe::engine engine(quiet());
        engine.join(
            2,
            [&](communicator& world) {
              const int mine = world.rank();
              m.say("joined");
              communicator comm = world.shrink();  // of one that is whole, or not any more
              while (comm.size() > 4) comm = work(std::move(comm), 50);
              const std::string left = ranks_before(comm, mine);
              // All in one process, and so on the boards again.
              communicator mates = comm.split(m.process, mine);
              int sum = 1;
              mates.all_reduce(sum, troupe::sum);
              m.say(left + "with " + std::to_string(sum));
            },
            m.how());
      },
      [&](job_control& job) {
        job.wait_for_lines(6);
        ::kill(job.pids[1], SIGKILL);
      });
  CHECK(common_line(all) == "0 1 4 5 with 2");
}

TEST_CASE("revoke ends what everybody does, also at those who have noticed nothing") {
  const auto all = run_processes(4, [&](const member& m) {
    troupe::engine engine(quiet());
    communicator comm = engine.join(m.how());
    comm.barrier();
    int value = 0;
    errc code = errc::ok;
    std::string why;
    if (m.process == 3) {
      ::usleep(20'000);
      comm.revoke("its input is broken");
      code = code_of([&] { comm.barrier(); });
    } else {
      try {
        comm.recv(value, 3);  // which never sends
      } catch (const troupe::error& e) {
        code = e.code_value();
        why = e.what();
      }
      if (why.find("was revoked by rank 3: its input is broken") == why.npos) throw std::runtime_error(why);
    }
    if (code != errc::revoked) throw std::runtime_error("another error");
    if (code_of([&] { comm.barrier(); }) != errc::revoked) throw std::runtime_error("it goes on");
    communicator again = comm.shrink();
    m.say(ranks_before(again, m.process));
  });
  CHECK(common_line(all) == "0 1 2 3 ");
}

TEST_CASE("a shrink waits for those who live, says who they are, and can be gone on with") {
  std::array<int, 2> named{};
  REQUIRE(::pipe(named.data()) == 0);
  const auto all = run_processes(3, [&](const member& m) {
    troupe::engine engine(quiet());
    communicator comm = engine.join(m.how());
    comm.barrier();
    if (m.process == 2) {  // comes when both others have said that it is missing
      std::array<char, 1> one{};
      for (int i = 0; i < 2; ++i)
        if (::read(named[0], one.data(), 1) != 1) throw std::runtime_error("read");
      communicator left = comm.shrink();
      return m.say(ranks_before(left, m.process));
    }
    for (bool said = false;;) try {
        communicator left = comm.shrink({.deadline = std::chrono::milliseconds{50}});
        return m.say(ranks_before(left, m.process));
      } catch (const troupe::error& e) {
        if (e.code_value() != errc::timed_out) throw;
        if (said || std::string{e.what()}.find("process 2 (rank 2, pid ") == std::string::npos) continue;
        said = true;
        if (::write(named[1], "n", 1) != 1) throw std::runtime_error("write");
      }
  });
  CHECK(common_line(all) == "0 1 2 ");
  for (const int end : named) ::close(end);
}

TEST_CASE("processes whose shrink waits for long say in the log for whom") {
  std::array<int, 2> waited{};
  REQUIRE(::pipe(waited.data()) == 0);
  const auto all = run_processes(3, [&](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(m.how());
    comm.barrier();
    if (m.process == 2) {  // comes when both others have waited for long
      std::array<char, 1> one{};
      for (int i = 0; i < 2; ++i)
        if (::read(waited[0], one.data(), 1) != 1) throw std::runtime_error("read");
    } else {
      if (code_of([&] { comm.shrink({.deadline = std::chrono::milliseconds{5500}}); }) != errc::timed_out)
        throw std::runtime_error("somebody else came");
      if (::write(waited[1], "w", 1) != 1) throw std::runtime_error("write");
    }
    communicator left = comm.shrink();
    m.say(ranks_before(left, m.process));
  });
  CHECK(common_line(all) == "0 1 2 ");
  for (const std::size_t p : {0u, 1u}) {
    CAPTURE(all[p].log);
    const std::string line =
        "waiting for more than 5 s: world, shrink: rank " + std::to_string(p) + " waits for process 2 (rank 2, pid ";
    const std::size_t at = all[p].log.find(line);
    CHECK(at != std::string::npos);
    CHECK(all[p].log.find("waiting for more than", at + 1) == std::string::npos);
  }
  CHECK(all[2].log.find("waiting for more than") == std::string::npos);
  for (const int end : waited) ::close(end);
}

TEST_CASE("who has left its communicator, or the job, is not waited for") {
  const auto all = run_processes(4, [&](const member& m) {
    troupe::engine engine(quiet());
    communicator comm = engine.join(m.how());
    comm.barrier();
    if (m.process == 0) comm = {};  // the engine lives on for a while, and ends nothing
    if (m.process == 0) ::usleep(300'000);
    if (m.process == 2) return;
    if (m.process == 0) return m.say("1 3 ");
    communicator left = comm.shrink();
    m.say(ranks_before(left, m.process));
  });
  std::vector<ended> others = all;
  others.erase(others.begin() + 2);
  CHECK(all[2].exit == 0);
  CHECK(common_line(others) == "1 3 ");
}

TEST_CASE("a process that was stopped, and taken for lost, does not go on alone, the first one neither") {
  for (const std::size_t processes : {2u, 3u})
    for (const std::size_t stopped : {0u, 1u}) {
      CAPTURE(processes);
      CAPTURE(stopped);
      const auto all = run_processes(
          static_cast<int>(processes), [](const member& m) { go_on_without_one(m, m.how()); },
          [&](job_control& job) {
            job.wait_for_lines(processes);
            ::kill(job.pids[stopped], SIGSTOP);
            job.wait_for_lines(2 * processes - 1);
            ::kill(job.pids[stopped], SIGCONT);
          });
      check_that_one_is_out(all, stopped);
    }
}

TEST_CASE("a first process that was stopped does not go on alone beside the other hosts") {
  const hosts_of_test hosts{2};
  if (!hosts.ready()) return;
  for (const std::size_t processes : {2u, 4u}) {
    CAPTURE(processes);
    const auto all = run_processes(
        static_cast<int>(processes),
        [&](const member& m) {
          hosts.enter(m.process % 2);
          troupe::join_options how = m.how();
          how.rendezvous = "tcp://10.213.7.1:5600";
          how.key = std::string(64, '7');
          go_on_without_one(m, how);
        },
        [&](job_control& job) {
          job.wait_for_lines(processes);
          ::kill(job.pids[0], SIGSTOP);
          job.wait_for_lines(2 * processes - 1);
          ::kill(job.pids[0], SIGCONT);
        });
    check_that_one_is_out(all, 0);
  }
}

TEST_CASE("too few are an error on all of them") {
  const auto all = run_processes(
      3,
      [&](const member& m) {
        troupe::engine engine(quiet());
        communicator comm = engine.join(m.how());
        m.say("joined");
        if (m.process == 1) ::pause();
        if (code_of([&] { comm.barrier(); }) != errc::peer_lost) throw std::runtime_error("nobody was lost");
        m.say(code_of([&] { comm.shrink({.at_least = 3}); }) == errc::peer_lost ? "too few" : "enough");
        communicator both = comm.shrink({.at_least = 2});  // another try is another round
        if (both.size() != 2) throw std::runtime_error("others");
        both.barrier();
      },
      [&](job_control& job) {
        job.wait_for_lines(3);
        ::kill(job.pids[1], SIGKILL);
      });
  CHECK(common_line(all) == "too few");
}

}  // namespace shrink_test
