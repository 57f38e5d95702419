// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/core_share.hpp"
#include "actors/ports/link/idle_cores.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace troupe::actors;

namespace {

/// A process on that host of that running system, with these cpus.
process_place process_on(std::uint64_t host, std::uint64_t machine, std::vector<int> cpus) {
  process_place p;
  p.host_key = host;
  p.machine_key = machine;
  p.cpus = bits_of_cpus(cpus);
  return p;
}

roster job_of(std::vector<process_place> processes) {
  roster all;
  all.processes = std::move(processes);
  return all;
}

/// {neighbours, cores} of process 0, if each process has one rank.
std::pair<int, int> of_first(const std::vector<process_place>& processes, int usable) {
  std::vector<std::uint32_t> process_of;
  for (std::uint32_t p = 0; p < processes.size(); ++p) process_of.push_back(p);
  const core_share found = cores_shared(job_of(processes), 0, process_of, usable);
  return {found.neighbours, found.cores};
}

}  // namespace

TEST_CASE("core share: a bit for each cpu, 64 a word") {
  CHECK(bits_of_cpus({}).empty());
  const std::vector<int> few{0, 63, 64, 130};
  CHECK(bits_of_cpus(few) == std::vector<std::uint64_t>{(std::uint64_t{1} << 63) + 1, 1, 4});
}

TEST_CASE("core share: processes of a host, and of hosts that are parts of one running system") {
  const process_place here = process_on(1, 7, {0, 1});
  CHECK(of_first({here}, 2) == std::pair{0, 2});
  CHECK(of_first({here, here, here}, 2) == std::pair{2, 2});
  CHECK(of_first({here, process_on(2, 7, {0, 1}), process_on(3, 7, {0, 1})}, 2) == std::pair{2, 2});
  CHECK(of_first({here, here, process_on(2, 7, {0, 1})}, 2) == std::pair{2, 2});
}

TEST_CASE("core share: another computer's processes use other cores, also if nobody knows what runs there") {
  CHECK(of_first({process_on(1, 7, {0, 1}), process_on(2, 8, {0, 1})}, 2) == std::pair{0, 2});
  CHECK(of_first({process_on(1, 0, {0, 1}), process_on(2, 0, {0, 1})}, 2) == std::pair{0, 2});
}

TEST_CASE("core share: who is bound elsewhere is no neighbour; where cores are shared in part, all of them count") {
  const process_place here = process_on(1, 7, {2});
  CHECK(of_first({here, process_on(1, 7, {3})}, 1) == std::pair{0, 1});
  CHECK(of_first({here, process_on(2, 7, {3})}, 1) == std::pair{0, 1});
  CHECK(of_first({here, process_on(2, 7, {70})}, 1) == std::pair{0, 1});
  CHECK(of_first({process_on(1, 7, {0, 1}), process_on(2, 7, {1, 2}), process_on(3, 7, {1, 64}), process_on(4, 7, {0}),
                  process_on(5, 7, {0})},
                 2) == std::pair{4, 4});
}

TEST_CASE("core share: a process that may use fewer cores than it sees counts its host's ranks, not other hosts'") {
  const std::vector<int> eight{0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(of_first({process_on(1, 7, eight), process_on(2, 7, eight)}, 1) == std::pair{0, 1});
  CHECK(of_first({process_on(1, 7, eight), process_on(1, 7, eight), process_on(2, 7, eight)}, 1) == std::pair{1, 1});
}

TEST_CASE(
    "core share: each rank of a process counts, those of the process itself not; who says nothing uses all cores") {
  process_place silent = process_on(1, 0, {});
  const roster job = job_of({silent, silent, process_on(2, 7, {0})});
  const std::vector<std::uint32_t> process_of{0, 0, 1, 1, 1, 2};
  const core_share found = cores_shared(job, 0, process_of, 4);
  CHECK(found.neighbours == 3);
  CHECK(found.cores == 4);
}

TEST_CASE(
    "core share: processes of a host whose cores overlap are neighbours; all that its processes use are the host's") {
  const roster job =
      job_of({process_on(1, 7, {0, 1}), process_on(1, 7, {1, 2}), process_on(1, 7, {64}), process_on(2, 7, {3})});
  const std::vector<std::uint32_t> process_of{0, 1, 2, 3};
  const core_share found = cores_shared(job, 0, process_of, 2);
  CHECK(found.neighbours == 1);
  CHECK(found.cores == 2);
  CHECK(cpus_of_host(job, 1) == std::vector<int>{0, 1, 2, 64});
  CHECK(cpus_of_host(job, 3) == std::vector<int>{3});
}

TEST_CASE("idle cores: of the host where fewest are left, whoever looks; all ranks that may use a core count") {
  const auto with = [](process_place p, std::uint32_t ranks, std::uint32_t cores) {
    p.ranks = ranks;
    p.cores = cores;
    return p;
  };
  const process_place four = process_on(1, 7, {0, 1, 2, 3}), other = process_on(2, 8, {0, 1, 2, 3});
  CHECK(idle_cores(job_of({})) == 0);
  CHECK(idle_cores(job_of({with(four, 1, 4)})) == 3);
  CHECK(idle_cores(job_of({with(four, 1, 4), with(four, 2, 4)})) == 1);
  CHECK(idle_cores(job_of({with(four, 3, 4), with(four, 3, 4)})) == 0);
  CHECK(idle_cores(job_of({with(four, 1, 4), with(other, 2, 4)})) == 2);
  CHECK(idle_cores(job_of({with(other, 2, 4), with(four, 1, 4)})) == 2);
  // Each bound to a core of its own: the NIC's thread is, too.
  CHECK(idle_cores(job_of({with(process_on(1, 7, {0}), 1, 1), with(process_on(1, 7, {1}), 1, 1)})) == 0);
  CHECK(idle_cores(job_of({with(process_on(1, 7, {0, 1}), 1, 2), with(process_on(1, 7, {2, 3}), 1, 2)})) == 1);
  // Hosts that are namespaces of one system.
  CHECK(idle_cores(job_of({with(process_on(1, 7, {0, 1, 2}), 1, 3), with(process_on(2, 7, {0, 1, 2}), 1, 3)})) == 1);
}
