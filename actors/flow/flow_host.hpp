// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "actors/flow/flow_node_state.hpp"
#include "protocols/agreement/agreement.hpp"

namespace troupe::actors {

/// The owner's side of a run: what its nodes do, and how it ends. Called by the holder of the turn of the run (flow_cell.hpp), one at a time.
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
  /// The time given to the run is over, and the nodes wait for this.
  virtual failure_ptr late(const std::vector<flow_wait>& nodes) = 0;
  virtual void agree() = 0;
  virtual void end_operations(const failure_ptr& why) = 0;
  /// The last call.
  virtual void over(const failure_ptr& why) = 0;
};

}  // namespace troupe::actors
