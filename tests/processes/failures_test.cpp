// SPDX-License-Identifier: Apache-2.0
// Processes that are killed, stopped, late, of another job, or no processes of ours at all.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "actors/ports/link/job_key.hpp"
#include "actors/ports/link/sockets.hpp"
#include "tests/processes/processes.hpp"
#include "tests/seed.hpp"

using namespace process_tests;
using troupe::communicator;
using troupe::errc;

namespace {

/// Says how the loop ended: "peer_lost 12 ms: …".
void work_until_somebody_is_lost(const member& m, const std::function<void(communicator&, int)>& step,
                                 std::chrono::milliseconds silence = std::chrono::milliseconds{3000}) {
  troupe::engine_options options;
  options.log_level = "off";
  troupe::engine engine(options);
  troupe::join_options how = m.how();
  how.silence = silence;
  communicator comm = engine.join(how);
  m.say("joined");
  for (int i = 0;; ++i) {
    try {
      step(comm, i);
    } catch (const troupe::error& e) {
      m.say((e.code_value() == errc::peer_lost ? "peer_lost " : "another error ") + std::string{e.what()});
      return;
    }
  }
}

/// @param in_parts of which not all have the victim: a rank that has lost it leaves, which ends the others' parts
void check_survivors(const std::vector<ended>& all, int victim, bool in_parts = false) {
  for (int p = 0; p < static_cast<int>(all.size()); ++p) {
    if (p == victim) continue;
    const ended& e = all[static_cast<std::size_t>(p)];
    CAPTURE(p);
    CAPTURE(e.log);
    CHECK_FALSE(e.late);
    CHECK(e.exit == 0);
    REQUIRE(e.said.size() >= 2);
    CHECK(e.said.back().find("peer_lost ") == 0);
    const bool named = e.said.back().find("process " + std::to_string(victim) + " (rank ") != std::string::npos;
    const bool follows = in_parts && (e.said.back().find("it left the job") != std::string::npos ||
                                      e.said.back().find("it has not got its part") != std::string::npos);
    CHECK_MESSAGE((named || follows), e.said.back());
  }
}

}  // namespace

TEST_CASE("a process that is killed is told to all survivors, whatever they were doing") {
  const std::vector<std::pair<const char*, std::function<void(communicator&, int)>>> works{
      {"small", [](communicator& comm, int) { comm.all_reduce(std::array<int, 2>{}, troupe::sum); }},
      {"large",
       [](communicator& comm, int) {
         static std::vector<float> data(1 << 20);
         comm.all_reduce(data, troupe::sum);
       }},
      {"splits", [](communicator& comm, int) { comm.split(comm.rank() % 2, 0).barrier(); }},
      {"ring",
       [](communicator& comm, int i) {
         const int n = comm.size(), got = i;
         int in = 0;
         comm.send_recv(std::span<const int>(&got, 1), (comm.rank() + 1) % n, std::span<int>(&in, 1),
                        (comm.rank() + n - 1) % n);
       }},
      {"ring of much", [](communicator& comm, int) {
         static std::vector<float> out(1 << 18), in(1 << 18);
         const int n = comm.size();
         comm.send_recv(out, (comm.rank() + 1) % n, in, (comm.rank() + n - 1) % n);
       }}};
  for (const auto& work : works)
    for (const int victim : {0, 2, 0, 2}) {
      const std::string name = work.first;
      const auto& step = work.second;
      CAPTURE(name);
      CAPTURE(victim);
      const auto all = run_processes(
          4, [&](const member& m) { work_until_somebody_is_lost(m, step); },
          [&](job_control& job) {
            job.wait_for_lines(4);
            ::usleep(20'000);
            ::kill(job.pids[static_cast<std::size_t>(victim)], SIGKILL);
          });
      check_survivors(all, victim, name == "splits");
      CHECK(all[static_cast<std::size_t>(victim)].signal == SIGKILL);
    }
}

TEST_CASE("a process that is stopped counts as lost after its silence, and hears so when it goes on") {
  const auto all = run_processes(
      3,
      [&](const member& m) {
        work_until_somebody_is_lost(
            m, [](communicator& comm, int) { comm.barrier(); }, std::chrono::milliseconds{1000});
      },
      [&](job_control& job) {
        job.wait_for_lines(3);
        ::kill(job.pids[1], SIGSTOP);
        job.wait_for_lines(5);
        ::kill(job.pids[1], SIGCONT);
      });
  check_survivors(all, 1);
  CHECK_FALSE(all[1].late);
  CHECK(all[1].exit == 0);
  REQUIRE(all[1].said.size() == 2);
  CHECK(all[1].said[1].find("peer_lost ") == 0);
}

TEST_CASE("a join that cannot be says who is missing, who came twice, and what differs") {
  const auto error_of = [](const member& m, troupe::engine_options options, const troupe::join_options& how) {
    try {
      troupe::engine engine(std::move(options));
      static_cast<void>(engine.join(how));
      m.say("joined");
    } catch (const troupe::error& e) {
      m.say(std::string{e.what()});
    }
  };
  SUBCASE("missing") {
    const auto all = run_processes(2, [&](const member& m) {
      troupe::join_options how = m.how();
      how.processes = 4;
      how.deadline = std::chrono::milliseconds{m.process == 0 ? 1500 : 4000};  // who gives up is missing, too
      error_of(m, {}, how);
    });
    for (const ended& e : all) {
      REQUIRE(e.said.size() == 1);
      CHECK_MESSAGE(e.said[0].find("processes 2, 3 have not come") != std::string::npos, e.said[0]);
    }
  }
  SUBCASE("gone again") {
    const auto all = run_processes(
        3,
        [&](const member& m) {
          troupe::join_options how = m.how();
          how.processes = 4;
          std::atomic<bool> cancel{false};
          how.cancel = &cancel;
          std::thread soon([&] {
            if (m.process == 2) ::sleep(2), cancel.store(true);
          });
          error_of(m, {}, how);
          soon.join();
        },
        {}, std::chrono::seconds{20});  // the join's own deadline is longer
    CHECK(all[2].said.at(0) == "the join was cancelled");
    for (const std::size_t p : {0u, 1u}) {
      CHECK_FALSE(all[p].late);
      const std::string& said = all[p].said.at(0);
      CHECK_MESSAGE(said.find("process 3 has not come") != said.npos, said);
      const bool named = said.find("process 2 (pid ") != said.npos && said.find("had come, and has gone") != said.npos;
      CHECK_MESSAGE((named || said.find("nobody serves") != said.npos), said);
    }
  }
  SUBCASE("nobody serves any more") {
    const auto all = run_processes(
        2,
        [&](const member& m) {
          troupe::join_options how = m.how();
          how.processes = 3;
          if (m.process == 0) how.deadline = std::chrono::milliseconds{1500};
          error_of(m, {}, how);
        },
        {}, std::chrono::seconds{20});
    CHECK_FALSE(all[1].late);
    CHECK_MESSAGE(all[1].said.at(0).find("process 2 has not come") != std::string::npos, all[1].said.at(0));
  }
  SUBCASE("somebody else listens") {
    const auto all = run_processes(1, [&](const member& m) {
      using namespace troupe::actors;
      const descriptor mute = listen_at(socket_address::resolve("tcp://127.0.0.1:0").front());
      troupe::join_options how = m.how();
      how.rendezvous = socket_address::own(mute.get()).to_string();
      how.processes = 2;
      how.deadline = std::chrono::milliseconds{500};
      error_of(m, {}, how);
    });
    for (const char* const part : {"it may be another program", "could not serve it itself: ", "ddress already in use"})
      CHECK_MESSAGE(all[0].said.at(0).find(part) != std::string::npos, all[0].said.at(0));
  }
  SUBCASE("nobody serves") {
    const auto all = run_processes(1, [&](const member& m) {
      troupe::join_options how = m.how();
      how.process = 1;
      how.processes = 2;
      how.deadline = std::chrono::milliseconds{200};
      error_of(m, {}, how);
    });
    REQUIRE(all[0].said.size() == 1);
    CHECK(all[0].said[0].find("found no rendezvous at unix:@troupe-test") != std::string::npos);
  }
  SUBCASE("twice") {
    const auto all = run_processes(2, [&](const member& m) {
      troupe::join_options how = m.how();
      how.process = 0;
      how.deadline = std::chrono::milliseconds{2000};
      error_of(m, {}, how);
    });
    const std::string both = all[0].said.at(0) + all[1].said.at(0);
    CHECK(both.find("there is a process 0 already: pid ") != std::string::npos);
    CHECK(both.find("process 1 has not come") != std::string::npos);
  }
  SUBCASE("other options") {
    const auto all = run_processes(2, [&](const member& m) {
      troupe::engine_options options;
      options.credits = m.process == 0 ? 8 : 4;
      error_of(m, options, m.how());
    });
    for (const ended& e : all) CHECK(e.said.at(0).find("\"credits = 8\" and \"credits = 4\"") != std::string::npos);
  }
  SUBCASE("another key") {
    const auto all = run_processes(2, [&](const member& m) {
      troupe::join_options how = m.how();
      how.key = std::string(64, m.process == 0 ? 'a' : 'b');
      how.deadline = std::chrono::milliseconds{2000};
      error_of(m, {}, how);
    });
    for (const char* const part : {"process 1 has not come; turned away was ", "as one with another key does"})
      CHECK_MESSAGE(all[0].said.at(0).find(part) != std::string::npos, all[0].said.at(0));
    CHECK(all[1].said.at(0).find("key") != std::string::npos);
  }
  SUBCASE("cancelled") {
    const auto all = run_processes(1, [&](const member& m) {
      std::atomic<bool> cancel{false};
      troupe::join_options how = m.how();
      how.processes = 2;
      how.cancel = &cancel;
      std::thread soon([&] {
        ::usleep(50'000);
        cancel.store(true);
      });
      error_of(m, {}, how);
      soon.join();
    });
    CHECK(all[0].said.at(0) == "the join was cancelled");
  }
}

TEST_CASE("strangers do not disturb a job") {
  const auto all = run_processes(
      2,
      [&](const member& m) {
        troupe::engine engine;
        troupe::join_options how = m.how();
        how.rendezvous = "tcp://127.0.0.1:" + std::to_string(20000 + std::hash<std::string>{}(m.rendezvous) % 10000);
        how.key = std::string(64, 'c');
        communicator comm = engine.join(how);
        m.say("joined " + how.rendezvous);
        std::vector<float> data(1000, 1.f);
        for (int i = 0; i < 3000; ++i) comm.all_reduce(data, troupe::average);
        if (data[0] != 1.f) throw std::runtime_error("wrong bytes");
      },
      [&](job_control& job) {
        job.wait_for_lines(2);
        // Every listening socket of the job, as the system lists them.
        std::vector<std::string> doors;
        std::FILE* const list = ::fopen("/proc/net/tcp", "r");
        REQUIRE(list != nullptr);
        for (std::array<char, 512> line{}; std::fgets(line.data(), line.size(), list) != nullptr;) {
          unsigned port = 0, state = 0;
          if (std::sscanf(line.data(), " %*d: 0100007F:%X %*8X:%*4X %X", &port, &state) == 2 && state == 0x0A)
            doors.push_back("tcp://127.0.0.1:" + std::to_string(port));
        }
        std::fclose(list);
        std::vector<troupe::actors::descriptor> held;
        for (int round = 0; round < 30; ++round)
          for (const std::string& at : doors) {
            auto s = troupe::actors::begin_connect(troupe::actors::socket_address::resolve(at).front());
            ::usleep(200);
            std::array<char, 200> garbage{};
            for (std::size_t i = 0; i < garbage.size(); ++i)
              garbage[i] = static_cast<char>(i * 37 + static_cast<std::size_t>(round));
            if (round % 3 == 1) std::copy_n("TROUPE\r\n\x01\x01\x08", 11, garbage.begin());
            if (round % 3 != 2) ::send(s.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            held.push_back(std::move(s));  // some stay, and say nothing
          }
      });
  CHECK(trouble(all) == "");
}

TEST_CASE("processes leave in any order, and the last one's engine waits for nobody for ever") {
  for (const int first : {0, 1, 2}) {
    CAPTURE(first);
    const auto all = run_processes(3, [&](const member& m) {
      troupe::engine engine;
      communicator comm = engine.join(m.how());
      communicator part = comm.split(comm.rank() == first ? 1 : 0, 0);
      comm = {};
      if (m.process == first) return;
      std::vector<int> data(100, 1);
      for (int i = 0; i < 200; ++i) part.all_reduce(data, troupe::maximum);
    });
    CHECK(trouble(all) == "");
    for (const ended& e : all) CHECK(e.log == "");
  }
}

TEST_CASE("an engine ends though communicators of its job are still held") {
  for (const int holder : {0, 1}) {
    CAPTURE(holder);
    const auto all = run_processes(
        2,
        [&](const member& m) {
          communicator comm;
          {
            troupe::engine engine;
            comm = engine.join(m.how());
            comm.barrier();
            if (m.process != holder) comm = {};
          }
          if (!comm) return;
          std::vector<int> data(10);
          errc code = errc::ok;
          try {
            comm.all_reduce(data, troupe::sum);
          } catch (const troupe::error& e) {
            code = e.code_value();
          }
          if (code != errc::engine_closed) throw std::runtime_error("a call after the engine's end");
        },
        {}, std::chrono::seconds{20});
    CHECK(trouble(all) == "");
  }
}

TEST_CASE("whoever connects to a rendezvous and goes disturbs nobody who enrols") {
  const auto all = run_processes(
      8,
      [&](const member& m) {
        troupe::engine engine;
        troupe::join_options how = m.how();
        how.key = std::string(64, 'd');
        if (m.process % 2 == 1) ::usleep(50'000);
        communicator comm = engine.join(how);
        comm.barrier();
      },
      [&](job_control& job) {
        const auto at = troupe::actors::socket_address::resolve(job.rendezvous).front();
        std::vector<troupe::actors::descriptor> held;
        for (int i = 0; i < 400; ++i) {
          try {
            held.push_back(troupe::actors::begin_connect(at));
          } catch (const troupe::error&) {}  // it is not there yet, or any more
          if (i % 3 == 0 && !held.empty()) held.erase(held.begin());
          ::usleep(250);
        }
      });
  CHECK(trouble(all) == "");
}
