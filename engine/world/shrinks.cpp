// SPDX-License-Identifier: Apache-2.0
#include "engine/world/shrinks.hpp"

#include "actors/caf/job_links.hpp"
#include "engine/world/communicator_state.hpp"

namespace troupe {

shrinks::round_ptr shrinks::come(const std::shared_ptr<communicator_state>& of, rank_t rank) {
  shrink_rounds::to_do next;
  round_ptr mine;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = rounds_.come(rank, next);
    round_ptr& at = waiting_[number];
    if (!at) at = std::make_shared<round>(round{number});
    mine = at;
    if (rounds_.closed() && !mine->done->done()) mine->done->complete(rounds_.closed());
  }
  perform(of, next);
  return mine;
}

/// @pre not locked: what is said may be answered at once
void shrinks::perform(const std::shared_ptr<communicator_state>& of, const shrink_rounds::to_do& what) {
  for (const auto& [number, ranks] : what.say) {
    if (of->process_of.empty()) {
      decided(of, number, ranks, nullptr);
      continue;
    }
    of->core->runtime->job()->contribute(
        of->members, number, ranks, [of, number = number](const std::vector<rank_t>& members, const failure_ptr& why) {
          of->shrunk.decided(of, number, members, why);
        });
  }
  for (const auto& [number, rank] : what.given_up) of->give_up(shrink_rounds::name_of(number), rank);
}

void shrinks::decided(const std::shared_ptr<communicator_state>& of, std::uint64_t number,
                      const std::vector<rank_t>& members, const failure_ptr& why) {
  shrink_rounds::to_do next;
  {
    const std::lock_guard lock(mutex_);
    rounds_.decided(number, members, why, next);
    const auto at = waiting_.find(number);
    if (at != waiting_.end() && !next.over.empty() && !at->second->done->done()) {
      at->second->members = members;
      at->second->done->complete(why);
    }
    if (!rounds_.is_open(number)) waiting_.erase(number);
  }
  perform(of, next);
}

bool shrinks::take(const round_ptr& which, rank_t rank) {
  const std::lock_guard lock(mutex_);
  const bool fresh = rounds_.take(which->number, rank);
  if (!rounds_.is_open(which->number)) waiting_.erase(which->number);
  return fresh;
}

void shrinks::leave(const std::shared_ptr<communicator_state>& of, rank_t rank) {
  shrink_rounds::to_do next;
  {
    const std::lock_guard lock(mutex_);
    rounds_.leave(rank, next);
    std::erase_if(waiting_, [&](const auto& each) { return !rounds_.is_open(each.first); });
  }
  perform(of, next);
}

void shrinks::close(const std::shared_ptr<communicator_state>& of, const failure_ptr& why) {
  shrink_rounds::to_do next;
  {
    const std::lock_guard lock(mutex_);
    rounds_.close(why, next);
    for (const std::uint64_t number : next.over)
      if (const auto at = waiting_.find(number); at != waiting_.end() && !at->second->done->done())
        at->second->done->complete(why);
  }
  perform(of, next);
}

std::vector<rank_t> shrinks::missing(const round& which) const {
  const std::lock_guard lock(mutex_);
  return rounds_.missing(which.number);
}

bool shrinks::has_contributed(const round& which) const {
  const std::lock_guard lock(mutex_);
  return rounds_.has_contributed(which.number);
}

std::vector<rank_t> shrinks::overdue(round& which) {
  const std::lock_guard lock(mutex_);
  if (which.done->done() || std::exchange(which.told, true)) return {};
  return rounds_.waiting(which.number);
}

}  // namespace troupe
