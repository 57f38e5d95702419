// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <string>

namespace troupe {

/// How a process finds the others of its job. What is left open is taken from the environment: of troupe launch (TROUPE_JOIN, TROUPE_RANK,
/// TROUPE_RANKS, TROUPE_KEY, TROUPE_POD), or of mpirun, srun or torchrun (docs/hosts.md).
struct join_options {
  std::string
      rendezvous{};  ///< "tcp://host:port": where all of them come first. Process 0 serves there, unless somebody does already. Or the
  ///< invitation that communicator::grow() has given out, with the key in it; then the two numbers are of the new processes
  ///< alone, and one that is invited alone needs none
  int process = -1;  ///< of this job: 0 … processes − 1
  int processes = 0;
  std::string
      key{};  ///< 64 hexadecimal digits, the same in all processes; empty: TROUPE_KEY's, or the one in the file that
              ///< TROUPE_KEY_FILE names. None is needed where all processes are on one host
  std::string
      interfaces{};  ///< network interfaces that may be used, "eth0,ib"; with a '^' before it: that may not. Empty: TROUPE_INTERFACE
  std::string
      host{};  ///< processes that say other texts count as on other hosts, and share no memory, such as containers of one system that are
               ///< to be kept apart. Empty: TROUPE_HOST; if that is empty as well, the system decides
  std::string
      pod{};  ///< where this host stands among groups of hosts, from the outside in, "rack1/leaf2"; all hosts say it, or none.
  ///< "/": in none. Empty: TROUPE_POD; if that is empty as well, what srun says of the network (SLURM_TOPOLOGY_ADDR)
  std::chrono::milliseconds deadline{
      60'000};  ///< for all processes to come; then error(timed_out) that names the missing
  std::chrono::milliseconds silence{3'000};   ///< of a process before it counts as lost; 100 or more
  const std::atomic<bool>* cancel = nullptr;  ///< set to true by any thread: the join ends with error(cancelled)
};

}  // namespace troupe
