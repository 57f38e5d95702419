// SPDX-License-Identifier: Apache-2.0
#pragma once
// Jobs of real processes: children of the test, which itself never makes an engine, so that it has one thread when it forks.

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "engine/api/troupe.hpp"
#include "tests/code_of.hpp"

namespace process_tests {

using troupe_tests::code_of;

/// One process of a job, while it runs.
struct member {
  int process = 0;
  int processes = 0;
  std::string rendezvous;

  /// How it joins.
  troupe::join_options how() const;
  /// For the test to read. One line.
  void say(const std::string& line) const;
  int out = 2;  ///< descriptor
};

/// What became of it.
struct ended {
  int exit = -1;  ///< status; −1: a signal ended it
  int signal = 0;
  bool late = false;  ///< it did not end by itself in time
  std::vector<std::string> said;
  std::string log;  ///< what it wrote to standard error
};

/// The job is under way: what the test does to it.
struct job_control {
  std::vector<pid_t> pids;
  std::string rendezvous;
  /// Waits until that many lines were said by all together.
  std::function<void(std::size_t lines)> wait_for_lines;
};

/// Runs `body` in each of `processes` children; what it throws is said and makes the exit status 1. Children that do not end
/// within `limit` are killed.
std::vector<ended> run_processes(int processes, const std::function<void(const member&)>& body,
                                 const std::function<void(job_control&)>& meanwhile = {},
                                 std::chrono::seconds limit = std::chrono::seconds{60});

/// All ended with status 0, but for one that the test has killed; else a text that says which did not, and what they wrote.
std::string trouble(const std::vector<ended>& all, std::optional<std::size_t> killed = {});

/// A name that nobody else has.
std::string new_rendezvous();

}  // namespace process_tests
