// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/simulate/world.hpp"
#include "engine/tools/simulate/world_outbox.hpp"

#include "memory/error.hpp"

// What the membership's state says goes to every rank's shell, which posts it to its rank, as in actors/caf; a shell that is gone takes
// nothing.

namespace troupe::simulate {

using actors::rank_order;
using actors::rank_outbox;
using actors::rank_state;

void simulation::world::tell_all(message_kind kind, const std::function<rank_order(rank_t)>& what) {
  for (rank_t r = 0; r < what_.ranks; ++r) post_to_rank(kind, of_membership, r, what(r));
}

void simulation::world::agreed(epoch_t epoch, const counts_ptr& counts) {
  tell_all(message_kind::agreed, [&](rank_t) {
    counts_ptr mine = counts;
    if (counts && !counts->empty() && breaks(mutant::counts_wrong)) {
      auto other = std::make_shared<std::vector<std::size_t>>(*counts);
      std::size_t& one = (*other)[breaking_.index(other->size())];
      one = one > 0 ? one - 1 : 1;
      mine = other;
    }
    return [epoch, mine](rank_state& s, rank_outbox& o) { s.agreed(epoch, mine, o); };
  });
}

void simulation::world::ask(epoch_t epoch) {
  tell_all(message_kind::ask, [&](rank_t) { return [epoch](rank_state& s, rank_outbox& o) { s.asked(epoch, o); }; });
}

void simulation::world::stop(epoch_t epoch) {
  stop_begun_.try_emplace(epoch, now_);
  tell_all(message_kind::stop, [&](rank_t r) {
    if (breaks(mutant::stopped_early))
      post_to_membership(message_kind::order, of_process,
                         [this, epoch, r] { membership_.stopped(epoch, r, {}, {}, *this); });
    return [epoch](rank_state& s, rank_outbox& o) { s.stop(epoch, o); };
  });
  if (breaks(mutant::failed_early))
    post_to_membership(message_kind::order, of_process, [this, epoch] {
      for (rank_t r = 0; r < what_.ranks; ++r) membership_.stopped(epoch, r, {}, {}, *this);
    });
}

void simulation::world::failed(epoch_t epoch, const failure_ptr& why) {
  tell([&] { return "operation " + std::to_string(epoch) + " fails: " + why->text; });
  tell_all(message_kind::failed, [&](rank_t r) {
    failure_ptr mine = why;
    if (breaks(mutant::text_differs)) mine = make_failure(why->code, why->text + " (rank " + std::to_string(r) + ")");
    return [epoch, mine](rank_state& s, rank_outbox& o) { s.failed(epoch, mine, o); };
  });
}

void simulation::world::broken(const failure_ptr& why) {
  tell([&] { return "the communicator is broken: " + why->text; });
  tell_all(message_kind::broken, [&](rank_t) { return [why](rank_state& s, rank_outbox& o) { s.broken(why, o); }; });
}

void simulation::world::peer_left(rank_t rank, const sends_ptr& sent) {
  tell_all(message_kind::peer_left,
           [&](rank_t) { return [rank, sent](rank_state& s, rank_outbox& o) { s.peer_left(rank, sent, o); }; });
}

void simulation::world::peer_lost(rank_t rank) {
  tell_all(message_kind::peer_lost,
           [&](rank_t) { return [rank](rank_state& s, rank_outbox& o) { s.peer_lost(rank, o); }; });
}

void simulation::world::stuck(look_t look, bool nobody_else) {
  tell_all(message_kind::stuck, [&](rank_t) {
    return [this, look, nobody_else](rank_state& s, rank_outbox& o) {
      s.stuck(look, std::max(look, looks_), nobody_else, o);
    };
  });
}

void simulation::world::rank_stopped(rank_t rank, epoch_t epoch, std::vector<std::string> waits, presence came) {
  if (breaks(mutant::presence_hidden)) came.what.reset();
  if (breaks(mutant::performed_hidden)) came.performed = false;
  if (breaks(mutant::stopped_for_all))
    for (rank_t r = 0; r < what_.ranks; ++r)
      if (r != rank) membership_.stopped(epoch, r, {}, {}, *this);
  membership_.stopped(epoch, rank, std::move(waits), std::move(came), *this);
}

void simulation::world::untold(const std::string& why) { untold_ = why; }

void simulation::world::bury(rank_t rank, const failure_ptr& why) {
  post_to_rank(message_kind::bury, of_membership, rank, [why](rank_state& s, rank_outbox&) { s.bury(why); });
}

void simulation::world::flush(rank_t rank) {
  ++in_flight_;
  at(std::max(now_, at_rank(rank).transfers_end) + 1, [this, rank] {
    --in_flight_;
    post_to_membership(message_kind::order, of_burial, [this, rank] {
      membership_.flushed(rank, *this);
      if (breaks(mutant::bury_early)) bury(rank, membership_.broken());
    });
  });
}

void simulation::world::dissolve() {
  tell([] { return std::string{"the membership dissolves"}; });
  const auto why = make_failure(errc::engine_closed, "the communicator ended with this operation under way");
  for (rank_t r = 0; r < what_.ranks; ++r) {
    at_rank(r).shell_gone = true;
    post_to_rank(message_kind::order, of_process, r, [why](rank_state& s, rank_outbox& o) { s.broken(why, o); });
  }
  end_views();
}

// -- faults from outside ------------------------------------------------------------------------------------------------------

/// The actor of a rank ends: its shell takes nothing more, and tells its rank.
void simulation::world::kill(rank_t rank) {
  member& m = at_rank(rank);
  if (membership_.dissolved() || m.shell_gone) return;
  tell([&] { return "the actor of rank " + std::to_string(rank) + " is killed"; });
  killed_ = true;
  last_progress_ = now_;
  m.shell_gone = true;
  m.muted = mix(what_.seed ^ static_cast<std::uint64_t>(rank)) % 2 == 0;
  post_to_rank(message_kind::perish, of_membership, rank, [](rank_state& s, rank_outbox& o) { s.perish(o); });
  post_to_membership(message_kind::down, of_monitor, [this, rank] {
    if (breaks(mutant::lost_early, 100)) membership_.perished(rank, *this);
    membership_.down(rank, "killed", *this);
  });
}

/// A chunk between hosts is lost with its connection, and with it, for everybody, the sender's host; or the receiver's, as the membership is with the
/// first one.
void simulation::world::lose_connection(rank_t from, rank_t to) {
  const int sender = what_.host_of(from), which = sender != 0 ? sender : what_.host_of(to);
  at(now_, [this, which] { lose_host(which); });
}

/// All of it ends at once, and with it what is on the way to it or from it. The membership hears of it rank by rank.
void simulation::world::lose_host(int which) {
  if (membership_.dissolved() || std::exchange(hosts_[static_cast<std::size_t>(which)].lost, true)) return;
  tell([&] { return "host " + std::to_string(which) + " is lost"; });
  const auto why = make_failure(errc::peer_lost, "the connection to host " + std::to_string(which) + " was lost");
  for (rank_t r = which * what_.of_host; r < (which + 1) * what_.of_host; ++r) lose_rank(r, why);
}

/// It does and hears nothing any more, and the membership is told so.
void simulation::world::lose_rank(rank_t rank, const failure_ptr& why) {
  member& m = at_rank(rank);
  if (membership_.dissolved() || std::exchange(m.lost, true)) return;
  lost_ranks_ = true;
  lost_with_ = why;
  last_progress_ = now_;
  m.shell_gone = true;
  m.inbox.clear();
  const bool last_thread = !std::exchange(m.finished, true) && ++finished_ == members_.size();
  if (!breaks(mutant::host_lost_unsaid, 50))
    post_to_membership(message_kind::down, of_monitor, [this, rank, why] { membership_.lost(rank, why, *this); });
  if (what_.leave_late && last_thread) leave_all();
}

bool simulation::world::is_cut(int from, int to) const {
  const auto lost = [this](int end) { return end >= 0 && at_rank(end).lost; };
  return lost_ranks_ && (lost(from) || lost(to));
}

void simulation::world::abort() {
  if (membership_.dissolved()) return;
  tell([] { return std::string{"somebody aborts the communicator"}; });
  aborted_ = true;
  last_progress_ = now_;
  const auto why = make_failure(errc::communicator_aborted, "world was aborted");
  for (rank_t r = 0; r < what_.ranks; ++r)
    post_to_rank(message_kind::order, of_process, r, [why](rank_state& s, rank_outbox& o) { s.broken(why, o); });
  post_to_membership(message_kind::abort, of_process, [this, why] { membership_.abort(why, *this); });
}

}  // namespace troupe::simulate
