// SPDX-License-Identifier: Apache-2.0
#include "engine/world/divisions.hpp"

#include <algorithm>

#include "actors/waiting/policy.hpp"
#include "engine/world/communicator_state.hpp"

namespace troupe {

namespace {

/// The rank's own communicator never came to be, or is gone.
void leave(communicator_state& part, std::span<const rank_t> members, rank_t rank) {
  const auto at = std::find(members.begin(), members.end(), rank);
  part.cell(static_cast<rank_t>(at - members.begin())).leave();
}

}  // namespace

/// Making a part takes some microseconds, less than to sleep and to be woken.
std::unique_lock<std::mutex> divisions::lock() const {
  std::unique_lock held(mutex_, std::try_to_lock);
  for (int i = 0; !held && i < spins_; ++i) {
    pause_core();
    static_cast<void>(held.try_lock());
  }
  if (!held) held.lock();
  return held;
}

void divisions::settle(parts::iterator which, rank_t rank) {
  part& p = which->second;
  p.settled.push_back(rank);
  if (p.settled.size() == p.made->table->cells().size()) parts_.erase(which);
}

std::shared_ptr<communicator_state> divisions::take(epoch_t which, int color, rank_t taker,
                                                    std::span<const rank_t> members,
                                                    const std::function<std::shared_ptr<communicator_state>()>& make) {
  const auto held = lock();
  auto at = parts_.find({which, color});
  if (at == parts_.end()) {
    auto fresh = make();
    at = parts_.emplace(std::pair{which, color}, part{std::move(fresh), {members.begin(), members.end()}, {}}).first;
    part& p = at->second;
    p.settled.reserve(p.made->table->cells().size());
    std::erase_if(given_up_, [&](const auto& failed) {
      if (failed.first != which || std::find(members.begin(), members.end(), failed.second) == members.end())
        return false;
      leave(*p.made, members, failed.second);
      p.settled.push_back(failed.second);
      return true;
    });
  }
  auto made = at->second.made;
  settle(at, taker);
  return made;
}

void divisions::give_up(epoch_t which, rank_t rank) {
  const auto held = lock();
  for (auto at = parts_.lower_bound({which, 0}); at != parts_.end() && at->first.first == which; ++at) {
    const auto& members = at->second.members;
    if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
    leave(*at->second.made, members, rank);
    return settle(at, rank);
  }
  if (given_up_.size() == most_given_up) given_up_.erase(given_up_.begin());
  given_up_.emplace_back(which, rank);
}

std::size_t divisions::open() const {
  const auto held = lock();
  return parts_.size();
}

}  // namespace troupe
