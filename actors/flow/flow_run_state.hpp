// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "protocols/agreement/agreement.hpp"

namespace troupe::actors {

/// What the conductor of a run says.
class flow_run_outbox {
public:
  virtual ~flow_run_outbox() = default;
  /// Every node: do nothing more, and say stopped(). Also at a good end, so that nobody looks at the nodes' states any more.
  virtual void stop_nodes() = 0;
  /// All nodes of this rank have finished: so may the operations by which the ranks agree on the end.
  virtual void agree() = 0;
  /// Ends every operation that is under way, on all ranks.
  virtual void end_operations(const failure_ptr& why) = 0;
  /// The run is over; null: well. Nobody touches the flow's memory any more.
  virtual void over(const failure_ptr& why) = 0;
};

/// How one run of a flow ends on one rank. The operations are those of its collectives, and one a communicator more, the *agreement*, which is performed when
/// all ranks' nodes have finished: so a run that succeeds on one rank does so on all. A run that fails ends all its operations with
/// the reason, which is how the other ranks hear of it.
///   finished(node), stopped(node)    from nodes
///   ended(operation, why)            once for each operation
///   fail(why)                        from anywhere: an operator threw, cancel, deadline; the first one counts
class flow_run_state {
public:
  /// Operations 0 … agreements − 1 are agreements.
  flow_run_state(int nodes, int operations, int agreements)
      : nodes_(nodes), operations_(operations), working_(nodes), verdicts_(static_cast<std::size_t>(agreements)) {}

  void finished(flow_run_outbox& out) {
    if (--working_ > 0 || why_) return;
    if (!verdicts_.empty()) out.agree();
    settle(out);
  }
  void stopped(flow_run_outbox& out) {
    ++stopped_;
    settle(out);
  }
  void ended(int operation, const failure_ptr& why, flow_run_outbox& out) {
    ++ended_;
    if (static_cast<std::size_t>(operation) < verdicts_.size()) verdicts_[static_cast<std::size_t>(operation)] = why;
    if (why) fail(why, out);
    settle(out);
  }
  void fail(const failure_ptr& why, flow_run_outbox& out) {
    if (why_ || over_) return;
    why_ = why;
    out.end_operations(why_);
    settle(out);
  }

private:
  /// Of an agreement that was not reached, if there is one: the same on all ranks.
  const failure_ptr& verdict() const {
    for (const failure_ptr& one : verdicts_)
      if (one) return one;
    return why_;
  }
  void settle(flow_run_outbox& out) {
    if (!stopping_ && (why_ || (working_ == 0 && ended_ == operations_))) {
      stopping_ = true;
      out.stop_nodes();
    }
    if (over_ || ended_ < operations_ || stopped_ < nodes_) return;
    over_ = true;
    out.over(verdict());
  }

  int nodes_, operations_;
  int working_;
  int stopped_ = 0, ended_ = 0;
  bool stopping_ = false, over_ = false;
  failure_ptr why_;
  std::vector<failure_ptr> verdicts_;
};

}  // namespace troupe::actors
