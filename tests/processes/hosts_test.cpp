// SPDX-License-Identifier: Apache-2.0
// Hosts are network namespaces joined by a bridge. Needs root and ip(8); skipped with a message without.

#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "tests/processes/processes.hpp"
#include "tests/property/random_jobs.hpp"
#include "tests/seed.hpp"

using namespace engine_tests;
using namespace process_tests;
using troupe::communicator;

namespace {

bool system_does(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

/// Host h has the addresses 10.213.7.(h + 1) and fd13:7::(h + 1).
class hosts_of_test {
public:
  explicit hosts_of_test(int hosts) : hosts_(hosts), prefix_("tt" + std::to_string(::getpid() % 100000)) {
    ready_ = ::geteuid() == 0 && system_does("ip netns add " + bridge()) &&
             system_does(inside(bridge(), "ip link add name sw0 type bridge")) &&
             system_does(inside(bridge(), "ip link set dev sw0 up"));
    for (int h = 0; h < hosts && ready_; ++h) {
      const std::string n = std::to_string(h), at = std::to_string(h + 1), in_bridge = " -n " + bridge() + " ";
      ready_ =
          system_does("ip netns add " + name(h)) &&
          system_does("ip link add name e0 netns " + name(h) + " type veth peer name p" + n + " netns " + bridge()) &&
          system_does("ip" + in_bridge + "link set dev p" + n + " master sw0 up") &&
          system_does("ip -n " + name(h) + " addr add 10.213.7." + at + "/24 dev e0") &&
          system_does("ip -n " + name(h) + " addr add fd13:7::" + at + "/64 dev e0 nodad") &&
          system_does("ip -n " + name(h) + " link set dev e0 up") &&
          system_does("ip -n " + name(h) + " link set dev lo up");
    }
    if (!ready_) MESSAGE("skipped: network namespaces cannot be made here (root, and the package iproute2)");
  }
  ~hosts_of_test() {
    for (int h = 0; h < hosts_; ++h) system_does("ip netns del " + name(h));
    system_does("ip netns del " + bridge());
  }
  bool ready() const { return ready_; }
  /// The calling process is on that host from now on.
  void enter(int host) const {
    const int ns = ::open(("/run/netns/" + name(host)).c_str(), O_RDONLY | O_CLOEXEC);
    if (ns < 0 || ::setns(ns, CLONE_NEWNET) != 0) throw std::runtime_error("a host of the test cannot be entered");
    ::close(ns);
  }
  void link(int host, bool up) const {
    system_does("ip -n " + bridge() + " link set dev p" + std::to_string(host) + (up ? " up" : " down"));
  }

private:
  std::string name(int host) const { return prefix_ + "h" + std::to_string(host); }
  std::string bridge() const { return prefix_ + "b"; }
  static std::string inside(const std::string& where, const std::string& command) {
    return "ip netns exec " + where + " " + command;
  }
  int hosts_;
  std::string prefix_;
  bool ready_ = false;
};

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
  for (const shape s : {shape{2, 1, 1}, {2, 2, 1}, {2, 2, 2}, {4, 1, 1}}) {
    CAPTURE(s.hosts);
    CAPTURE(s.processes_each);
    CAPTURE(s.ranks_each);
    const hosts_of_test hosts{s.hosts};
    if (!hosts.ready()) return;
    const int processes = s.hosts * s.processes_each;
    const std::uint64_t drawn = seed() + static_cast<std::uint64_t>(10 * processes + s.ranks_each);
    const auto all = run_processes(processes, [&](const member& m) {
      hosts.enter(m.process / s.processes_each);
      troupe::engine engine;
      engine.join(
          s.ranks_each,
          [&](communicator& comm) {
            random_engine random(mix(drawn));
            for (int k = 0; k < 40; ++k) {
              job j = any_job(random, comm.size());
              j.options.choreography.clear();
              rank_memory memory(j, comm.rank());
              comm.run(memory.call());
              if (memory.wrong() != 0) throw std::runtime_error("wrong bytes: " + to_string(j));
            }
          },
          over_network(m, s.hosts == 4));
    });
    CHECK(trouble(all) == "");
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
