// SPDX-License-Identifier: Apache-2.0
#include "engine/world/shrink_rounds.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

void shrink_rounds::prepare(std::vector<rank_t> here, int ranks) {
  here_ = std::move(here);
  left_.resize(static_cast<std::size_t>(ranks));
}

bool shrink_rounds::all_settled(const round& r) const {
  return std::ranges::all_of(here_, [&](rank_t rank) { return r.came.contains(rank) || has_left(rank); });
}

std::uint64_t shrink_rounds::come(rank_t rank, to_do& next) {
  const std::uint64_t number = next_[rank];
  round& mine = rounds_[number];
  mine.came.insert(rank);
  if (closed_ && !mine.answered) next.over.push_back(number);
  else if (!mine.contributed && all_settled(mine)) contribute(number, mine, next);
  return number;
}

/// Nothing if all have left, which the others hear without this.
void shrink_rounds::contribute(std::uint64_t number, round& r, to_do& next) {
  r.contributed = true;
  contribution mine{number, {}};
  std::ranges::remove_copy_if(r.came, std::back_inserter(mine.ranks), [&](rank_t rank) { return has_left(rank); });
  if (!mine.ranks.empty()) next.say.push_back(std::move(mine));
}

void shrink_rounds::decided(std::uint64_t number, const std::vector<rank_t>& members, const failure_ptr& why,
                            to_do& next) {
  const auto at = rounds_.find(number);
  if (at == rounds_.end() || std::exchange(at->second.answered, true)) return;
  round& r = at->second;
  r.members = members;
  r.why = why;
  for (const rank_t rank : r.came) {
    if (!closed_ && !has_left(rank)) continue;
    r.took.insert(rank);
    if (std::ranges::binary_search(members, rank)) next.given_up.push_back({number, rank});
  }
  next.over.push_back(number);
  drop_if_taken(number);
}

/// @pre it exists
void shrink_rounds::drop_if_taken(std::uint64_t number) {
  const auto at = rounds_.find(number);
  if (at->second.took.size() == at->second.came.size()) rounds_.erase(at);
}

bool shrink_rounds::take(std::uint64_t number, rank_t rank) {
  next_[rank] = number + 1;
  const auto at = rounds_.find(number);
  if (at == rounds_.end()) return false;
  const bool fresh = at->second.took.insert(rank).second;
  if (at->second.contributed) drop_if_taken(number);
  return fresh;
}

void shrink_rounds::leave(rank_t rank, to_do& next) {
  left_[static_cast<std::size_t>(rank)] = true;
  std::vector<std::uint64_t> abandoned;
  for (auto& [number, r] : rounds_) {
    if (!r.contributed && all_settled(r)) contribute(number, r, next);
    else if (r.answered && r.came.contains(rank) && r.took.insert(rank).second) abandoned.push_back(number);
  }
  for (const std::uint64_t number : abandoned) {
    const round& r = rounds_.at(number);
    if (!r.why && std::ranges::binary_search(r.members, rank)) next.given_up.push_back({number, rank});
    drop_if_taken(number);
  }
}

void shrink_rounds::close(const failure_ptr& why, to_do& next) {
  closed_ = why;
  for (auto& [number, r] : rounds_) {
    if (!r.answered) next.over.push_back(number);
    else if (!r.why)
      for (const rank_t rank : r.came)
        if (std::ranges::binary_search(r.members, rank) && r.took.insert(rank).second)
          next.given_up.push_back({number, rank});
  }
}

std::vector<rank_t> shrink_rounds::missing(std::uint64_t number) const {
  std::vector<rank_t> result;
  const auto at = rounds_.find(number);
  if (at == rounds_.end()) return result;
  std::ranges::remove_copy_if(here_, std::back_inserter(result),
                              [&](rank_t rank) { return at->second.came.contains(rank) || has_left(rank); });
  return result;
}

std::vector<rank_t> shrink_rounds::waiting(std::uint64_t number) const {
  std::vector<rank_t> result;
  const auto at = rounds_.find(number);
  if (at == rounds_.end() || at->second.answered) return result;
  std::ranges::remove_copy_if(at->second.came, std::back_inserter(result), [&](rank_t rank) { return has_left(rank); });
  return result;
}

bool shrink_rounds::has_contributed(std::uint64_t number) const {
  const auto at = rounds_.find(number);
  return at != rounds_.end() && at->second.contributed;
}

}  // namespace troupe
