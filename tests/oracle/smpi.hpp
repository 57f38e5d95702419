// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs smpi_collectives.c under SimGrid's SMPI and reads its times. SimGrid is an independent simulator: the flows of its network share
// links by max-min fairness, and nothing of it is Troupe's.

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::smpi {

struct job {
  std::string name;  ///< of smpi_collectives.c
  int ranks = 0;
  std::size_t bytes = 0;
};

/// Where the processes run. Latencies in ns, bandwidths in bytes per second; all links full duplex.
struct platform {
  int hosts = 2;
  double port_latency = 500, port_bandwidth = 10e9;  ///< of each host's link to the switch, or to its half's
  double trunk_latency = 0,
         trunk_bandwidth = 0;  ///< between the lower and the upper half of the hosts; 0: one switch for all
};

/// By job: when ranks 0, 1, … were done, in ns of virtual time. One process for all jobs, in a folder of its own.
/// @throws std::runtime_error with what SMPI said, if it fails or a job takes more than a second of virtual time.
std::vector<std::vector<double>> run(const platform& on, const std::vector<job>& jobs);

// -- any network ------------------------------------------------------------------------------------------------------

struct link {
  double bandwidth = 10e9, latency = 0;  ///< bytes per second; ns
};
struct flow {
  int from = 0, to = 0;  ///< no two flows have the same
  std::size_t bytes = 0;
  std::vector<int> way{};  ///< links
};

/// By flow: when it was done, in ns. All begin at 0 (simgrid_flows.cpp, not MPI: no envelopes, no ranks that wait).
std::vector<double> run_flows(int hosts, const std::vector<link>& links, const std::vector<flow>& flows);

}  // namespace troupe::smpi
