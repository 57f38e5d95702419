// SPDX-License-Identifier: Apache-2.0
// What a simulated rank does when its split has ended, when something has failed, and in a shrink: as engine/api and engine/world do. The engine's own states decide
// which ranks are in which part, which have taken a place there and which are left.

#include <algorithm>
#include <utility>

#include "engine/tools/simulate/job_world.hpp"

namespace troupe::simulate {

/// The rank comes no more.
void job_world::leave_part(member& part, rank_t place) {
  shrink_rounds::to_do next;
  part.rounds.leave(place, next);
  perform(part, next);
  to_rank(part, place, [](rank_state& s, rank_outbox& o) { s.leave(o); });
}

/// As communicator_state::give_up().
void job_world::give_up(member& whole, epoch_t which, rank_t rank) {
  tell(whole.name + ": rank " + std::to_string(rank) + " gives up its part of " + std::to_string(which));
  unnamed_ = true;
  ++given_up_;
  if (!whole.local && !is(job_mutant::gave_up_unsaid))
    to_others(whole, [world = this, id = whole.id, which, rank](process& there) {
      there.given_up.add(id, which, rank);
      there.agreements.gave_up(id, which, rank, *there.agreements_say);
      for (const auto& [number, m] : std::map{there.communicators})
        if (m->whole == id && m->split == which) world->never_comes(*m, rank);
    });
  whole.parts.give_up(which, rank, [this](member* part, rank_t place) {
    if (is(job_mutant::untaken_awaited)) to_rank(*part, place, [](rank_state& s, rank_outbox& o) { s.leave(o); });
    else leave_part(*part, place);
  });
}

/// The part that `members` make: what communicator_state::part_for() and engine_core::found() make. As the first rank here takes its place.
void job_world::make_of(member& whole, member& part, epoch_t which, std::span<const rank_t> members) {
  part.whole = whole.id;
  part.split = which;
  part.in_whole.assign(members.begin(), members.end());
  part.depth = whole.depth + 1;
  check_division(part);
  enter(part);
}

failure_ptr job_world::conclude_split(caller& c, member& whole, rank_t rank, epoch_t which, failure_ptr why,
                                      std::span<const std::int32_t> all, std::int32_t color) {
  if (c.in->dead) return why;
  if (why) {
    give_up(whole, which, rank);
    return why;
  }
  if (color < 0) return nullptr;
  dice d(seed_, {0x63, whole.id, which, static_cast<std::uint64_t>(rank)});
  if (options_.faults && d.one_in(20)) {
    disturbed_.insert(c.in->here);
    result_.story += "rank " + std::to_string(rank) + " of " + whole.name + " has no memory for its part; ";
    give_up(whole, which, rank);
    return make_failure(errc::out_of_memory, "the communicator cannot be made");
  }
  const std::vector<rank_t> members = members_of_part(all, color);
  member* const part = whole.parts.take(
      which, color, members,
      [&] {
        std::vector<std::uint32_t> process_of;
        std::vector<int> world_rank;
        for (const rank_t r : members) {
          process_of.push_back(whole.process_of[static_cast<std::size_t>(r)]);
          world_rank.push_back(whole.world_rank[static_cast<std::size_t>(r)]);
        }
        c.in->members.push_back(std::make_unique<member>(
            *this, *c.in, whole.name + ".split" + std::to_string(which) + "(" + std::to_string(color) + ")",
            identity_of_part(whole.id, which, color), std::move(process_of), std::move(world_rank)));
        c.in->members.back()->color = color;
        make_of(whole, *c.in->members.back(), which, members);
        return c.in->members.back().get();
      },
      [](const member* made) { return made->ranks_here.size(); },
      [this](member* made, rank_t place) {
        if (is(job_mutant::untaken_awaited)) to_rank(*made, place, [](rank_state& s, rank_outbox& o) { s.leave(o); });
        else leave_part(*made, place);
      });
  if (part->in_whole != members) fault(whole.name + ": another rank of its part has others in it");
  push(c, *part, static_cast<rank_t>(std::ranges::find(members, rank) - members.begin()));
  return nullptr;
}

/// The rank has its place. All that have one call the same there.
void job_world::push(caller& c, member& part, rank_t rank) {
  tell(part.name + ": rank " + std::to_string(rank) + " takes its place");
  dice d(seed_, {0x42, part.id});
  c.has.push_back({&part, rank, 0, d.between(0, 4)});
}

// -- shrink ----------------------------------------------------------------------------------------------------------------

/// Most go on with those that are left, as programs do; some leave. A failure without a loss has not ended what the others wait for: it is revoked first.
void job_world::after_failure(caller& c) {
  caller::communicator& now = c.has.back();
  dice d(seed_, {0x64, now.in->id, static_cast<std::uint64_t>(c.world_rank), static_cast<std::uint64_t>(now.shrunk)});
  const bool stays = divides() && now.shrunk < 3 && now.in->depth < 8 && !c.in->expelled && !d.one_in(10);
  if (divides() && (now.why->code != errc::peer_lost || d.one_in(4))) {
    unnamed_ = true;
    const auto why = make_failure(errc::revoked, now.in->name + " was revoked by rank " + std::to_string(now.rank));
    if (!now.in->local)
      to_others(*now.in, [this, id = now.in->id, from = static_cast<std::uint32_t>(c.in->here), why](process& there) {
        const to_member frame = [this, why](member& m) { abort(m, why); };
        if (member* const m = find_or_keep(there, from, id, frame)) frame(*m);
      });
    abort(*now.in, why);
  }
  if (stays) return shrink(c, true);
  leave(c);
}

/// @param replaces the communicator is left for what comes of it; else its caller comes back to it
void job_world::shrink(caller& c, bool replaces) {
  caller::communicator& now = c.has.back();
  member& m = *now.in;
  shrink_rounds::to_do next;
  const std::uint64_t number = m.rounds.come(now.rank, next);
  const std::uint64_t ticket = ++c.tickets;
  c.waits = {&m, number, ticket, replaces};
  ++now.shrunk;
  tell(m.name + ": rank " + std::to_string(now.rank) + " comes to shrink " + std::to_string(number));
  dice d(seed_, {0x65, m.id, number, static_cast<std::uint64_t>(c.world_rank), ticket});
  if (m.outcomes.contains(number)) at_process(c.in->here, [this, &c](process&) { shrunk(c, true); });
  else if (d.one_in(6))
    at(now_ + static_cast<time_ns>(d.below(20 * ms)), [this, &c, ticket] {
      at_process(c.in->here, [this, &c, ticket](process&) {
        if (c.waits.of != nullptr && c.waits.ticket == ticket && !c.waits.of->outcomes.contains(c.waits.number))
          shrunk(c, false);
      });
    });
  perform(m, next);
}

/// As shrinks::perform().
void job_world::perform(member& m, const shrink_rounds::to_do& what) {
  for (const auto& [number, ranks] : what.say) {
    tell(m.name + ": process " + std::to_string(m.in.here) + " takes part in shrink " + std::to_string(number));
    contributions_[{m.id, number}][static_cast<std::uint32_t>(m.in.here)] = ranks;
    if (m.local) decided(m, number, ranks, nullptr);
    else m.in.agreements.contribute(m.id, number, ranks, *m.in.agreements_say);
  }
  for (const auto& [number, rank] : what.given_up) give_up(m, shrink_rounds::name_of(number), rank);
}

void job_world::decided(member& m, std::uint64_t number, const std::vector<rank_t>& members, const failure_ptr& why) {
  std::string text;
  for (const rank_t r : members) text += " " + std::to_string(r);
  tell(m.name + ": process " + std::to_string(m.in.here) + " hears of shrink " + std::to_string(number) + ":" +
       (why ? " " + why->text : text));
  if (!why) {
    const auto [at, fresh] = answers_[{m.id, number}].emplace(static_cast<std::uint32_t>(m.in.here), members);
    if (!fresh) fault(m.name + ": process " + std::to_string(m.in.here) + " hears two answers");
  }
  shrink_rounds::to_do next;
  m.rounds.decided(number, members, why, next);
  if (!next.over.empty()) m.outcomes[number] = {members, why};
  perform(m, next);
  for (const auto& c : m.in.callers)
    if (c->waits.of == &m && c->waits.number == number)
      at_process(m.in.here, [this, caller = c.get()](process&) { shrunk(*caller, true); });
}

/// What communicator::shrink() does when its wait is over.
void job_world::shrunk(caller& c, bool in_time) {
  if (c.waits.of == nullptr) return;
  const auto waited = std::exchange(c.waits, {});
  member& m = *waited.of;
  caller::communicator& now = c.has.back();
  const rank_t rank = now.rank;
  dice d(seed_, {0x66, m.id, waited.number, static_cast<std::uint64_t>(c.world_rank), waited.ticket});
  if (!in_time) {  // it waits once more, or has enough
    tell(m.name + ": rank " + std::to_string(rank) + " has waited for shrink " + std::to_string(waited.number) +
         " in vain");
    if (!d.one_in(4)) return shrink(c, waited.replaces);
    unnamed_ = true;
    ++c.in->gone_in_vain;
    now.failed = true;
    return leave(c);
  }
  const member::outcome of = m.outcomes.at(waited.number);
  const epoch_t as = shrink_rounds::name_of(waited.number);
  const bool has_place = m.rounds.take(waited.number, rank);
  if (of.why || !has_place) {
    if (of.why && of.why->code != errc::peer_lost) fault(m.name + ": a shrink ends with " + of.why->text);
    now.failed = true;
    now.why = of.why;
    return leave(c);
  }
  const auto at = std::ranges::lower_bound(of.members, rank);
  const bool left_out = at == of.members.end() || *at != rank;
  // The same at all, as at_least is: too few for them, who try again.
  dice all(seed_, {0x67, m.id, waited.number});
  const bool too_few = all.one_in(8) && waited.number < 2;
  const bool no_memory = options_.faults && d.one_in(30);
  if (left_out || too_few || no_memory) {
    if (no_memory && !left_out && !too_few) {
      disturbed_.insert(c.in->here);
      result_.story += "rank " + std::to_string(rank) + " of " + m.name + " has no memory for what is left; ";
    }
    give_up(m, as, rank);
    if (too_few && !left_out) return shrink(c, waited.replaces);
    now.failed = true;
    return leave(c);
  }
  member* const part = m.parts.take(
      as, 0, of.members,
      [&] {
        std::vector<std::uint32_t> process_of;
        std::vector<int> world_rank;
        for (const rank_t r : of.members) {
          process_of.push_back(m.process_of[static_cast<std::size_t>(r)]);
          world_rank.push_back(m.world_rank[static_cast<std::size_t>(r)]);
        }
        const std::uint64_t id =
            is(job_mutant::rest_unnamed) ? identity_of_part(m.id, as, 0) : identity_of_rest(m.id, as, of.members);
        c.in->members.push_back(std::make_unique<member>(*this, *c.in,
                                                         m.name + ".shrink" + std::to_string(waited.number + 1), id,
                                                         std::move(process_of), std::move(world_rank)));
        make_of(m, *c.in->members.back(), as, of.members);
        return c.in->members.back().get();
      },
      [](const member* made) { return made->ranks_here.size(); },
      [this](member* made, rank_t place) { leave_part(*made, place); });
  const auto place = static_cast<rank_t>(at - of.members.begin());
  if (waited.replaces) {  // comm = comm.shrink()
    c.has.pop_back();
    push(c, *part, place);
    leave_part(m, rank);
  } else {
    push(c, *part, place);
  }
  go_on(c);
}

}  // namespace troupe::simulate
