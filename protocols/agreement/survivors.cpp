// SPDX-License-Identifier: Apache-2.0
#include "protocols/agreement/survivors.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

using kind = survivors_word::kind;

survivors::survivors(std::uint32_t participants, std::uint32_t here)
    : here_(here), gone_(participants), asks_(participants), promises_(participants) {}

std::uint32_t survivors::coordinator() const {
  std::uint32_t first = 0;
  while (first != here_ && gone_[first]) ++first;
  return first;
}

/// All who are not gone are in it.
bool survivors::all_here(const std::set<std::uint32_t>& who) const {
  for (std::uint32_t p = 0; p < gone_.size(); ++p)
    if (!gone_[p] && !who.contains(p)) return false;
  return true;
}

void survivors::to_others(const survivors_word& what, outbox& out) const {
  for (std::uint32_t p = 0; p < gone_.size(); ++p)
    if (p != here_ && !gone_[p]) out.send(p, what);
}

// -- transitions ------------------------------------------------------------------------------------------------------------

void survivors::contribute(std::vector<rank_t> mine, outbox& out) {
  if (mine_) return;
  mine_ = std::move(mine);
  turn(out);
}

void survivors::lost(std::uint32_t participant, outbox& out) {
  if (participant == here_ || gone_[participant]) return;
  gone_[participant] = true;
  std::erase(lacked_, participant);
  turn(out);
}

void survivors::heard(std::uint32_t from, const survivors_word& what, outbox& out) {
  if (from == here_ || from >= gone_.size() || gone_[from]) return;
  if (decided_) {
    // It asks because it does not know yet.
    if (what.what == kind::absent) return lost(from, out);
    if (what.what == kind::ready || what.what == kind::ask || what.what == kind::propose)
      out.send(from, {kind::decide, 0, 0, {}, *decided_});
    return;
  }
  if (what.what == kind::ready || what.what == kind::ask) asks_[from] = true;
  switch (what.what) {
    case kind::ready: return promised(from, what, out);
    case kind::ask: return turn(out);
    case kind::waiting:
      lacked_.clear();
      for (const rank_t p : what.list)
        if (p >= 0 && static_cast<std::size_t>(p) < gone_.size() && !gone_[static_cast<std::size_t>(p)])
          lacked_.push_back(static_cast<std::uint32_t>(p));
      return;
    case kind::propose: return proposed(from, what, out);
    case kind::accept:
      if (attempt_ == 0 || what.coordinator != here_ || what.attempt != attempt_) return;
      acceptors_.insert(from);
      return accepted_by_all(out);
    case kind::decide: return decide(what.list, out);
    case kind::absent: return lost(from, out);
  }
}

/// Sends the coordinator what there is to say now.
void survivors::turn(outbox& out) {
  const std::uint32_t to = coordinator();
  if (to != here_) {
    if (promised_to_ == to || (!mine_ && !decided_)) return;
    promised_to_ = to;
    lacked_.clear();
    if (decided_) out.send(to, {kind::decide, 0, 0, {}, *decided_});
    else out.send(to, {kind::ready, accepted_.coordinator, accepted_.attempt, *mine_, accepted_list_});
    return;
  }
  if (decided_) return;  // the others say `ready`, and are told
  ask_for_promises(out);
  if (!mine_) return;
  promises_[here_] = promise{*mine_, accepted_, accepted_list_};
  propose(out);
}

// -- the coordinator --------------------------------------------------------------------------------------------------------

/// Those who have said nothing may have nothing to say.
void survivors::ask_for_promises(outbox& out) {
  std::vector<rank_t> missing;
  for (std::uint32_t p = 0; p < gone_.size(); ++p) {
    if (gone_[p] || (p == here_ ? mine_.has_value() : promises_[p].has_value())) continue;
    missing.push_back(static_cast<rank_t>(p));
    if (p != here_ && asked_.insert(p).second) out.send(p, {kind::ask, 0, 0, {}, {}});
  }
  if (missing.empty() || missing.size() > most_named) return;
  for (std::uint32_t p = 0; p < gone_.size(); ++p)
    if (p != here_ && !gone_[p] && promises_[p]) out.send(p, {kind::waiting, 0, 0, {}, missing});
}

void survivors::promised(std::uint32_t from, const survivors_word& what, outbox& out) {
  promises_[from] = promise{what.ranks, {what.coordinator, what.attempt}, what.list};
  // It may have lost those before this one earlier; their loss is heard here, too.
  if (coordinator() == here_) turn(out);
}

/// If all have said `ready`. Also again, when somebody has gone since.
void survivors::propose(outbox& out) {
  for (std::uint32_t p = 0; p < gone_.size(); ++p)
    if (!gone_[p] && !promises_[p]) return;
  std::vector<rank_t> members;
  if (attempt_ == 0) {
    ballot last;
    for (std::uint32_t p = 0; p < gone_.size(); ++p)
      if (promises_[p] && promises_[p]->accepted.attempt > 0 && promises_[p]->accepted >= last) {
        inherited_ = true;
        last = promises_[p]->accepted;
        members = promises_[p]->list;
      }
  }
  if (inherited_ && attempt_ > 0) return accepted_by_all(out);
  if (!inherited_) {
    for (std::uint32_t p = 0; p < gone_.size(); ++p)
      if (!gone_[p]) members.insert(members.end(), promises_[p]->ranks.begin(), promises_[p]->ranks.end());
    std::sort(members.begin(), members.end());
    if (attempt_ > 0 && members == proposal_) return accepted_by_all(out);
  }
  ++attempt_;
  proposal_ = accepted_list_ = members;
  accepted_ = {here_, attempt_};
  acceptors_ = {here_};
  to_others({kind::propose, here_, attempt_, {}, proposal_}, out);
  accepted_by_all(out);
}

void survivors::accepted_by_all(outbox& out) {
  if (all_here(acceptors_)) decide(proposal_, out);
}

// -- everybody --------------------------------------------------------------------------------------------------------------

void survivors::proposed(std::uint32_t from, const survivors_word& what, outbox& out) {
  // A coordinator that proposes has our promise, else it would wait for it; proposals that it has replaced since come before this one.
  if (promised_to_ != from || coordinator() != from || what.coordinator != from) return;
  const ballot of{what.coordinator, what.attempt};
  if (of <= accepted_) return;
  accepted_ = of;
  accepted_list_ = what.list;
  out.send(from, {kind::accept, of.coordinator, of.attempt, {}, {}});
}

void survivors::decide(const std::vector<rank_t>& members, outbox& out) {
  decided_ = members;
  // Those who have asked before, because they do not count on the same ones, ask no more.
  const bool tells_all = coordinator() == here_;
  for (std::uint32_t p = 0; p < gone_.size(); ++p)
    if (p != here_ && !gone_[p] && (tells_all || asks_[p])) out.send(p, {kind::decide, 0, 0, {}, *decided_});
  out.decided(*decided_);
}

std::vector<std::uint32_t> survivors::missing() const {
  if (decided_) return {};
  const std::uint32_t first = coordinator();
  if (first != here_) return lacked_.empty() ? std::vector{first} : lacked_;
  std::vector<std::uint32_t> result;
  for (std::uint32_t p = 0; p < gone_.size(); ++p)
    if (!gone_[p] && (p == here_ ? !mine_ : !promises_[p])) result.push_back(p);
  return result;
}

}  // namespace troupe
