// SPDX-License-Identifier: Apache-2.0
#pragma once
// The processes of a job, as the join found them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::actors {

struct process_place {
  std::string host;            ///< its name, for people
  std::uint64_t host_key = 0;  ///< equal: the same host, whose processes can share memory
  std::int64_t pid = 0;
  std::uint32_t first_rank = 0;  ///< of the world
  std::uint32_t ranks = 0;
  std::uint32_t cores = 0;             ///< that it may use
  std::vector<std::string> addresses;  ///< where it listens, the best first: "tcp://10.0.0.1:40123"
  std::vector<std::string>
      groups{};  ///< of hosts that its own is in, outermost first: {"rack1", "leaf2"}; empty: nobody says
  std::vector<std::byte>
      carrier{};             ///< its address, if the job's processes have a transport beside sockets (transport.hpp)
  bool told_groups = false;  ///< by a person, and not by a launcher that knows the network
  std::uint64_t machine_key = 0;      ///< equal: the same running system, whatever its hosts; 0: unknown
  std::vector<std::uint64_t> cpus{};  ///< that it may use: bit c % 64 of word c / 64 (core_share.hpp)
};

struct roster {
  std::uint64_t job = 0;
  std::vector<process_place> processes;
  std::vector<double> costs;  ///< of the job's machines, each the largest that a process said
  std::uint32_t ranks() const { return processes.empty() ? 0 : processes.back().first_rank + processes.back().ranks; }
};

/// Of those that are on the host of `process`.
inline std::uint32_t first_of_host(const roster& in, std::uint32_t process) {
  std::uint32_t first = 0;
  while (in.processes[first].host_key != in.processes[process].host_key) ++first;
  return first;
}

/// More levels of groups a layout does not have.
inline constexpr std::size_t most_groups = 5;

/// Why the groups of hosts that processes name do not fit together; empty: they do. Groups that launchers name for some processes alone are
/// not counted (names_groups()).
std::string trouble_with_groups(const roster& in);

/// All processes name the groups of their hosts.
inline bool names_groups(const roster& in) {
  return std::ranges::none_of(in.processes, [](const process_place& p) { return p.groups.empty(); });
}

/// "process 2 (ranks 4–5, pid 4711 on host b)".
std::string name_of(const roster& in, std::uint32_t process);

}  // namespace troupe::actors
