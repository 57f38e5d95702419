#include "engine/tools/simulate/world.hpp"
#include "engine/tools/simulate/world_outbox.hpp"

#include "memory/error.hpp"

// As membership.cpp in actors/caf, line by line: what the membership's state says goes to every rank's shell, which posts it to its
// rank; a shell that is gone takes nothing.

namespace troupe::simulate {

using actors::rank_order;
using actors::rank_outbox;
using actors::rank_state;

void simulation::world::tell_all(message_kind kind, const std::function<rank_order(rank_t)>& what) {
  for (rank_t r = 0; r < what_.ranks; ++r) post_to_rank(kind, -1, r, what(r));
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
      post_to_membership(message_kind::order, -2, [this, epoch, r] { agreement_.stopped(epoch, r, {}, *this, {}); });
    return [epoch](rank_state& s, rank_outbox& o) { s.stop(epoch, o); };
  });
  if (breaks(mutant::failed_early))
    post_to_membership(message_kind::order, -2, [this, epoch] {
      for (rank_t r = 0; r < what_.ranks; ++r) agreement_.stopped(epoch, r, {}, *this, {});
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

void simulation::world::peer_left(rank_t rank) {
  tell_all(message_kind::peer_left,
           [&](rank_t) { return [rank](rank_state& s, rank_outbox& o) { s.peer_left(rank, o); }; });
}

void simulation::world::peer_lost(rank_t rank) {
  tell_all(message_kind::peer_lost,
           [&](rank_t) { return [rank](rank_state& s, rank_outbox& o) { s.peer_lost(rank, o); }; });
}

void simulation::world::stuck(look_t look, bool nobody_else) {
  const int times = breaks(mutant::one_look_is_enough, 100) ? 2 : 1;
  for (int i = 0; i < times; ++i) {
    const look_t number = look + static_cast<look_t>(i) * 1000;
    agreement_.stuck(number, std::max(number, looks_), nobody_else, *this);
    for (rank_t r = 0; r < what_.ranks; ++r)
      post_to_rank(message_kind::stuck, -1, r, [this, number, nobody_else](rank_state& s, rank_outbox& o) {
        s.stuck(number, std::max(number, looks_), nobody_else, o);
      });
  }
}

void simulation::world::rank_stopped(rank_t rank, epoch_t epoch, std::vector<std::string> waits, presence came) {
  if (breaks(mutant::presence_hidden)) came.what.reset();
  if (breaks(mutant::performed_hidden)) came.performed = false;
  if (breaks(mutant::stopped_for_all))
    for (rank_t r = 0; r < what_.ranks; ++r)
      if (r != rank) agreement_.stopped(epoch, r, {}, *this, {});
  agreement_.stopped(epoch, rank, std::move(waits), *this, std::move(came));
}

void simulation::world::rank_left(rank_t rank, epoch_t operations) {
  gone_.insert(rank);
  agreement_.left(rank, operations, *this);
  if (static_cast<int>(gone_.size()) == what_.ranks) dissolve();
}

void simulation::world::rank_quiet(rank_t rank) {
  quiet_.insert(rank);
  bury_if_quiet();
}

void simulation::world::bury_if_quiet() {
  if (lost_.empty()) return;
  if (static_cast<int>(quiet_.size() + lost_.size()) < what_.ranks && !breaks(mutant::bury_early)) return;
  for (const rank_t rank : lost_)
    post_to_rank(message_kind::bury, -1, rank,
                 [why = agreement_.broken()](rank_state& s, rank_outbox&) { s.bury(why); });
  for (const rank_t rank : lost_)
    if (!gone_.contains(rank)) rank_left(rank, 0);
}

void simulation::world::lose(rank_t rank) {
  if (dissolved_ || lost_.contains(rank) || !down_.contains(rank)) return;
  if (!perished_.contains(rank) && !breaks(mutant::lost_early, 100)) return;
  // What its DMA engine was asked for before has been done then.
  at(std::max(now_, at_rank(rank).transfers_end) + 1, [this, rank] {
    post_to_membership(message_kind::order, -5, [this, rank] {
      lost_.insert(rank);
      agreement_.lost(rank, "killed", *this);
      bury_if_quiet();
    });
  });
}

void simulation::world::dissolve() {
  if (std::exchange(dissolved_, true)) return;
  tell([] { return std::string{"the membership dissolves"}; });
  const auto why = make_failure(errc::engine_closed, "the communicator ended with this operation under way");
  for (rank_t r = 0; r < what_.ranks; ++r) {
    at_rank(r).shell_gone = true;
    post_to_rank(message_kind::order, -2, r, [why](rank_state& s, rank_outbox& o) { s.broken(why, o); });
  }
}

// -- faults from outside ------------------------------------------------------------------------------------------------------

/// The actor of a rank ends: its shell takes nothing more, and tells its rank.
void simulation::world::kill(rank_t rank) {
  member& m = at_rank(rank);
  if (dissolved_ || m.shell_gone) return;
  tell([&] { return "the actor of rank " + std::to_string(rank) + " is killed"; });
  killed_ = true;
  last_progress_ = now_;
  m.shell_gone = true;
  m.muted = mix(what_.seed ^ static_cast<std::uint64_t>(rank)) % 2 == 0;
  post_to_rank(message_kind::perish, -1, rank, [](rank_state& s, rank_outbox& o) { s.perish(o); });
  post_to_membership(message_kind::down, -6, [this, rank] {
    down_.insert(rank);
    lose(rank);
  });
}

void simulation::world::abort() {
  if (dissolved_) return;
  tell([] { return std::string{"somebody aborts the communicator"}; });
  aborted_ = true;
  last_progress_ = now_;
  const auto why = make_failure(errc::communicator_aborted, "world was aborted");
  for (rank_t r = 0; r < what_.ranks; ++r)
    post_to_rank(message_kind::order, -2, r, [why](rank_state& s, rank_outbox& o) { s.broken(why, o); });
  post_to_membership(message_kind::abort, -2, [this, why] { agreement_.abort(why, *this); });
}

}  // namespace troupe::simulate
