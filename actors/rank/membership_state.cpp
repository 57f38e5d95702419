// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/membership_state.hpp"

namespace troupe::actors {

void membership_state::left(rank_t rank, epoch_t operations, call last, const sends_ptr& sent, membership_outbox& out) {
  left_.insert(rank);
  agreement_.left(rank, operations, out, std::move(last), sent);
  if (static_cast<int>(left_.size()) < ranks_) return;
  if (const std::string why = agreement_.untold_disagreement(); !why.empty() && !dissolved_) out.untold(why);
  dissolve(out);
}

void membership_state::quiet(rank_t rank, membership_outbox& out) {
  quiet_.insert(rank);
  bury_if_quiet(out);
}

void membership_state::perished(rank_t rank, membership_outbox& out) {
  if (perished_.insert(rank).second) lose_if_at_rest(rank, out);
}

void membership_state::down(rank_t rank, const std::string& reason, membership_outbox& out) {
  if (down_.try_emplace(rank, reason).second) lose_if_at_rest(rank, out);
}

/// Which of `down` and `perished` comes first is open.
void membership_state::lose_if_at_rest(rank_t rank, membership_outbox& out) {
  if (!dissolved_ && down_.contains(rank) && perished_.contains(rank)) out.flush(rank);
}

void membership_state::flushed(rank_t rank, membership_outbox& out) {
  if (dissolved_ || !lost_.insert(rank).second) return;
  agreement_.lost(rank, down_[rank], out);
  bury_if_quiet(out);
}

void membership_state::lost(rank_t rank, failure_ptr why, membership_outbox& out) {
  // Also of a rank that has left: what it owed others may have been lost on the way, and it will not stop what it had under way.
  if (dissolved_ || !lost_.insert(rank).second) return;
  agreement_.lost(rank, std::move(why), out);
  bury_if_quiet(out);
}

void membership_state::bury_if_quiet(membership_outbox& out) {
  for (rank_t rank = 0; rank < ranks_; ++rank)
    if (!quiet_.contains(rank) && !lost_.contains(rank)) return;
  if (lost_.empty()) return;
  for (const rank_t rank : lost_) out.bury(rank, broken());
  for (const rank_t rank : lost_)
    if (!left_.contains(rank)) left(rank, 0, {}, nullptr, out);
}

void membership_state::dissolve(membership_outbox& out) {
  if (!std::exchange(dissolved_, true)) out.dissolve();
}

}  // namespace troupe::actors
