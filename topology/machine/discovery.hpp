// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// The part of this computer that this process may use. Sizes are bytes; 0 means "unknown".
struct host {
  int packages = 1;
  int cores = 1;             // physical, whole computer
  int processing_units = 1;  // hardware threads, whole computer
  int numa_nodes = 1;
  std::uint64_t l1_bytes = 0;  // data cache of one core
  std::uint64_t l2_bytes = 0;  // one instance
  std::uint64_t l3_bytes = 0;  // one instance
  int l3_instances = 0;
  std::uint64_t memory_bytes = 0;        // installed
  std::uint64_t memory_limit_bytes = 0;  // the least of memory_bytes, the cgroup's limit and ulimit -v

  std::vector<int> allowed_cpus{};  // OS indices this process may run on (affinity mask within the cgroup's cpuset)
  int allowed_cores = 1;            // physical cores that own at least one allowed cpu
  double cpu_quota = 0;             // cgroup bandwidth limit in CPUs, e.g. 1.5; 0: none

  bool from_hwloc = false;  // false: the fallback, which knows neither caches nor packages nor NUMA
  std::string note{};       // why the fallback was taken; empty otherwise

  /// How many threads can really run at once: allowed cpus, limited by the quota (rounded up), at least 1. Worker counts
  /// and the decision to spin or to park start from here, not from std::thread::hardware_concurrency().
  int usable_cpus() const noexcept;

  /// One paragraph for a person.
  std::string describe() const;
};

/// Asks hwloc, the affinity mask and the cgroup (v2, else v1). Milliseconds, on first use; the answer is kept for the life
/// of the process, so later calls cost nothing. Thread-safe. Never throws because of hwloc: without it, it answers
/// with what the affinity mask and sysconf say. An affinity change after the first call is seen by `discover_again`.
const host& discover();
/// Of the running system, the same in all of its containers and another one after each start. Empty: it says none. Thread-safe.
std::string boot_id();

/// The same without the kept answer (does not replace it).
host discover_again();

/// The fallback alone: no hwloc.
host discover_without_hwloc();

/// `host::memory_limit_bytes` without asking hwloc, which loads its plugins for it: what sysconf and the cgroups say. Microseconds.
std::uint64_t usable_memory();

/// A host from hwloc's synthetic description, e.g. "package:2 l3:1 core:4 pu:2", all of it allowed and without limits:
/// to try settings for another computer. @throws error(errc::bad_config) if hwloc does not understand the text.
host describe_synthetic(const std::string& description);

}  // namespace troupe
