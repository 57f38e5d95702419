// SPDX-License-Identifier: Apache-2.0
#pragma once
// Many seeds; and what remains of a failing one when everything is taken out that it fails without.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/tools/simulate/simulation.hpp"

namespace troupe::simulate {

struct campaign_options {
  std::uint64_t first = 1, last = 10'000;  ///< seeds
  int threads = 1;
  std::size_t most_failures = 5;  ///< then no more seeds are begun; 0: all are tried
  scenario_limits limits;
  simulation_options each;
  /// How many seeds are done; false: stop. Called by one thread at a time.
  std::function<bool(std::uint64_t done, std::size_t failed)> progress;
};

struct failing_seed {
  std::uint64_t seed = 0;
  std::string fault;
};

struct campaign_result {
  std::uint64_t seeds = 0, events = 0, performed = 0, failed = 0, mutations = 0;
  std::vector<failing_seed> failures;  ///< by seed
  bool stopped = false;
};

campaign_result run_campaign(const campaign_options& options);

/// The smallest scenario found that still fails in the same way, and what happens in it.
struct shrunk {
  scenario what;
  std::string fault;
  std::vector<std::string> trace;
  int attempts = 0;
};
/// @pre the scenario fails
shrunk shrink(const scenario& failing, plan_source& plans, const simulation_options& options, int most_attempts = 2000);

}  // namespace troupe::simulate
