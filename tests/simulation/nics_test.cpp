// SPDX-License-Identifier: Apache-2.0
// Operations that simulated NICs perform, of one host and of several together.

#include <doctest/doctest.h>

#include "tests/simulation/scenarios.hpp"

using namespace simulation_test;

namespace {

/// Several all-reduces of a few packets each. @param of_host 0: all are on one
scenario offloading(int ranks, int of_host) {
  scenario s;
  s.ranks = ranks;
  s.of_host = of_host;
  s.nic = {64, 4, 1, 8'192};
  s.pairs_by_mailbox = s.parts_by_mailbox = of_host > 0;
  way how;
  how.port = port_kind::nic;
  how.choreography = choreography_named("ring");
  how.of_host = of_host;
  how.packet_bytes = s.nic.packet_bytes;
  for (int i = 0; i < 3; ++i) s.items.push_back(collective_item(i, collective::all_reduce, 127, how));
  return s;
}

/// The same in several processes of each host.
scenario in_processes(int ranks, int of_host, int processes, bool nicd, bool maps = false) {
  scenario s = offloading(ranks, of_host);
  s.nic.processes = processes;
  s.nic.nicd = nicd;
  s.nic.maps = maps;
  return s;
}

struct shape {
  int ranks, of_host;
};
constexpr std::array<shape, 3> shapes{{{3, 0}, {4, 2}, {3, 1}}};

const std::array<scenario, 5>& several() {
  static const std::array<scenario, 5> all{in_processes(4, 0, 2, false), in_processes(3, 0, 3, false, true),
                                           in_processes(3, 0, 3, true), in_processes(4, 0, 2, true, true),
                                           in_processes(4, 2, 2, false)};
  return all;
}

}  // namespace

TEST_CASE("nics: ranks of one host and of several have their results, whatever the schedule") {
  for (const shape& on : shapes) {
    CAPTURE(on.of_host);
    check_schedules(offloading(on.ranks, on.of_host), 200);
    const simulation_result r = told_run(offloading(on.ranks, on.of_host), 1);
    CHECK(r.performed == static_cast<std::uint64_t>(3 * on.ranks));
    CHECK(tells(r, "offloaded reaches rank"));
    CHECK_FALSE(tells(r, "chunk "));
  }
}

TEST_CASE(
    "nics: whatever happens to a rank at any moment, all have their memory back, and nothing touches it afterwards") {
  using kind = disturbance::kind;
  std::uint64_t failed = 0, let_go = 0;
  for (const shape& on : shapes)
    for (const kind what :
         {kind::kill, kind::abort, kind::cancel, kind::deadline, kind::leave, kind::refuse, kind::skip})
      for (const std::int64_t after : {0, 2'000, 5'000, 9'000, 20'000})
        for (const rank_t rank : {0, 1, 2}) {
          CAPTURE(on.of_host);
          const simulation_result r = check_disturbed(offloading(on.ranks, on.of_host), {what, rank, 1, after, 1, {}});
          failed += r.failed;
          let_go += tells(r, "nic_let_go reaches rank") ? 1 : 0;
        }
  CHECK(failed > 100);
  CHECK(let_go > 50);
}

TEST_CASE("nics: who posts another call is told so, and all hear the same") {
  for (const shape& on : shapes) {
    scenario s = offloading(on.ranks, on.of_host);
    disturbance x{disturbance::kind::other_call, 1, 1, 0, 1, {s.items[1]}};
    x.instead.front().what.count = 40;
    s.disturbances = {x};
    CAPTURE(on.of_host);
    check_schedules(s, 200);
    CHECK(tells(told_run(s, 1), "nic_differs reaches rank"));
  }
}

TEST_CASE("nics: with a host the NIC is lost that others wait for, and they have their memory back") {
  std::uint64_t lost = 0;
  scenario s = offloading(6, 2);
  s.lose_percent = 5;
  check_schedules(s, 400);
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const simulation_result r = told_run(s, seed);
    lost += tells(r, "fails: the connection to host") && tells(r, "nic_let_go reaches rank") ? 1 : 0;
  }
  CHECK(lost > 10);
}

TEST_CASE("nics: ranks of several processes have their results by one NIC, also by a process's of its own") {
  for (const scenario& s : several()) {
    CAPTURE(s.to_string());
    check_schedules(s, 200);
    const simulation_result r = told_run(s, 1);
    CHECK(r.performed == static_cast<std::uint64_t>(3 * s.ranks));
    CHECK(tells(r, "offloaded reaches rank"));
    CHECK_FALSE(tells(r, "chunk "));
  }
}

TEST_CASE("nics: whatever happens to a rank of another process, its NIC gives all memory back") {
  using kind = disturbance::kind;
  std::uint64_t failed = 0, let_go = 0;
  for (const scenario& s : several())
    for (const kind what : {kind::kill, kind::abort, kind::cancel, kind::deadline, kind::leave, kind::refuse})
      for (const std::int64_t after : {0, 2'000, 5'000, 9'000, 20'000})
        for (const rank_t rank : {0, 2}) {
          CAPTURE(s.to_string());
          const simulation_result r = check_disturbed(s, {what, rank, 1, after, 1, {}});
          failed += r.failed;
          let_go += tells(r, "nic_let_go reaches rank") ? 1 : 0;
        }
  CHECK(failed > 100);
  CHECK(let_go > 50);
}

TEST_CASE("nics: whenever a NIC process ends or is killed, what it has not answered fails, and nothing waits for it") {
  std::uint64_t failed = 0, performed = 0;
  for (const bool in_order : {false, true})
    for (const bool maps : {false, true})
      for (std::int64_t after = 0; after <= 40'000; after += 1'000) {
        scenario s = in_processes(4, 0, 2, true, maps);
        s.nic.ends_after_ns = after;
        s.nic.ends_in_order = in_order;
        CAPTURE(s.to_string());
        check_schedules(s, 10);
        const simulation_result r = told_run(s, 1);
        failed += r.failed;
        performed += r.performed;
        if (r.failed > 0) CHECK(tells(r, "the host's NIC process has ended"));
      }
  CHECK(failed > 100);
  CHECK(performed > 100);
}

TEST_CASE("nics: one that is woken late gives back what was recalled after all else is over") {
  check_all_right(seeds(851'736, 851'736));
}

TEST_CASE("nics: what a rank that died has asked back twice it may be given once") {
  for (const std::uint64_t seed : {368'252u, 451'746u, 650'272u, 697'615u}) check_all_right(seeds(seed, seed + 5));
}

namespace {

/// In that scenario one process is lost, so long after the beginning.
scenario losing(scenario s, int host, int process, process_loss::kind what, std::int64_t after,
                std::int64_t goes_on = -1) {
  s.nic.loses = {host, process, what, after, goes_on};
  s.pairs_by_mailbox = s.parts_by_mailbox = true;
  return s;
}

/// Two jobs of two ranks, each rank in a process of its own; in virtual time the first ends some 100 µs after the beginning.
scenario two_jobs(bool nicd, bool maps) {
  scenario s = in_processes(4, 0, 4, nicd, maps);
  const std::vector<item> calls = std::exchange(s.items, {});
  item split = collective_item(0, collective::all_gather, 2, calls.front().how);
  split.what.purpose = call_purpose::split;
  split.divided = {0, 0, 0, 1, 1, 0, 1, 1};
  for (const std::int32_t color : {0, 1}) {
    part_of_split job;
    job.color = color;
    job.what.ranks = 2;
    job.what.items = calls;
    split.parts.push_back(job);
  }
  s.items = {split};
  return s;
}

std::size_t count(const simulation_result& r, std::string_view one, std::string_view two) {
  return static_cast<std::size_t>(std::ranges::count_if(r.trace, [&](const std::string& line) {
    return line.find(one) != std::string::npos && line.find(two) != std::string::npos;
  }));
}

}  // namespace

TEST_CASE(
    "nics: whenever a process of the host is lost, at whatever point of a posting, all it has left behind is freed") {
  using kind = process_loss::kind;
  std::uint64_t failed = 0, performed = 0, let_go = 0;
  for (const scenario& of : several())
    for (const kind what : {kind::killed, kind::uncounted, kind::unrung, kind::stopped, kind::at_work})
      for (const std::int64_t goes_on : {-1, 3'000})
        for (const int process : {0, 1})
          for (std::int64_t after = 0; after <= 24'000; after += 3'000) {
            if (what != kind::stopped && what != kind::at_work && goes_on >= 0) continue;
            const scenario s = losing(of, of.of_host > 0 ? 1 : 0, process, what, after, goes_on);
            CAPTURE(s.to_string());
            check_schedules(s, 10);
            const simulation_result r = told_run(s, 1);
            failed += r.failed;
            performed += r.performed;
            let_go += tells(r, "nic_let_go reaches rank") ? 1 : 0;
            if (r.failed > 0) CHECK(tells(r, " was lost"));
          }
  CHECK(failed > 500);
  CHECK(performed > 500);
  CHECK(let_go > 100);
}

TEST_CASE("nics: when a process of one job is lost, the other job on the NIC does not notice") {
  using kind = process_loss::kind;
  std::uint64_t lost = 0;
  for (const bool nicd : {false, true})
    for (const bool maps : {false, true})
      for (const kind what : {kind::killed, kind::uncounted, kind::unrung, kind::stopped})
        for (const int process : {2, 3})
          for (const std::int64_t after : {12'000, 16'000, 20'000, 26'000}) {
            const scenario s = losing(two_jobs(nicd, maps), 0, process, what, after);
            CAPTURE(s.to_string());
            check_schedules(s, 10);
            for (std::uint64_t seed = 1; seed <= 5; ++seed) {
              const simulation_result r = told_run(s, seed);
              if (!tells(r, "world.split0(0): rank 1 takes its place")) continue;
              CHECK(count(r, "world.split0(0): collective", "is performed") == 6);
              lost += count(r, "world.split0(1): collective", " was lost") > 0 ? 1 : 0;
            }
          }
  CHECK(lost > 50);
}

TEST_CASE("nics: what makes a lost process harmless is needed") {
  using kind = process_loss::kind;
  const auto found = [](mutant broken, const auto& scenario_at) {
    int faults = 0;
    for (std::int64_t after = 0; after <= 24'000; after += 500)
      for (std::uint64_t seed = 1; seed <= 10; ++seed)
        faults += told_run(scenario_at(after), seed, broken).ok() ? 0 : 1;
    return faults;
  };
  const auto killed = [](bool nicd, int process) {
    return [=](std::int64_t after) { return losing(in_processes(4, 0, 2, nicd), 0, process, kind::killed, after); };
  };
  CHECK(found(mutant::process_end_unheard, killed(true, 1)) > 0);
  CHECK(found(mutant::home_end_unseen, killed(false, 0)) > 0);
  for (const bool maps : {false, true})
    CHECK(found(mutant::stopped_taken_for_ended, [maps](std::int64_t after) {
            return losing(in_processes(4, 0, 2, false, maps), 0, 0, kind::at_work, after, 100'000);
          }) > 0);
}
