// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/explain_measured.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "engine/tools/bench_runner.hpp"

namespace troupe {

namespace {

double seconds_of(engine& on, const job& what, const workload& how) {
  const job_result result = bench_runner{on, how}.run(what);
  const measurement& m = result.out_of_place ? *result.out_of_place : *result.in_place;
  if (m.wrong.value_or(0) > 0 || result.out_of_bounds > 0)
    throw std::runtime_error(name(what.kind) + " by " + result.choreography + " (" + result.protocol +
                             "): wrong results");
  return std::max(m.time_us * 1e-6, 1e-9);
}

}  // namespace

double measure_call(engine& on, const job& what, int ranks, double budget_ms) {
  workload how;
  how.ranks = ranks;
  how.warmup = 1;
  how.iterations = 3;
  double seconds = seconds_of(on, what, how);
  how.check = false;
  // The first calls are slower than the others: what they predict is too few repetitions rather than too many.
  for (const double share : {0.2, 1.0}) {
    how.iterations = std::clamp(static_cast<int>(budget_ms * 1e-3 * share / seconds), 3, 1'000'000);
    how.warmup = how.iterations / 4 + 1;
    seconds = seconds_of(on, what, how);
  }
  return seconds;
}

void measure_candidates(explanation& e, engine& on, const job& what, const measuring_limits& limits,
                        const std::function<void(const std::string&)>& progress) {
  std::vector<std::vector<double>> times(e.candidates.size());
  for (int round = 0; round < limits.rounds; ++round)
    for (std::size_t i = 0; i < times.size(); ++i) {
      const candidate& c = e.candidates[i];
      if (!c.eligible()) continue;
      if (progress)
        progress(c.choreography + " (" + c.protocol + "), round " + std::to_string(round + 1) + " of " +
                 std::to_string(limits.rounds));
      job one = what;
      one.choreography = c.choreography;
      one.protocol = parse_message_protocol(c.protocol).value_or(message_protocol::unset);
      times[i].push_back(measure_call(on, one, e.placement.size(), limits.budget_ms));
    }
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i].empty()) continue;
    std::sort(times[i].begin(), times[i].end());
    e.candidates[i].measured_seconds = times[i][times[i].size() / 2];
  }
  e.measured = true;
}

}  // namespace troupe
