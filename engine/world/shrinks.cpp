// SPDX-License-Identifier: Apache-2.0
#include "engine/world/shrinks.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "actors/caf/job_links.hpp"
#include "engine/world/communicator_state.hpp"

namespace troupe {

/// @pre locked
bool shrinks::all_settled(const communicator_state& of, const round& r) const {
  return std::ranges::all_of(of.table->cells(),
                             [&](const auto& cell) { return r.came.contains(cell->rank()) || has_left(cell->rank()); });
}

shrinks::round_ptr shrinks::come(const std::shared_ptr<communicator_state>& of, rank_t rank) {
  round_ptr mine;
  bool settled = false;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = next_[rank];
    round_ptr& at = rounds_[number];
    if (!at) {
      at = std::make_shared<round>();
      at->number = number;
      if (closed_) at->done->complete(closed_);
    }
    mine = at;
    mine->came.insert(rank);
    if (!mine->contributed && !closed_ && all_settled(*of, *mine)) settled = mine->contributed = true;
  }
  if (settled) contribute(of, mine);
  return mine;
}

/// @pre not locked: what is said may be answered at once
void shrinks::contribute(const std::shared_ptr<communicator_state>& of, const round_ptr& which) {
  std::vector<rank_t> ranks;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::remove_copy_if(which->came, std::back_inserter(ranks), [&](rank_t r) { return has_left(r); });
  }
  if (of->process_of.empty()) return decided(*of, which, ranks, nullptr);
  if (ranks.empty()) return;  // all have left, which the others hear without this
  of->core->runtime->job()->contribute(of->members, which->number, std::move(ranks),
                                       [of, which](const std::vector<rank_t>& members, const failure_ptr& why) {
                                         of->shrunk.decided(*of, which, members, why);
                                       });
}

void shrinks::decided(communicator_state& of, const round_ptr& which, const std::vector<rank_t>& members,
                      const failure_ptr& why) {
  std::vector<rank_t> gone;  // after they had come
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(which->answered, true)) return;
    which->members = members;
    std::ranges::copy_if(which->came, std::back_inserter(gone), [&](rank_t r) { return closed_ || has_left(r); });
    which->took.insert(gone.begin(), gone.end());
    which->done->complete(why);
    if (which->took.size() == which->came.size()) rounds_.erase(which->number);
  }
  for (const rank_t rank : gone)
    if (std::ranges::binary_search(members, rank)) of.give_up(name_of(*which), rank);
}

bool shrinks::take(const round_ptr& which, rank_t rank) {
  const std::lock_guard lock(mutex_);
  next_[rank] = which->number + 1;
  const bool fresh = which->took.insert(rank).second;
  if (which->took.size() == which->came.size() && which->contributed) rounds_.erase(which->number);
  return fresh;
}

void shrinks::leave(const std::shared_ptr<communicator_state>& of, rank_t rank) {
  std::vector<round_ptr> settled, abandoned;
  {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(rank)] = true;
    for (const auto& [number, r] : rounds_) {
      if (!r->contributed && all_settled(*of, *r)) {
        r->contributed = true;
        settled.push_back(r);
      } else if (r->answered && r->came.contains(rank) && r->took.insert(rank).second) {
        abandoned.push_back(r);
      }
    }
    for (const round_ptr& r : abandoned)
      if (r->took.size() == r->came.size()) rounds_.erase(r->number);
  }
  for (const round_ptr& r : settled) contribute(of, r);
  for (const round_ptr& r : abandoned)
    if (!r->done->why() && std::ranges::binary_search(r->members, rank)) of->give_up(name_of(*r), rank);
}

void shrinks::close(communicator_state& of, const failure_ptr& why) {
  std::vector<std::pair<round_ptr, rank_t>> untaken;
  {
    const std::lock_guard lock(mutex_);
    closed_ = why;
    for (const auto& [number, r] : rounds_) {
      r->done->complete(why);
      if (!r->answered || r->done->why()) continue;
      for (const rank_t rank : r->came)
        if (std::ranges::binary_search(r->members, rank) && r->took.insert(rank).second) untaken.emplace_back(r, rank);
    }
  }
  for (const auto& [r, rank] : untaken) of.give_up(name_of(*r), rank);
}

std::vector<rank_t> shrinks::missing(const communicator_state& of, const round& which) const {
  const std::lock_guard lock(mutex_);
  std::vector<rank_t> result;
  for (const auto& cell : of.table->cells())
    if (!which.came.contains(cell->rank()) && !has_left(cell->rank())) result.push_back(cell->rank());
  return result;
}

std::vector<rank_t> shrinks::overdue(round& which) {
  const std::lock_guard lock(mutex_);
  std::vector<rank_t> result;
  if (which.done->done() || std::exchange(which.told, true)) return result;
  std::ranges::remove_copy_if(which.came, std::back_inserter(result), [&](rank_t r) { return has_left(r); });
  return result;
}

}  // namespace troupe
