// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs one scenario: the ranks' states and the membership's in one thread, under a virtual clock, on a network that does to messages
// what the seed says. The states are the ones that an engine runs; this is one more way of connecting them, beside actors/caf.
//
// What the network does: control messages of one sender to one receiver stay in order, as rank_state.hpp demands; chunks and credits
// overtake everything. Chunks may be lost; chunks and credits may come twice. Boards are memory: the ranks' states advance there at
// random moments.
//
// What is checked, at every event:
//   * what a rank gets is what a direct computation gives; what it gave, and the bytes around both, are as they were;
//   * a chunk is consumed only while its sender's operation has not ended, and so are credits kept: at most as many chunks are under
//     way as the plan grants; what has ended is not written to any more (its buffers are filled with a pattern);
//   * a rank that fails has a reason that is true, and all that fail have the same one; one that succeeds was in agreement with everybody;
//   * in the end everything is over, and nothing is kept.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/tools/simulate/mutants.hpp"
#include "engine/tools/simulate/scenario.hpp"

namespace troupe::simulate {

struct simulation_options {
  mutant broken = mutant::none;
  bool trace = false;   ///< tell every event
  bool strict = false;  ///< look at what has ended after every event, not only at the end
};

struct simulation_result {
  std::string fault;  ///< the first; empty: none
  std::vector<std::string> trace;
  std::uint64_t events = 0;
  std::uint64_t performed = 0, failed = 0;  ///< ranks' operations
  std::uint64_t mutations = 0;              ///< times that the mutant did something
  bool ok() const { return fault.empty(); }
};

/// One run. Deterministic. Not synchronised.
class simulation {
public:
  simulation(const scenario& what, plan_source& plans, const simulation_options& options = {});
  ~simulation();
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;

  simulation_result run();

private:
  class world;
  std::unique_ptr<world> world_;
};

}  // namespace troupe::simulate
