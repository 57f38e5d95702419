// SPDX-License-Identifier: Apache-2.0
#include "actors/elements/tier_keeper.hpp"

#include <algorithm>

#include "memory/error.hpp"

namespace troupe::actors {

card_tiers::region tier_keeper::grant(card_tiers& to, rank_t of, std::size_t bytes) {
  std::erase_if(known_, [](const auto& one) { return one.expired(); });
  if (std::ranges::none_of(known_, [&](const auto& one) { return one.lock().get() == &to; }))
    known_.push_back(to.weak_from_this());
  try {
    return to.grant(of, tier_, bytes);
  } catch (const error& refused) {
    bool came = false;
    for (const auto& one : known_)
      if (const auto communicator = one.lock()) came = communicator->give_back(*tier_) || came;
    if (refused.code_value() != errc::out_of_memory || !came) throw;
  }
  return to.grant(of, tier_, bytes);
}

void tier_keeper::end(const failure_ptr& why) {
  for (const auto& one : known_)
    if (const auto communicator = one.lock()) communicator->lose(why);
  known_.clear();
}

}  // namespace troupe::actors
