// SPDX-License-Identifier: Apache-2.0
// What a rank does when its split has ended, as communicator::divide() does; and the communicators that come of it. The engine's own functions and states decide
// which ranks are in which part, in which order, and which have taken their place there.

#include <algorithm>
#include <cstring>

#include "engine/tools/simulate/world.hpp"

namespace troupe::simulate {

/// What the rank's part in the protocol says that it has called.
call simulation::world::said(const caller_operation& o) {
  call what = o.what;
  if (o.it->splits() && breaks(mutant::purpose_forgotten, 100)) what.purpose = call_purpose::itself;
  return what;
}

failure_ptr simulation::world::conclude_split(caller_operation& o, epoch_t which, failure_ptr why) {
  if (course_->over) return why;
  if (why && !breaks(mutant::drop_gave_up))
    divisions_.give_up(which, o.rank, [](world* part, rank_t place) { part->gives_up(place); });
  if (!why) take_place(o, which);
  split_over(o.rank);
  return why;
}

void simulation::world::take_place(caller_operation& o, epoch_t which) {
  std::vector<std::int32_t> all(o.expected.size() / sizeof(std::int32_t));
  std::memcpy(all.data(), o.out, o.expected.size());
  const std::int32_t color = o.it->divided[2 * static_cast<std::size_t>(o.rank)];
  if (color < 0) return;
  std::vector<rank_t> members = members_of_part(all, color);
  if (breaks(mutant::members_by_rank, 100)) std::sort(members.begin(), members.end());
  check_members(o, members);
  if (!result_.ok()) return;
  const epoch_t number = breaks(mutant::split_misnumbered, 10) ? which + 1 : which;
  world* const part = divisions_.take(
      number, color, members, [&] { return make_part(o, which, members); },
      [](const world* made) { return made->members_.size(); },
      [](world* made, rank_t place) { made->gives_up(place); });
  if (part->in_whole_ != members) return fault(o.title() + ": another rank of its part has others in it");
  const auto place = static_cast<rank_t>(std::find(members.begin(), members.end(), o.rank) - members.begin());
  for (std::size_t i = 0; i < what_.items.size(); ++i)
    if (&what_.items[i] == o.it) at_rank(o.rank).places[static_cast<int>(i)] = {part, place};
  part->enter(place);
}

simulation::world* simulation::world::make_part(const caller_operation& o, epoch_t which, std::vector<rank_t> members) {
  const std::int32_t color = o.it->divided[2 * static_cast<std::size_t>(o.rank)];
  const part_of_split* const known = part_for(*o.it, color);
  scenario s = what_;
  s.seed = known != nullptr ? known->what.seed : mix(what_.seed ^ which);
  s.ranks = static_cast<int>(members.size());
  s.first = 0;
  s.leave_late = known != nullptr && known->what.leave_late;
  s.items = known != nullptr ? known->what.items : std::vector<item>{};
  s.disturbances = known != nullptr ? known->what.disturbances : std::vector<disturbance>{};
  parts_.push_back(std::unique_ptr<world>(
      new world(s, course_, this, name_ + ".split" + std::to_string(which) + '(' + std::to_string(color) + ')',
                std::move(members))));
  world& part = *parts_.back();
  for (member& m : part.members_) m.comes = false;
  part.begin();
  return &part;
}

/// The rank's caller has its communicator now, and a thread that uses it.
void simulation::world::enter(rank_t rank) {
  member& m = at_rank(rank);
  if (std::exchange(m.comes, true)) return fault("rank " + std::to_string(rank) + " takes its place twice");
  tell([&] { return "rank " + std::to_string(rank) + " takes its place"; });
  at(now_ + static_cast<nanoseconds_t>(m.thinks.below(4 * us)), [this, rank] { act(rank); });
}

void simulation::world::never_comes(rank_t rank) {
  member& m = at_rank(rank);
  if (std::exchange(m.comes, true)) return fault("rank " + std::to_string(rank) + " gives up its place after all");
  tell([&] { return "rank " + std::to_string(rank) + " never takes its place"; });
  m.steps.clear();
  finish(rank);
  leave(rank);
}

/// Its split has failed, or its process was lost before it was over.
void simulation::world::gives_up(rank_t rank) {
  const rank_t mine = in_whole_[static_cast<std::size_t>(rank)];
  if (whole_->at_rank(mine).lost) return lose_rank(rank, whole_->lost_with_);
  never_comes(rank);
}

void simulation::world::split_over(rank_t rank) {
  member& m = at_rank(rank);
  if (--m.open_splits == 0 && m.leaves) leave(rank);
}

/// The ranks that wait for what a rank calls in its part go on.
void simulation::world::program_ended(const world* part, rank_t rank) {
  const rank_t mine = part->in_whole_[static_cast<std::size_t>(rank)];
  member& m = at_rank(mine);
  if (m.awaits.in != part) return;
  m.awaits = {};
  go_on(mine);
}

}  // namespace troupe::simulate
