// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/discovery.hpp"

#include "memory/error.hpp"

#include <doctest/doctest.h>

#include <sched.h>

#include <algorithm>
#include <string>

using namespace troupe;

namespace {

void check_sane(const host& h) {
  CHECK(h.packages >= 1);
  CHECK(h.cores >= h.packages);
  CHECK(h.processing_units >= h.cores);
  CHECK(h.numa_nodes >= 1);
  REQUIRE_FALSE(h.allowed_cpus.empty());
  CHECK(std::is_sorted(h.allowed_cpus.begin(), h.allowed_cpus.end()));
  CHECK(h.allowed_cores >= 1);
  CHECK(h.allowed_cores <= static_cast<int>(h.allowed_cpus.size()));
  CHECK(h.usable_cpus() >= 1);
  CHECK(h.usable_cpus() <= static_cast<int>(h.allowed_cpus.size()));
  CHECK(h.memory_bytes > (1u << 20));
  CHECK(h.memory_limit_bytes <= h.memory_bytes);
  CHECK(h.describe().find("can run at once") != std::string::npos);
}

}  // namespace

TEST_CASE("this computer is found, and found only once") {
  const host& h = discover();
  MESSAGE(h.describe());
  check_sane(h);
  CHECK(&discover() == &h);
}

TEST_CASE("the fallback knows less but nothing wrong") {
  const host h = discover_without_hwloc();
  check_sane(h);
  CHECK_FALSE(h.from_hwloc);
  CHECK(h.describe().find("no hwloc") != std::string::npos);
  if (discover().from_hwloc) CHECK(h.allowed_cpus == discover().allowed_cpus);
}

TEST_CASE("a narrower affinity mask is respected") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);  // the test runs on the main thread
  const int keep = discover().allowed_cpus.back();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(keep), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const host narrowed = discover_again();
  const host without = discover_without_hwloc();
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(narrowed.allowed_cpus == std::vector<int>{keep});
  CHECK(without.allowed_cpus == std::vector<int>{keep});
  CHECK(narrowed.usable_cpus() == 1);
  CHECK(narrowed.allowed_cores == 1);
  CHECK(discover_again().allowed_cpus == discover().allowed_cpus);
}

TEST_CASE("structure is read as hwloc tells it") {
  const host h =
      describe_synthetic("package:2 numa:1 l3:1(size=33554432) l2:4(size=1048576) l1d:1(size=32768) core:1 pu:2");
  CHECK(h.packages == 2);
  CHECK(h.numa_nodes == 2);
  CHECK(h.cores == 8);
  CHECK(h.processing_units == 16);
  CHECK(h.l1_bytes == 32768);
  CHECK(h.l2_bytes == 1048576);
  CHECK(h.l3_bytes == 33554432);
  CHECK(h.l3_instances == 2);
  CHECK(h.allowed_cpus.size() == 16);
  CHECK(h.allowed_cores == 8);
  CHECK(h.describe().find("2 packages, 8 cores, 16 hardware threads, 2 NUMA nodes") != std::string::npos);
  CHECK(h.describe().find("L1 32 KiB, L2 1 MiB, L3 2 x 32 MiB") != std::string::npos);
  CHECK_THROWS_AS((void)describe_synthetic("nonsense:x"), error);
}

TEST_CASE("a cgroup's quota limits the threads that can run at once") {
  host h;
  h.allowed_cpus = {0, 1, 2, 3};
  CHECK(h.usable_cpus() == 4);
  h.cpu_quota = 1.5;
  CHECK(h.usable_cpus() == 2);
  h.cpu_quota = 0.2;
  CHECK(h.usable_cpus() == 1);
  h.cpu_quota = 64;
  CHECK(h.usable_cpus() == 4);
  CHECK(h.describe().find("64 CPUs") != std::string::npos);
  h.allowed_cpus.clear();
  CHECK(h.usable_cpus() == 1);
}
