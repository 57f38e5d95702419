// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a process is started: here by its own words, on another host by a host's command and a script for a shell there.

#include <string>
#include <string_view>
#include <vector>

#include "engine/tools/launch/hosts.hpp"

namespace troupe::launch {

/// What all processes of a job have in common.
struct job {
  std::vector<std::string> program{};  ///< and its arguments
  int processes = 1;
  std::string rendezvous{};  ///< TROUPE_JOIN
  std::string key{};         ///< hexadecimal; only ever in an environment or on a pipe
  bool invited = false;      ///< the rendezvous is an invitation: it is the secret then, and there is no key
  std::vector<std::string> environment{};  ///< of this process, "NAME=VALUE"
};

/// What a script on another host writes first: the connection is made, and somebody is logged in there.
inline constexpr std::string_view greeting = "\001troupe\002\n";

/// A process to start.
struct command {
  int rank = 0;
  std::vector<std::string> words;
  std::vector<std::string> environment;
  std::string directory{};  ///< empty: this one
  std::string host{};       ///< empty: here
  std::string
      first_input{};  ///< written to its standard input, which then says which signals are to be sent there, a line each
  bool has_our_streams = false;  ///< writes to the launcher's own output and error, line ends or not; of processes here
  bool remote() const noexcept { return !host.empty(); }
};

/// @param pod of a file of hosts; empty: it says none
command command_here(const job& of, int rank, const std::string& directory, const std::string& pod = {});

/// On another host, by its command; TROUPE_… variables go with it, on the command line but for the key or invitation.
/// @param directory of this process, where the host says nothing
command command_there(const job& of, int rank, const host& where, const std::string& directory);

/// As one word of a POSIX shell.
std::string quoted_for_shell(std::string_view text);

}  // namespace troupe::launch
