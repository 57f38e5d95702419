// SPDX-License-Identifier: Apache-2.0
// New processes for a running job: grow between real processes, some of which are killed, cancel, come late or never.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <unistd.h>

#include "engine/tools/simulate/dice.hpp"
#include "engine/world/job_id.hpp"
#include "tests/processes/processes.hpp"
#include "tests/seed.hpp"

using namespace process_tests;
using namespace std::chrono_literals;
using troupe::communicator;
using troupe::errc;

namespace {

/// Brings an invitation to those who wait for one, each of whom takes one copy.
class letter {
public:
  letter() {
    if (::pipe(ends_.data()) != 0) throw std::runtime_error("pipe");
  }
  ~letter() {
    for (const int end : ends_) ::close(end);
  }
  letter(const letter&) = delete;
  letter& operator=(const letter&) = delete;
  std::function<void(const std::string&)> sender(int copies = 1) const {
    return [=, out = ends_[1]](const std::string& invitation) {
      if (invitation.size() != length) throw std::runtime_error("an invitation of another length");
      for (int i = 0; i < copies; ++i)
        if (::write(out, invitation.data(), length) != static_cast<ssize_t>(length)) throw std::runtime_error("write");
    };
  }
  /// The process that was to write it may be killed before.
  std::string wait(std::chrono::seconds most = 40s) const {
    std::string invitation(length, ' ');
    for (std::size_t got = 0; got < length;) {
      pollfd there{ends_[0], POLLIN, 0};
      if (::poll(&there, 1, static_cast<int>(std::chrono::milliseconds{most}.count())) != 1)
        throw std::runtime_error("no invitation came");
      const ssize_t more = ::read(ends_[0], invitation.data() + got, length - got);
      if (more <= 0) throw std::runtime_error("read");
      got += static_cast<std::size_t>(more);
    }
    return invitation;
  }

private:
  static constexpr std::size_t length = 5 + 256;
  std::array<int, 2> ends_{};
};

troupe::engine_options quiet() {
  troupe::engine_options o;
  o.log_level = "off";
  return o;
}

/// Of a job of fewer processes than the test has.
troupe::join_options one_of(const member& m, int processes) {
  troupe::join_options how = m.how();
  how.processes = processes;
  return how;
}

/// "0 1 4 ": who the ranks are, by the number that each says of itself; after some work that must be right.
std::string ranks_of(communicator& comm, int mine) {
  const long n = comm.size();
  for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{300'000}}) {
    std::vector<long> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = comm.rank() + static_cast<long>(i);
    comm.all_reduce(data, troupe::sum);
    for (std::size_t i = 0; i < count; ++i)
      if (data[i] != n * (n - 1) / 2 + n * static_cast<long>(i)) throw std::runtime_error("a wrong sum");
  }
  std::vector<int> all(static_cast<std::size_t>(n));
  comm.all_gather(std::array{mine}, all);
  std::string text;
  for (const int r : all) text += std::to_string(r) + " ";
  return text;
}

/// "timed_out: …"
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const troupe::error& e) {
    return e.code().message() + ": " + e.what();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Works until somebody is lost, and shrinks.
communicator lose_somebody(communicator comm) {
  try {
    for (;;) comm.barrier();
  } catch (const troupe::error& e) {
    if (e.code_value() != errc::peer_lost) throw;
    return comm.shrink({.deadline = 20s});
  }
}

std::string last_line(const ended& e) { return e.said.empty() ? "nothing; it wrote: " + e.log : e.said.back(); }

}  // namespace

TEST_CASE("new processes take the places of those that were killed, one after the other") {
  for (const std::size_t first : {std::size_t{0}, std::size_t{2}}) {
    CAPTURE(first);
    const letter to_first, to_second;
    const auto all = run_processes(
        5,
        [&](const member& m) {
          troupe::engine engine(quiet());
          communicator comm;
          if (m.process < 3) {
            comm = engine.join(one_of(m, 3));
            m.say("joined");
            comm = lose_somebody(std::move(comm)).grow(1, {.invite = to_first.sender()});
          } else {
            comm = engine.join({.rendezvous = (m.process == 3 ? to_first : to_second).wait()});
          }
          if (comm.name() != "grown") throw std::runtime_error(comm.name());
          if (m.process != 4) {
            m.say(ranks_of(comm, m.process));
            comm = lose_somebody(std::move(comm)).grow(1, {.invite = to_second.sender()});
          }
          m.say(ranks_of(comm, m.process));
        },
        [&](job_control& job) {
          job.wait_for_lines(3);
          ::kill(job.pids[first], SIGKILL);
          job.wait_for_lines(6);
          ::kill(job.pids[1], SIGKILL);
        });
    const std::size_t rest = 2 - first;
    for (const std::size_t p : {rest, std::size_t{3}, std::size_t{4}}) {
      CAPTURE(p);
      CHECK(all[p].exit == 0);
      CHECK(last_line(all[p]) == std::to_string(rest) + " 3 4 ");
    }
  }
}

TEST_CASE("threads of processes grow together, and keep their order whatever it is") {
  const letter to_new;
  const auto all = run_processes(4, [&](const member& m) {
    troupe::engine engine(quiet());
    const auto say = [&](communicator& comm, int mine) { m.say(ranks_of(comm, mine)); };
    if (m.process < 2)
      engine.join(
          3,
          [&](communicator& world) {
            const int mine = world.rank();
            communicator mixed = world.split(0, (mine * 2) % 5);  // 0 5 3 1 4 2
            communicator grown = mixed.grow(2, {.invite = to_new.sender(2)});
            say(grown, mine);
            // All in one process, and so on its boards.
            communicator mates = grown.split(m.process, mine);
            if (mates.size() != 3) throw std::runtime_error("others");
            mates.barrier();
          },
          one_of(m, 2));
    else
      engine.join(2,
                  [&](communicator& grown) {
                    say(grown, grown.rank());
                    grown.split(m.process, 0).barrier();
                  },
                  {.rendezvous = to_new.wait(), .process = m.process - 2, .processes = 2});
  });
  CHECK(trouble(all) == "");
  for (const ended& e : all)
    for (const std::string& line : e.said) CHECK(line == "0 5 3 1 4 2 6 7 8 9 ");
}

TEST_CASE("a program of one process grows, and again when the first new ones have ended") {
  const letter to_first, to_second;
  const auto all = run_processes(3, [&](const member& m) {
    troupe::engine engine(quiet());
    if (m.process > 0) {
      communicator comm = engine.join({.rendezvous = (m.process == 1 ? to_first : to_second).wait()});
      return m.say(ranks_of(comm, m.process + 1));
    }
    engine.run(2, [&](communicator& comm) {
      for (const letter* to : {&to_first, &to_second}) {
        communicator grown = comm.grow(1, {.invite = to->sender()});
        m.say(ranks_of(grown, comm.rank()));
      }
      comm.barrier();
    });
  });
  CHECK(trouble(all) == "");
  CHECK(last_line(all[1]) == "0 1 2 ");
  CHECK(last_line(all[2]) == "0 1 3 ");
  CHECK(all[0].said.size() == 4);
}

TEST_CASE("what a job grew to is given back by the grows that follow") {
  constexpr int rounds = 16;
  const letter to_new;
  const auto entries = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator{folder}, std::filesystem::directory_iterator{});
  };
  const auto all = run_processes(1 + rounds, [&](const member& m) {
    troupe::engine engine(quiet());
    if (m.process > 0) {
      communicator comm = engine.join({.rendezvous = to_new.wait()});
      return comm.barrier();
    }
    std::ptrdiff_t threads = 0, descriptors = 0;
    engine.run(1, [&](communicator& comm) {
      for (int round = 1; round <= rounds; ++round) {
        comm.grow(1, {.invite = to_new.sender()}).barrier();
        ::usleep(50'000);  // the other one leaves
        if (round == rounds / 2) {
          threads = entries("/proc/self/task");
          descriptors = entries("/proc/self/fd");
        }
      }
    });
    m.say(std::to_string(threads) + " threads, then " + std::to_string(entries("/proc/self/task")));
    m.say(std::to_string(descriptors) + " descriptors, then " + std::to_string(entries("/proc/self/fd")));
    // Of the last one or two something may be left.
    if (entries("/proc/self/task") > threads + 12 || entries("/proc/self/fd") > descriptors + 24)
      throw std::runtime_error("they add up");
  });
  CHECK(trouble(all) == "");
  for (const std::string& line : all[0].said) MESSAGE(line);
}

TEST_CASE("a grow names who has not come, and what was there goes on, and may try again") {
  const letter to_new;
  const auto all = run_processes(4, [&](const member& m) {
    troupe::engine engine(quiet());
    if (m.process == 3) {
      communicator comm = engine.join({.rendezvous = to_new.wait()});
      return m.say(ranks_of(comm, 3));
    }
    communicator comm = engine.join(one_of(m, 3));
    std::string lost_letter;
    m.say(error_of([&] {
      comm.grow(
          2, {.invite = [&](const std::string& s) { lost_letter = s; }, .deadline = m.process == 1 ? 700ms : 20'000ms});
    }));
    comm.barrier();
    if (m.process == 0)  // whoever comes late is told, and does not wait
      m.say(error_of([&] { troupe::engine{quiet()}.join({.rendezvous = lost_letter, .process = 0, .processes = 2}); }));
    comm = comm.grow(1, {.invite = to_new.sender()});
    m.say(ranks_of(comm, m.process));
  });
  CHECK(trouble(all) == "");
  for (std::size_t p = 0; p < 3; ++p) {
    REQUIRE(all[p].said.size() >= 2);
    CHECK_MESSAGE(says(all[p].said[0], "world: grow: "), all[p].said[0]);
    CHECK_MESSAGE(says(all[p].said[0], "process 1 of 5 waited in vain"), all[p].said[0]);
    CHECK_MESSAGE(says(all[p].said[0], "new processes 0, 1 have not come"), all[p].said[0]);
  }
  for (const ended& e : all) CHECK(last_line(e) == "0 1 2 3 ");
  const std::string& late = all[0].said[1];
  CHECK_MESSAGE((says(late, "nobody serves at") || says(late, "the job does not grow")), late);
}

TEST_CASE("one rank's cancel ends the grow on all, also at those who have come") {
  for (const int canceller : {0, 1}) {
    CAPTURE(canceller);
    const letter to_new;
    const auto all = run_processes(3, [&](const member& m) {
      troupe::engine engine(quiet());
      if (m.process == 2) {
        m.say(error_of([&] { engine.join({.rendezvous = to_new.wait(), .process = 0, .processes = 2}); }));
        return;
      }
      communicator comm = engine.join(one_of(m, 2));
      std::atomic<bool> cancel{false};
      std::thread later([&] {
        ::usleep(300'000);
        if (m.process == canceller) cancel.store(true);
      });
      m.say(error_of([&] { comm.grow(2, {.invite = to_new.sender(), .cancel = &cancel}); }));
      later.join();
      m.say(ranks_of(comm, m.process));
    });
    CHECK(trouble(all) == "");
    for (std::size_t p = 0; p < 2; ++p) {
      CHECK_MESSAGE(says(all[p].said.front(), "cancelled: world: grow: "), all[p].said.front());
      CHECK(last_line(all[p]) == "0 1 ");
    }
    const std::string who = "rank " + std::to_string(canceller) + ": ";
    CHECK_MESSAGE(says(all[static_cast<std::size_t>(1 - canceller)].said.front(), who), last_line(all[0]));
    CHECK_MESSAGE(says(last_line(all[2]), "the job does not grow: "), last_line(all[2]));
  }
}

TEST_CASE("a process that dies while a job grows ends that for all; those who are left grow without it") {
  for (const std::size_t victim : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    CAPTURE(victim);
    const letter to_early, to_new;
    const auto all = run_processes(
        5,
        [&](const member& m) {
          troupe::engine engine(quiet());
          if (m.process == 3) {  // comes, and waits for another new one, who does not
            m.say("comes");
            m.say(error_of([&] { engine.join({.rendezvous = to_early.wait(), .process = 0, .processes = 2}); }));
            return;
          }
          if (m.process == 4) {
            communicator comm = engine.join({.rendezvous = to_new.wait()});
            return m.say(ranks_of(comm, m.process));
          }
          communicator comm = engine.join(one_of(m, 3));
          m.say("grows");
          m.say(error_of([&] { comm.grow(2, {.invite = to_early.sender()}); }));
          comm = comm.shrink().grow(1, {.invite = to_new.sender()});
          m.say(ranks_of(comm, m.process));
        },
        [&](job_control& job) {
          job.wait_for_lines(4);
          ::usleep(300'000);
          ::kill(job.pids[victim], SIGKILL);
        });
    std::string expected;
    for (std::size_t p = 0; p < 3; ++p) {
      if (p == victim) continue;
      expected += std::to_string(p) + " ";
      REQUIRE(all[p].said.size() >= 2);
      CHECK_MESSAGE(says(all[p].said[1], "another process was lost: world: grow: "), all[p].said[1]);
    }
    expected += "4 ";
    for (std::size_t p = 0; p < 5; ++p)
      if (p != victim && p != 3) CHECK(last_line(all[p]) == expected);
    CHECK(all[3].exit == 0);
    CHECK_MESSAGE((says(last_line(all[3]), "nobody serves at") || says(last_line(all[3]), "the job does not grow")),
                  last_line(all[3]));
  }
}

TEST_CASE("whoever is killed at whatever moment of a grow, nobody waits for ever") {
  troupe::simulate::dice dice(seed());
  for (int round = 0; round < 8; ++round) {
    CAPTURE(round);
    const std::size_t victim = dice.index(4);
    const auto wait_us = static_cast<useconds_t>(dice.below(60'000));
    const letter to_new;
    const auto all = run_processes(
        4,
        [&](const member& m) {
          troupe::engine engine(quiet());
          communicator comm;
          const auto until_lost = [&] {
            return error_of([&] {
              for (;;) comm.barrier();
            });
          };
          if (m.process == 3) {
            m.say("comes");
            const std::string why =
                error_of([&] { comm = engine.join({.rendezvous = to_new.wait(5s), .deadline = 20s}); });
            return m.say(comm ? until_lost() : why);
          }
          comm = engine.join(one_of(m, 3));
          m.say("grows");
          m.say(error_of([&] { comm = comm.grow(1, {.invite = to_new.sender(), .deadline = 2s}); }));
          // If only the new one was lost, there is nothing wrong with what was there before.
          if (comm.size() == 4 || victim != 3) m.say(until_lost());
        },
        [&](job_control& job) {
          job.wait_for_lines(4);
          ::usleep(wait_us);
          ::kill(job.pids[victim], SIGKILL);
        });
    for (std::size_t p = 0; p < 4; ++p) {
      CAPTURE(p);
      CAPTURE(last_line(all[p]));
      CHECK_FALSE(all[p].late);
      if (p != victim) CHECK(all[p].exit == 0);
    }
    // The old ranks all have grown, or none of them has.
    std::vector<bool> grown;
    for (std::size_t p = 0; p < 3; ++p)
      if (p != victim && all[p].said.size() > 1) grown.push_back(all[p].said[1] == "no error");
    CHECK(std::ranges::count(grown, true) % std::ssize(grown) == 0);
  }
}

TEST_CASE("who has not the invitation's key does not get in, and keeps nobody out") {
  const letter to_stranger, to_new;
  const auto all = run_processes(4, [&](const member& m) {
    troupe::engine engine(quiet());
    if (m.process == 2) {
      const std::string invitation = to_stranger.wait();
      const troupe::meeting where = troupe::meeting_of_invitation(invitation);
      troupe::join_options how{.rendezvous = where.rendezvous.substr(0, where.rendezvous.find(',')),
                               .process = 2,
                               .processes = 3,
                               .key = std::string(64, 'a'),
                               .deadline = 5s};
      m.say(error_of([&] { engine.join(how); }));
      to_new.sender()(invitation);
      return;
    }
    if (m.process == 3) {
      std::string invitation = to_new.wait();
      invitation[40] = invitation[40] == '0' ? '1' : '0';  // in its key
      m.say(error_of([&] { engine.join({.rendezvous = invitation}); }));
      m.say(error_of([&] { engine.join({.rendezvous = invitation.substr(0, 100)}); }));
      invitation[40] = invitation[40] == '0' ? '1' : '0';
      return m.say("another digit");
    }
    communicator comm = engine.join(one_of(m, 2));
    m.say(error_of([&] { comm.grow(1, {.invite = to_stranger.sender(), .deadline = 3s}); }));
  });
  CHECK(trouble(all) == "");
  CHECK_MESSAGE(says(all[2].said.front(), "refused this process"), all[2].said.front());
  for (std::size_t i = 0; i < 2; ++i) CHECK_MESSAGE(says(all[3].said[i], "this is no invitation"), all[3].said[i]);
  for (std::size_t p = 0; p < 2; ++p)
    CHECK_MESSAGE(says(last_line(all[p]), "new process 0 has not come"), last_line(all[p]));
}

TEST_CASE("what cannot grow, or not so, is refused on all ranks with a sentence") {
  const letter to_other;
  const auto all = run_processes(3, [&](const member& m) {
    if (m.process == 2) {
      troupe::engine_options options = quiet();
      options.credits = 4;
      troupe::engine engine(options);
      const std::string invitation = to_other.wait();
      m.say(error_of([&] { engine.join({.rendezvous = invitation, .process = 0, .processes = 2}); }));
      return m.say(error_of([&] { engine.join({.rendezvous = invitation}); }));
    }
    troupe::engine engine(quiet());
    communicator comm = engine.join(one_of(m, 2));
    const auto nobody = [](const std::string&) {};
    m.say(error_of([&] { comm.grow(m.process == 1 ? 0 : 1, {.invite = nobody}); }));
    m.say(error_of([&] { comm.grow(m.process == 1 ? 2 : 1, {.invite = nobody}); }));
    m.say(error_of([&] { comm.grow(1, {}); }));
    m.say(
        error_of([&] { comm.grow(1, {.invite = [](const std::string&) { throw std::runtime_error("no paper"); }}); }));
    m.say(error_of([&] { comm.grow(1, {.invite = nobody, .listen = "unix:@somewhere"}); }));
    m.say(error_of([&] { comm.grow(1, {.invite = to_other.sender()}); }));
    comm.barrier();
    if (m.process == 1) comm.revoke("enough");
    m.say(error_of([&] { comm.grow(1, {.invite = nobody}); }));
  });
  CHECK(trouble(all) == "");
  const std::array<std::array<std::string, 2>, 7> expected{{
      {"rank 1: 0 new processes; there can be 1", "0 new processes; there can be 1"},
      {"rank 1: rank 0 grows by 1 processes, and rank 1 by 2", "rank 0 grows by 1 processes, and rank 1 by 2"},
      {"rank 0 has nobody to give the invitation to", "rank 0: rank 0 has nobody to give the invitation to"},
      {"no paper", "rank 0: its invite threw: no paper"},
      {"does not fit into an id", "does not fit into an id"},
      {"the engine options of processes 0 and 2 differ: \"credits = 8\" and \"credits = 4\"", "differ"},
      {"shrink it, and let grow what is left (world was revoked by rank 1: enough)", "(world was revoked by rank 1"},
  }};
  for (std::size_t p = 0; p < 2; ++p) {
    REQUIRE(all[p].said.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK_MESSAGE(says(all[p].said[i], expected[i][p]), all[p].said[i]);
  }
  CHECK_MESSAGE(says(all[2].said[0], "the invitation is for 1 new process, but this one is said to be one of 2"),
                all[2].said[0]);
  CHECK_MESSAGE(says(all[2].said[1], "differ"), all[2].said[1]);
}

TEST_CASE("an engine that ends takes what its communicators grew to along, and a grow under way") {
  const letter to_new;
  const auto all = run_processes(3, [&](const member& m) {
    if (m.process == 2) {
      troupe::engine engine(quiet());
      communicator comm = engine.join({.rendezvous = to_new.wait()});
      m.say(ranks_of(comm, 2));
      return m.say(error_of([&] {
        for (;;) comm.barrier();
      }));
    }
    communicator grown;
    {
      auto engine = std::make_unique<troupe::engine>(quiet());
      communicator comm = engine->join(one_of(m, 2));
      grown = comm.grow(1, {.invite = to_new.sender()});
      m.say(ranks_of(grown, m.process));
      std::thread end([&] {
        ::usleep(300'000);
        if (m.process == 1) engine.reset();
      });
      m.say(error_of([&] { comm.grow(1, {.invite = [](const std::string&) {}}); }));
      end.join();
    }
    m.say(error_of([&] { grown.barrier(); }));
  });
  CHECK(trouble(all) == "");
  for (std::size_t p = 0; p < 2; ++p) {
    REQUIRE(all[p].said.size() == 3);
    CHECK(all[p].said[0] == "0 1 2 ");
    CHECK_MESSAGE(says(all[p].said[1], "engine"), all[p].said[1]);
    CHECK_MESSAGE(says(all[p].said[2], "engine"), all[p].said[2]);
  }
  CHECK_MESSAGE(says(last_line(all[2]), "engine"), last_line(all[2]));
}
