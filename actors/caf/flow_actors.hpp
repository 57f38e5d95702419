// SPDX-License-Identifier: Apache-2.0
#pragma once
// The actors of one run of a flow behind a door without CAF: one for each node, which unpacks messages for its flow_node_state, and the
// conductor, which does so for the flow_run_state. They are made when the run starts and end with it.

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "actors/flow/flow_node_state.hpp"
#include "actors/flow/flow_run_state.hpp"

namespace troupe::actors {

class runtime;

/// What nodes do, and how a run ends: its owner's. Called on the scheduler's threads, for each node by one at a time.
class flow_host {
public:
  virtual ~flow_host() = default;
  /// Null: done. Else the run ends with what it returns.
  virtual failure_ptr perform(std::int32_t node, const std::vector<flow_tile>& in, const flow_tile* out,
                              std::int32_t at) = 0;
  virtual failure_ptr ready(std::int32_t node, std::int32_t part) = 0;
  /// Only where `watched`: what the node waits for, after each of its messages; and a part that it hears of.
  virtual void waits(std::int32_t node, const flow_wait& what) = 0;
  virtual void hears_of(std::int32_t node, std::int32_t part) = 0;
  /// The time given to fail_after() is over, and the nodes wait for this.
  virtual failure_ptr late(const std::vector<flow_wait>& nodes) = 0;
  virtual void agree() = 0;
  virtual void end_operations(const failure_ptr& why) = 0;
  /// The last call.
  virtual void over(const failure_ptr& why) = 0;
};

/// Thread-safe.
class flow_actors {
public:
  /// @param nodes outlive the run. @param watched the host wants to hear of waits
  static std::shared_ptr<flow_actors> make(runtime& in, std::shared_ptr<const flow_plan> plan,
                                           std::vector<flow_node_state>& nodes, std::shared_ptr<flow_host> host,
                                           int operations, int agreements, bool watched);
  virtual ~flow_actors() = default;

  /// The nodes begin.
  virtual void go() = 0;
  /// A part of the collective's output is there.
  virtual void arrived(std::int32_t node, std::int32_t part) = 0;
  virtual void ended(int operation, failure_ptr why) = 0;
  virtual void fail(failure_ptr why) = 0;
  /// fail() with what the host says then, unless the run is over.
  virtual void fail_after(std::chrono::nanoseconds time) = 0;
};

}  // namespace troupe::actors
