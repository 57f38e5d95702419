// SPDX-License-Identifier: Apache-2.0
#include "engine/world/shrinks.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "actors/caf/job_links.hpp"
#include "engine/world/communicator_state.hpp"

namespace troupe {

bool shrinks::all_settled(const communicator_state& of, const round& r, const std::set<rank_t>& left) {
  return std::ranges::all_of(of.table->cells(), [&](const auto& cell) {
    return r.came.contains(cell->rank()) || left.contains(cell->rank());
  });
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
    if (!mine->contributed && !closed_ && all_settled(*of, *mine, left_)) settled = mine->contributed = true;
  }
  if (settled) contribute(of, mine);
  return mine;
}

/// @pre not locked: what is said may be answered at once
void shrinks::contribute(const std::shared_ptr<communicator_state>& of, const round_ptr& which) {
  std::vector<rank_t> ranks;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::set_difference(which->came, left_, std::back_inserter(ranks));
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
    if (which->done->done()) return;
    which->members = members;
    std::ranges::set_intersection(which->came, left_, std::back_inserter(gone));
    which->took.insert(gone.begin(), gone.end());
    which->done->complete(why);
    if (which->took.size() == which->came.size()) rounds_.erase(which->number);
  }
  for (const rank_t rank : gone)
    if (std::ranges::binary_search(members, rank)) of.give_up(name_of(*which), rank);
}

void shrinks::took(const round_ptr& which, rank_t rank) {
  const std::lock_guard lock(mutex_);
  next_[rank] = which->number + 1;
  which->took.insert(rank);
  if (which->took.size() == which->came.size() && which->contributed) rounds_.erase(which->number);
}

void shrinks::leave(const std::shared_ptr<communicator_state>& of, rank_t rank) {
  std::vector<round_ptr> settled, abandoned;
  {
    const std::lock_guard lock(mutex_);
    left_.insert(rank);
    for (const auto& [number, r] : rounds_) {
      if (!r->contributed && all_settled(*of, *r, left_)) {
        r->contributed = true;
        settled.push_back(r);
      } else if (r->done->done() && r->came.contains(rank) && r->took.insert(rank).second) {
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

void shrinks::close(const failure_ptr& why) {
  const std::lock_guard lock(mutex_);
  closed_ = why;
  for (const auto& [number, r] : rounds_) r->done->complete(why);
}

std::vector<rank_t> shrinks::missing(const communicator_state& of, const round& which) const {
  const std::lock_guard lock(mutex_);
  std::vector<rank_t> result;
  for (const auto& cell : of.table->cells())
    if (!which.came.contains(cell->rank()) && !left_.contains(cell->rank())) result.push_back(cell->rank());
  return result;
}

}  // namespace troupe
