// SPDX-License-Identifier: Apache-2.0
// What must hold in a simulated job: while it runs, and in the end.

#include <algorithm>
#include <utility>

#include "engine/tools/simulate/job_world.hpp"

namespace troupe::simulate {

void job_world::check_failure(const process& p, const failure& why) {
  const std::string who = "process " + std::to_string(p.here) + " fails with \"" + why.text + "\"";
  if (disturbed_.empty() && !unnamed_) return fault(who + " although nothing has happened");
  // A rank that has left because of it may be heard of first, and the loss then ends what was asked of that rank.
  if (why.code == errc::rank_missing && why.text.find(" left the communicator ") != std::string::npos) return;
  if (divides() && (why.code == errc::revoked || why.code == errc::out_of_memory)) return;
  if (why.code != errc::peer_lost) return fault(who + ", which is no loss");
  const auto names = [&](int d) { return why.text.find("process " + std::to_string(d) + " (") != std::string::npos; };
  // Of several that things happen to, one may be the reason that others are lost; and two that do not reach each other do not agree on who that is.
  const bool named = std::any_of(disturbed_.begin(), disturbed_.end(), names);
  if (happened_ == 1 && !unnamed_ && disturbed_.size() == 1 && !disturbed_.contains(p.here) && !named)
    fault(who + ", which names nobody to whom something has happened");
}

/// All processes that have a part of that name have the same part, and no two parts have one name.
void job_world::check_division(const member& part) {
  const division mine{part.whole, part.split, part.color, part.world_rank};
  const auto [at, fresh] = divisions_.emplace(part.id, mine);
  const division& known = at->second;
  if (std::tie(known.whole, known.which, known.color) != std::tie(mine.whole, mine.which, mine.color))
    return fault(part.name + " has the name of another part");
  if (known.members != mine.members) fault(part.name + " has other ranks, or in another order, in another process");
}

/// Processes that live and count on each other have one answer, which names none that never came, and leaves out none that is not taken for lost.
void job_world::check_answers() {
  // Only a network that fails makes two parts that both go on.
  const auto apart = [&](std::uint32_t p, std::uint32_t q) {
    return at_number(p).expelled || at_number(q).expelled || (network_fails_ && (has_lost(p, q) || has_lost(q, p)));
  };
  for (const auto& [which, answers] : answers_) {
    const by_process& came = contributions_[which];
    const std::string title = "shrink " + std::to_string(which.second) + ": ";
    for (const auto& [p, answer] : answers) {
      if (at_number(p).dead) continue;
      std::set<rank_t> all;
      for (const auto& [q, ranks] : came) all.insert(ranks.begin(), ranks.end());
      for (const rank_t r : answer)
        if (!all.contains(r)) fault(title + "rank " + std::to_string(r) + " never came and is left");
      // A process that another one has taken for lost may be left out; it hears an answer without it all the same.
      const bool suspected = at_number(p).expelled || std::ranges::any_of(all_, [&, here = p](const auto& q) {
                               return has_lost(static_cast<std::uint32_t>(q->here), here);
                             });
      if (const auto mine = came.find(p);
          mine != came.end() && !suspected && !std::ranges::includes(answer, mine->second))
        fault(title + "process " + std::to_string(p) + " is left out");
      for (const auto& [q, other] : answers)
        if (!at_number(q).dead && !apart(p, q) && answer != other)
          fault(title + "processes " + std::to_string(p) + " and " + std::to_string(q) + " have two answers");
    }
  }
}

/// A process that the others have lost and go on without knows it, if the network lets it.
void job_world::check_one_goes_on() {
  if (network_fails_) return;
  for (const auto& p : all_)
    for (const auto& q : all_)
      if (!p->dead && !q->dead && !p->expelled && !q->expelled &&
          has_lost(static_cast<std::uint32_t>(q->here), static_cast<std::uint32_t>(p->here)))
        fault("process " + std::to_string(p->here) + " goes on, and so does process " + std::to_string(q->here) +
              ", which has lost it");
}

bool job_world::has_lost(std::uint32_t p, std::uint32_t q) {
  const auto& lost = at_number(p).lost;
  const auto at = lost.find(q);
  return at != lost.end() && at->second != "it left the job";
}

void job_world::check_end() {
  for (const auto& p : all_) {
    if (p->dead) continue;
    const std::string who = "process " + std::to_string(p->here);
    for (const auto& c : p->callers) {
      const std::string rank = who + ", rank " + std::to_string(c->world_rank);
      if (c->waits.of != nullptr) {
        std::string whom;
        for (const std::uint32_t q : p->agreements.missing(c->waits.of->id, c->waits.number))
          whom += " " + std::to_string(q);
        for (const rank_t r : c->waits.of->rounds.missing(c->waits.number)) whom += " its rank " + std::to_string(r);
        fault(rank + " waits for ever for shrink " + std::to_string(c->waits.number) + " of " + c->waits.of->name +
              ": for" + whom);
      } else if (c->open > 0) {
        fault(rank + " waits for ever in " + c->has.back().in->name);
      }
      for (const auto& each : c->parts)
        if (each->over && !each->spoilt()) fault(rank + ": a buffer was written after its caller had it back");
    }
    for (const auto& m : p->members) {
      if (!m->ended) fault(who + ": " + m->name + " does not end");
      if (m->parts.open() > 0) fault(who + ": " + m->name + " keeps parts that nobody takes");
    }
    if (!divides() || !result_.ok()) continue;
    // Others may still have agreed on what a rank that has gone waited for, when the process had left the job.
    if (!p->expelled && p->agreements.open() > p->gone_in_vain) fault(who + " keeps agreements that nobody waits for");
    if (p->early.waiting() > given_up_) fault(who + " keeps frames for communicators that never come");
  }
  check_answers();
  check_one_goes_on();
}

}  // namespace troupe::simulate
