// SPDX-License-Identifier: Apache-2.0
// Jobs over several hosts, and links that go down.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/certificates.hpp"
#include "tests/processes/hosts.hpp"
#include "tests/processes/processes.hpp"
#include "tests/property/random_jobs.hpp"
#include "tests/seed.hpp"

using namespace engine_tests;
using namespace process_tests;
using troupe::communicator;

namespace {

troupe::join_options over_network(const member& m, bool v6 = false) {
  troupe::join_options how = m.how();
  how.rendezvous = v6 ? "tcp://[fd13:7::1]:5600" : "tcp://10.213.7.1:5600";
  how.key = std::string(64, '7');
  return how;
}

}  // namespace

TEST_CASE("random collectives between hosts are right to the last byte") {
  struct shape {
    int hosts, processes_each, ranks_each;
  };
  std::vector<shape> all_shapes;
  for (const int h : {1, 2, 4})
    for (const int p : {1, 2, 4})
      for (const int r : {1, 2}) all_shapes.push_back({h, p, r});
  for (const shape s : all_shapes) {
    CAPTURE(s.hosts);
    CAPTURE(s.processes_each);
    CAPTURE(s.ranks_each);
    const hosts_of_test hosts{s.hosts};
    if (!hosts.ready()) return;
    const int processes = s.hosts * s.processes_each, jobs = processes * s.ranks_each <= 8 ? 20 : 6;
    const std::uint64_t drawn = seed() + static_cast<std::uint64_t>(10 * processes + s.ranks_each);
    const auto all = run_processes(processes, [&](const member& m) {
      hosts.enter(m.process / s.processes_each);
      troupe::engine engine;
      engine.join(
          s.ranks_each, [&](communicator& comm) { run_any_jobs(comm, drawn, jobs); }, over_network(m, s.hosts == 4));
    });
    CHECK(trouble(all) == "");
  }
}

TEST_CASE(
    "long messages between hosts go over several connections, with TLS and without, and are right to the last byte") {
  certificate_tests::authority all_of_job{"an authority"};
  const troupe::actors::tls_identity::files who = all_of_job.issue("one");
  for (const bool tls : {false, true}) {
    CAPTURE(tls);
    const hosts_of_test hosts{2};
    if (!hosts.ready()) return;
    const std::uint64_t drawn = seed() + 77;
    const auto all = run_processes(2, [&](const member& m) {
      hosts.enter(m.process);
      troupe::engine_options options;
      options.lanes = 4;
      options.log_level = "info";
      if (tls)
        options.tls_certificate = who.certificate, options.tls_key = who.key, options.tls_authority = who.authority;
      troupe::engine engine(options);
      communicator comm = engine.join(over_network(m));
      const auto mine = [](int rank, std::size_t i) {
        return static_cast<std::int64_t>(i * 3 + i / 1000) * (rank + 1);
      };
      constexpr std::size_t count = 2 * 1024 * 1024;  // 16 MiB
      std::vector<std::int64_t> data(count), sum(count), got(count);
      for (std::size_t i = 0; i < count; ++i) data[i] = mine(comm.rank(), i);
      for (int round = 0; round < 3; ++round) {
        std::fill(sum.begin(), sum.end(), -1);
        comm.all_reduce(data, sum, troupe::sum);
        std::fill(got.begin(), got.end(), -1);
        const int other = 1 - comm.rank();
        auto sent = comm.send_async(data, other);
        comm.recv(got, other);
        sent.wait();
        for (std::size_t i = 0; i < count; ++i)
          if (sum[i] != 3 * mine(0, i) || got[i] != mine(other, i)) throw std::runtime_error("wrong bytes");
      }
      run_any_jobs(comm, drawn, 20);
    });
    CHECK(trouble(all) == "");
    for (const ended& e : all) {
      CAPTURE(e.log);
      CHECK(e.log.find("4 connections to process ") != e.log.npos);
    }
  }
}

TEST_CASE("a host whose link goes down is lost after its silence, on both sides") {
  const hosts_of_test hosts{2};
  if (!hosts.ready()) return;
  const auto all = run_processes(
      2,
      [&](const member& m) {
        hosts.enter(m.process);
        troupe::engine_options options;
        options.log_level = "off";
        troupe::engine engine(options);
        troupe::join_options how = over_network(m);
        how.silence = std::chrono::milliseconds{1000};
        communicator comm = engine.join(how);
        m.say("joined");
        try {
          for (;;) comm.barrier();
        } catch (const troupe::error& e) {
          m.say(e.code_value() == errc::peer_lost ? "peer_lost" : e.what());
        }
      },
      [&](job_control& job) {
        job.wait_for_lines(2);
        ::usleep(50'000);
        hosts.link(1, false);
      });
  for (const ended& e : all) {
    CAPTURE(e.log);
    CHECK_FALSE(e.late);
    CHECK(e.exit == 0);
    REQUIRE(e.said.size() == 2);
    CHECK(e.said[1] == "peer_lost");
  }
}

TEST_CASE("a link that goes down for less than the silence is noticed by nobody") {
  const hosts_of_test hosts{2};
  if (!hosts.ready()) return;
  const auto all = run_processes(
      2,
      [&](const member& m) {
        hosts.enter(m.process);
        troupe::engine engine;
        communicator comm = engine.join(over_network(m));
        m.say("joined");
        std::vector<float> data(100'000, 1.f);
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{2};
        for (bool on = true; on;) {
          comm.all_reduce(data, troupe::average);
          std::uint8_t more = std::chrono::steady_clock::now() < until ? 1 : 0;
          comm.broadcast(more, 0);
          on = more != 0;
        }
        if (data[7] != 1.f) throw std::runtime_error("wrong bytes");
      },
      [&](job_control& job) {
        job.wait_for_lines(2);
        hosts.link(1, false);
        ::usleep(300'000);
        hosts.link(1, true);
      });
  CHECK(trouble(all) == "");
}

TEST_CASE("a job over hosts needs a key") {
  const hosts_of_test hosts{1};
  if (!hosts.ready()) return;
  const auto all = run_processes(1, [&](const member& m) {
    hosts.enter(0);
    troupe::engine engine;
    troupe::join_options how = over_network(m);
    how.key.clear();
    try {
      static_cast<void>(engine.join(how));
    } catch (const troupe::error& e) {
      m.say(e.what());
    }
  });
  CHECK(all[0].said.at(0).find("needs a key") != std::string::npos);
}
