// SPDX-License-Identifier: Apache-2.0
// What rank_state does about operations that the process's NIC performs.

#include <algorithm>

#include "actors/rank/rank_state.hpp"

namespace troupe::actors {

void rank_state::offloaded(epoch_t epoch, const failure_ptr& why, rank_outbox& out) {
  const auto at = under_way_.find(epoch);
  if (dead_ || at == under_way_.end()) return;
  operation& op = *at->second;
  // Recalled meanwhile: the NIC's answer to that is still to come, and finds it over if it was performed before. Another rank may have heard so, and
  // have ended its engine, before this one was told.
  const bool recalled = stopping_.contains(epoch);
  if (recalled && why) return;
  op.on_nic = false;
  if (!why) return performed(operation_key{epoch, -1, false}, out);
  op.stalled = true;
  out.fail(epoch, op.title(), make_failure(why->code, "on rank " + std::to_string(options_.rank) + ": " + why->text));
}

bool rank_state::gives_way_to_nic() const {
  return options_.crowded && !under_way_.empty() && under_way_.begin()->second->on_nic;
}

/// As channel_port::mismatch().
void rank_state::nic_differs(epoch_t epoch, rank_t from, rank_outbox& out) {
  const auto at = under_way_.find(epoch);
  if (at == under_way_.end()) return;
  operation& op = *at->second;
  if (dead_ || stopping_.contains(epoch)) return;
  op.on_nic = false;
  op.stalled = true;
  op.unlike = from;
  enroll(op, out);
  out.differs(epoch);
}

/// True: nic_let_go() will come.
bool rank_state::recall_from_nic(epoch_t epoch, rank_outbox& out) {
  const auto at = under_way_.find(epoch);
  if (at == under_way_.end() || !at->second->on_nic) return false;
  out.recall_from_nic(epoch);
  return true;
}

void rank_state::nic_let_go(epoch_t epoch, rank_outbox& out) {
  if (const auto at = under_way_.find(epoch); at != under_way_.end()) at->second->on_nic = false;
  if (dead_) {
    const bool left = std::any_of(under_way_.begin(), under_way_.end(), [](const auto& o) { return o.second->on_nic; });
    if (!left) out.perished();
  } else if (stopping_.contains(epoch)) {
    answer_stop(epoch, out);
  }
}

}  // namespace troupe::actors
