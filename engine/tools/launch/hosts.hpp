// SPDX-License-Identifier: Apache-2.0
#pragma once
// A file of hosts: where `troupe launch --hosts` starts processes, and how.
//
//   [[host]]
//   address = "node1"                     # how the others name it
//   slots = 4                             # so many processes, 1 if it says nothing
//   command = ["ssh", "node1"]            # runs the text behind it in a shell there; the default, with -T and BatchMode. [] : no command,
//                                         # processes are started here, by the launcher itself
//   pod = "rack1/leaf2"                   # the groups of hosts that it is in, from the outside in: TROUPE_POD of its processes
//   directory = "/srv/app"                # where they start; the launcher's own if it says nothing
//
// Processes fill the hosts' slots in the order of the file.

#include <string>
#include <string_view>
#include <vector>

namespace troupe::launch {

struct host {
  std::string address;
  int slots = 1;
  std::vector<std::string> command{};
  std::string directory{};  ///< empty: the launcher's
  std::string pod{};        ///< empty: what TROUPE_POD says there
  bool here() const noexcept { return command.empty(); }
};

/// @param name of the file, for messages
/// Throws errc::bad_config, with file and line.
std::vector<host> parse_hosts(std::string_view toml, const std::string& name);
/// Throws errc::bad_config.
std::vector<host> read_hosts(const std::string& path);

int slots_of(const std::vector<host>& hosts);

/// Which host each process is on. Throws errc::bad_config if there are too few slots.
std::vector<std::size_t> place_processes(const std::vector<host>& hosts, int processes, const std::string& name);

}  // namespace troupe::launch
