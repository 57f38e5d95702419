// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/shrink_agreements.hpp"

#include <algorithm>

namespace troupe::actors {

using kind = survivors_word::kind;

struct shrink_agreements::agreement {
  agreement(communicator_ptr in, std::uint32_t here)
      : of(std::move(in)),
        processes(of->processes),
        state(static_cast<std::uint32_t>(processes.size()),
              static_cast<std::uint32_t>(std::ranges::find(processes, here) - processes.begin())) {}

  /// Null: it is no participant.
  const std::uint32_t* find(std::uint32_t process) const {
    const auto at = std::lower_bound(processes.begin(), processes.end(), process);
    return at == processes.end() || *at != process ? nullptr : &*at;
  }
  std::uint32_t index_of(const std::uint32_t* found) const {
    return static_cast<std::uint32_t>(found - processes.data());
  }
  /// Ranks of the communicator, in their order; a process that speaks of its own names none of another process.
  bool can_be(std::uint32_t from, const survivors_word& what) const {
    const auto ranks = static_cast<rank_t>(of->process_of.size());
    const auto in_order = [&](const std::vector<rank_t>& list) {
      return std::is_sorted(list.begin(), list.end(), std::less_equal<>{}) &&
             (list.empty() || (list.front() >= 0 && list.back() < ranks));
    };
    return in_order(what.ranks) && in_order(what.list) &&
           std::all_of(what.ranks.begin(), what.ranks.end(),
                       [&](rank_t r) { return of->process_of[static_cast<std::size_t>(r)] == from; });
  }

  communicator_ptr of;
  const std::vector<std::uint32_t>& processes;
  survivors state;
};

/// Names processes where the agreement counts participants.
struct shrink_agreements::voice final : survivors::outbox {
  voice(shrink_agreements& d, const key& of, const agreement& a, shrink_agreements::outbox& to)
      : agreements(d), which(of), in(a), out(to) {}
  void send(std::uint32_t to, survivors_word what) override {
    out.send(in.processes[to], which.first, {which.second, std::move(what)});
  }
  void decided(const std::vector<rank_t>& members) override {
    agreements.decided_.push_back(which);
    if (in.state.has_contributed()) out.answered(which.first, which.second, members, nullptr);
  }
  shrink_agreements& agreements;
  key which;
  const agreement& in;
  shrink_agreements::outbox& out;
};

// -- communicators ----------------------------------------------------------------------------------------------------------

void shrink_agreements::enter(communicator_id of, std::span<const std::uint32_t> process_of, parentage from) {
  const auto made = std::make_shared<communicator>();
  made->process_of.assign(process_of.begin(), process_of.end());
  made->processes = made->process_of;
  std::sort(made->processes.begin(), made->processes.end());
  made->processes.erase(std::unique(made->processes.begin(), made->processes.end()), made->processes.end());
  made->from = std::move(from);
  here_now_.insert_or_assign(of, made);
}

void shrink_agreements::all_left(communicator_id of, outbox& out) {
  const auto mine = here_now_.find(of);
  if (mine == here_now_.end()) return;
  mine->second->left = true;
  for (auto at = agreements_.lower_bound({of, 0}); at != agreements_.end() && at->first.first == of;) {
    const agreement& all = *at->second;
    if (all.state.has_contributed()) {
      ++at;
      continue;
    }
    for (std::uint32_t p = 0; p < all.processes.size(); ++p)
      if (all.processes[p] != here_ && !all.state.is_gone(p))
        out.send(all.processes[p], of, {at->first.second, {kind::absent, 0, 0, {}, {}}});
    at = agreements_.erase(at);
  }
}

void shrink_agreements::forget(communicator_id of, outbox& out) {
  all_left(of, out);
  here_now_.erase(of);
}

// -- agreements -------------------------------------------------------------------------------------------------------------

/// @pre there is none yet
void shrink_agreements::begin(const key& which, const communicator_ptr& of, outbox& out) {
  const auto made = std::make_shared<agreement>(of, here_);
  agreements_.insert_or_assign(which, made);
  voice says(*this, which, *made, out);
  for (std::uint32_t p = 0; p < made->processes.size(); ++p)
    if (lost_.contains(made->processes[p]) || of->lost.contains(made->processes[p])) made->state.lost(p, says);
  bound();
}

/// A process that has not heard of so many later agreements is not going to ask for an older one.
void shrink_agreements::bound() {
  for (; decided_.size() > most_decided; decided_.pop_front()) agreements_.erase(decided_.front());
}

void shrink_agreements::contribute(communicator_id of, std::uint64_t number, std::vector<rank_t> mine, outbox& out) {
  if (!expelled_.empty()) return out.answered(of, number, {}, make_failure(errc::peer_lost, expelled_));
  const key which{of, number};
  auto at = agreements_.find(which);
  if (at == agreements_.end()) {
    const auto known = here_now_.find(of);
    if (known == here_now_.end() || known->second->left)
      return out.answered(of, number, {}, make_failure(errc::communicator_aborted, "the communicator has ended"));
    begin(which, known->second, out);
    at = agreements_.find(which);
  }
  const std::shared_ptr<agreement> all = at->second;
  if (const auto& answer = all->state.answer()) return out.answered(of, number, *answer, nullptr);
  voice says(*this, which, *all, out);
  all->state.contribute(std::move(mine), says);
}

shrink_agreements::reception shrink_agreements::heard(std::uint32_t from, communicator_id of, const shrink_word& what,
                                                      bool over, outbox& out) {
  if (!expelled_.empty()) return reception::taken;
  const key which{of, what.number};
  auto at = agreements_.find(which);
  if (at == agreements_.end()) {
    const bool asks = what.what.what == kind::ready || what.what.what == kind::ask || what.what.what == kind::propose;
    if (!asks) return reception::taken;  // to those who have asked; here nobody has, or it is over
    const auto known = here_now_.find(of);
    if (known == here_now_.end() && !over) return reception::early;
    if (known == here_now_.end() || known->second->left) {
      out.send(from, of, {what.number, {kind::absent, 0, 0, {}, {}}});
      return reception::taken;
    }
    if (const agreement asked{known->second, here_}; asked.find(from) == nullptr || !asked.can_be(from, what.what))
      return reception::nonsense;
    begin(which, known->second, out);
    at = agreements_.find(which);
  }
  const std::shared_ptr<agreement> all = at->second;
  const std::uint32_t* const participant = all->find(from);
  if (participant == nullptr || !all->can_be(from, what.what)) return reception::nonsense;
  voice says(*this, which, *all, out);
  all->state.heard(all->index_of(participant), what.what, says);
  return reception::taken;
}

void shrink_agreements::lost(std::uint32_t process, outbox& out) {
  lost_.insert(process);
  if (!expelled_.empty()) return;
  for (const auto& [which, all] : agreements_)
    if (const std::uint32_t* const participant = all->find(process)) {
      voice says(*this, which, *all, out);
      all->state.lost(all->index_of(participant), says);
    }
}

void shrink_agreements::lost_for(communicator_id of, std::uint32_t process, outbox& out) {
  if (const auto known = here_now_.find(of); known != here_now_.end()) known->second->lost.insert(process);
  if (!expelled_.empty()) return;
  for (auto at = agreements_.lower_bound({of, 0}); at != agreements_.end() && at->first.first == of; ++at)
    if (const std::uint32_t* const participant = at->second->find(process)) {
      voice says(*this, at->first, *at->second, out);
      at->second->state.lost(at->second->index_of(participant), says);
    }
}

void shrink_agreements::gave_up(communicator_id whole, epoch_t split, rank_t rank, outbox& out) {
  std::map<communicator_id, communicator_ptr> parts;
  const auto add = [&](communicator_id of, const communicator_ptr& part) {
    if (part->from.whole == whole && part->from.split == split) parts.emplace(of, part);
  };
  for (const auto& [of, part] : here_now_) add(of, part);
  for (const auto& [which, all] : agreements_) add(which.first, all->of);
  for (const auto& [of, part] : parts)
    if (const auto process = part->empty.add(rank, part->from.in_whole, part->process_of)) lost_for(of, *process, out);
}

void shrink_agreements::expelled(const std::string& why, outbox& out) {
  if (!expelled_.empty()) return;
  expelled_ = why;
  for (const auto& [which, all] : agreements_)
    if (all->state.has_contributed() && !all->state.answer())
      out.answered(which.first, which.second, {}, make_failure(errc::peer_lost, why));
}

std::size_t shrink_agreements::open() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(agreements_, [](const auto& each) { return !each.second->state.answer(); }));
}

std::vector<std::uint32_t> shrink_agreements::missing(communicator_id of, std::uint64_t number) const {
  const auto at = agreements_.find({of, number});
  if (at == agreements_.end()) return {};
  std::vector<std::uint32_t> result;
  for (const std::uint32_t index : at->second->state.missing()) result.push_back(at->second->processes[index]);
  return result;
}

}  // namespace troupe::actors
