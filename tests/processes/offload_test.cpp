// SPDX-License-Identifier: Apache-2.0
// Collectives between the processes of a host, performed by the NIC of rank 0's, and between hosts (which are names that the processes give) by those of
// each host's first process. `test_processes_offloaded` runs other tests of this folder so, too.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/processes/all_collectives.hpp"
#include "tests/processes/processes.hpp"
#include "tests/property/random_jobs.hpp"
#include "tests/seed.hpp"

using namespace engine_tests;
using namespace process_tests;
using troupe::communicator;

namespace {

void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

troupe::engine_options offloading() {
  troupe::engine_options o;
  o.offload = "always";
  o.log_level = "debug";  // says what is offloaded
  return o;
}

troupe::join_options on_host(const member& m, int host) {
  troupe::join_options how = m.how();
  how.host = "host" + std::to_string(host);
  how.key = std::string(64, '8');
  return how;
}

/// Each of them was planned for the NIC, in every process.
void check_offloaded(const std::vector<ended>& all, const std::vector<std::string>& collectives) {
  for (const ended& e : all)
    for (const std::string& what : collectives) {
      CAPTURE(what);
      bool found = false;
      for (std::size_t at = 0; (at = e.log.find("] " + what + "(", at)) != std::string::npos; ++at)
        found = found || e.log.substr(at, e.log.find('\n', at) - at).find(": offloaded, ") != std::string::npos;
      CHECK_MESSAGE(found, e.log);
    }
}

std::vector<float> given(int rank, std::size_t count) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<float>(i % 97) * 0.37F + static_cast<float>(rank) * 1.1F;
  return all;
}

/// What a call gives on all ranks, in any memory.
template <class Allocator>
void call_all(communicator& comm, std::size_t count, std::vector<float>& results, const Allocator& memory) {
  const std::vector<float> values = given(comm.rank(), count);
  std::vector<float, Allocator> in(values.begin(), values.end(), memory), out(count, -1.F, memory);
  comm.all_reduce(in, out, troupe::sum);
  results.insert(results.end(), out.begin(), out.end());
  if (comm.rank() == 1) out.assign(in.begin(), in.end());
  comm.broadcast(out, 1);
  results.insert(results.end(), out.begin(), out.end());
  comm.all_reduce(in, troupe::maximum);  // in place
  results.insert(results.end(), in.begin(), in.end());
}

}  // namespace

TEST_CASE("the NIC of a process performs for two, on whatever memory they have, and every run gives the same bytes") {
  const auto all = run_processes(2, [](const member& m) {
    troupe::engine e{offloading()};
    communicator comm = e.join(m.how());
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'001}}) {
      std::vector<float> ordinary, again, shared;
      call_all(comm, count, ordinary, std::allocator<float>{});
      call_all(comm, count, again, std::allocator<float>{});
      call_all(comm, count, shared, std::pmr::polymorphic_allocator<float>{e.memory().get()});
      const auto same = [&](const std::vector<float>& a) {
        return a.size() == ordinary.size() && std::memcmp(a.data(), ordinary.data(), a.size() * sizeof(float)) == 0;
      };
      expect(same(again) && same(shared), "other bytes");
      const std::vector<float> a = given(0, count), b = given(1, count);
      for (std::size_t i = 0; i < count; ++i) {
        expect(ordinary[i] == a[i] + b[i], "the sum");
        expect(ordinary[count + i] == b[i], "the broadcast");
        expect(ordinary[2 * count + i] == std::max(a[i], b[i]), "the maximum");
      }
    }
  });
  CHECK(trouble(all) == "");
  check_offloaded(all, {"all_reduce", "broadcast"});
}

TEST_CASE(
    "every collective that a NIC can perform is right between processes of several ranks, started or waited for") {
  const std::uint64_t drawn = seed();
  std::vector<std::string> names{"all_gather_v", "reduce_scatter_v"};
  for (const collective what : all_collectives) names.emplace_back(troupe::name(what));
  const auto all = run_processes(3, [&](const member& m) {
    troupe::engine e{offloading()};
    e.join(
        2, [&](communicator& comm) { perform_all_collectives(comm, drawn); }, m.how());
  });
  CHECK(trouble(all) == "");
  check_offloaded(all, names);
}

TEST_CASE("every collective that NICs can perform is right between hosts, of one process and of several") {
  struct shape {
    int hosts, processes_each, ranks_each;
  };
  const std::uint64_t drawn = seed() + 5;
  std::vector<std::string> names{"all_gather_v", "reduce_scatter_v"};
  for (const collective what : all_collectives) names.emplace_back(troupe::name(what));
  for (const shape s : {shape{2, 1, 2}, {2, 2, 1}, {3, 1, 1}, {2, 2, 2}}) {
    CAPTURE(s.hosts);
    CAPTURE(s.processes_each);
    CAPTURE(s.ranks_each);
    const auto all = run_processes(s.hosts * s.processes_each, [&](const member& m) {
      troupe::engine e{offloading()};
      e.join(
          s.ranks_each, [&](communicator& comm) { perform_all_collectives(comm, drawn); },
          on_host(m, m.process / s.processes_each));
    });
    CHECK(trouble(all) == "");
    check_offloaded(all, names);
  }
}

TEST_CASE("ranks of hosts that take turns, or that have not as many each, are offloaded where each has one process") {
  for (const bool several : {false, true}) {
    CAPTURE(several);
    const auto all = run_processes(3, [&](const member& m) {
      troupe::engine e{offloading()};
      // Host 0 has processes 0 and 2; or three hosts of different size.
      e.join(
          several ? 1 : 1 + m.process, [&](communicator& comm) { perform_all_collectives(comm, seed()); },
          on_host(m, several ? m.process % 2 : m.process));
    });
    CHECK(trouble(all) == "");
    if (!several) check_offloaded(all, {"all_reduce", "broadcast", "all_to_all"});
    else CHECK(all[0].log.find("not as many on one as on the other") != std::string::npos);
  }
}

namespace {

/// Two large operations under way at any time, until somebody is lost; then those who are left go on, by the NIC of the first of them.
void work_until_somebody_is_lost(const member& m, bool shared, bool goes_on, int host = 0) {
  constexpr std::size_t count = std::size_t{1} << 19;
  troupe::engine_options o = offloading();
  o.log_level = "off";
  troupe::engine e{o};
  troupe::join_options how = on_host(m, host);
  how.silence = std::chrono::milliseconds{1000};
  communicator comm = e.join(how);
  const auto held = e.memory();
  std::pmr::memory_resource* const from = shared ? held.get() : std::pmr::new_delete_resource();
  std::array<std::pmr::vector<float>, 2> data{std::pmr::vector<float>(count, 1.F, from),
                                              std::pmr::vector<float>(count, 1.F, from)};
  m.say("joined");
  try {
    troupe::request under_way = comm.all_reduce_async(data[1], troupe::maximum);
    for (int i = 0;; ++i) {
      troupe::request next = comm.all_reduce_async(data[static_cast<std::size_t>(i % 2)], troupe::maximum);
      under_way.wait();
      under_way = std::move(next);
    }
  } catch (const troupe::error& failed) {
    m.say((failed.code_value() == troupe::errc::peer_lost ? "peer_lost " : "another error ") +
          std::string{failed.what()});
  }
  if (!goes_on) return;
  communicator left = comm.shrink();
  int ranks = 1;
  left.all_reduce(ranks, troupe::sum);
  m.say(std::to_string(ranks) + " are left");
}

}  // namespace

TEST_CASE("a process that is killed, the NIC's or another one, ends the others' operations and nothing else") {
  for (const bool shared : {false, true})
    for (const int victim : {0, 2, 0, 1}) {
      CAPTURE(shared);
      CAPTURE(victim);
      const auto all = run_processes(
          3, [&](const member& m) { work_until_somebody_is_lost(m, shared, true); },
          [&](job_control& job) {
            job.wait_for_lines(3);
            ::usleep(20'000);  // at any moment of what they do
            ::kill(job.pids[static_cast<std::size_t>(victim)], SIGKILL);
          });
      for (int p = 0; p < 3; ++p) {
        const ended& one = all[static_cast<std::size_t>(p)];
        CAPTURE(p);
        CAPTURE(one.log);
        CHECK_FALSE(one.late);
        if (p == victim) {
          CHECK(one.signal == SIGKILL);
          continue;
        }
        CHECK(one.exit == 0);
        REQUIRE(one.said.size() == 3);
        CHECK_MESSAGE(one.said[1].find("peer_lost ") == 0, one.said[1]);
        CHECK_MESSAGE(one.said[1].find("process " + std::to_string(victim) + " (rank ") != std::string::npos,
                      one.said[1]);
        CHECK(one.said[2] == "2 are left");
      }
    }
}

TEST_CASE(
    "a process of a host that is killed ends the operations that NICs of several hosts perform, and nothing else") {
  for (const int processes : {3, 4}) {  // a host each; two hosts of two
    for (const int victim : {0, 1, 2}) {
      CAPTURE(processes);
      CAPTURE(victim);
      const auto all = run_processes(
          processes,
          [&](const member& m) {
            work_until_somebody_is_lost(m, victim == 1, true, processes == 4 ? m.process / 2 : m.process);
          },
          [&](job_control& job) {
            job.wait_for_lines(static_cast<std::size_t>(processes));
            ::usleep(20'000);
            ::kill(job.pids[static_cast<std::size_t>(victim)], SIGKILL);
          });
      for (int p = 0; p < processes; ++p) {
        const ended& one = all[static_cast<std::size_t>(p)];
        CAPTURE(p);
        CAPTURE(one.log);
        CHECK_FALSE(one.late);
        if (p == victim) continue;
        CHECK(one.exit == 0);
        REQUIRE(one.said.size() == 3);
        CHECK_MESSAGE(one.said[1].find("peer_lost ") == 0, one.said[1]);
        CHECK(one.said[2] == std::to_string(processes - 1) + " are left");
      }
    }
  }
}

TEST_CASE("a process whose NIC has others' memory, and is stopped, is ended: it must not go on where it was") {
  const auto all = run_processes(
      2, [&](const member& m) { work_until_somebody_is_lost(m, true, false); },
      [&](job_control& job) {
        job.wait_for_lines(2);
        ::usleep(20'000);
        ::kill(job.pids[0], SIGSTOP);
      });
  CHECK(all[0].signal == SIGKILL);
  CHECK_FALSE(all[0].late);
  CHECK(all[1].exit == 0);
  REQUIRE(all[1].said.size() == 2);
  CHECK_MESSAGE(all[1].said[1].find("peer_lost ") == 0, all[1].said[1]);
}

TEST_CASE("an operation that a process never calls ends by the other's deadline, whose memory is its own again") {
  for (const int late : {0, 1, 2, 3}) {
    CAPTURE(late);
    const bool apart = late >= 2;  // on two hosts
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    const auto all = run_processes(2, [&](const member& m) {
      troupe::engine e{offloading()};
      communicator comm = e.join(on_host(m, apart ? m.process : 0));
      std::vector<int> data(100'000, 1);
      const auto call = [&](std::chrono::milliseconds deadline) {
        try {
          comm.all_reduce(data, troupe::sum, {.deadline = deadline});
          return std::string{"well"};
        } catch (const troupe::error& failed) {
          return failed.code_value() == troupe::errc::timed_out ? std::string{"timed_out"} : std::string{failed.what()};
        }
      };
      char word = 0;
      if (m.process == late % 2) {
        expect(::read(pipe[0], &word, 1) == 1, "nothing was said");
        m.say(call(std::chrono::seconds{20}));
      } else {
        m.say(call(std::chrono::milliseconds{200}));
        expect(::write(pipe[1], &word, 1) == 1, "it cannot be said");
      }
      expect(data == std::vector<int>(100'000, 1), "it was performed");
      m.say(call(std::chrono::seconds{20}));
      expect(data == std::vector<int>(100'000, 2), "the next one");
    });
    CHECK(trouble(all) == "");
    for (const ended& one : all) CHECK(one.said == std::vector<std::string>{"timed_out", "well"});
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
}
