// SPDX-License-Identifier: Apache-2.0
#include "engine/world/divisions.hpp"

#include "actors/waiting/policy.hpp"
#include "engine/world/communicator_state.hpp"

namespace troupe {

namespace {

/// The rank's own communicator never came to be, or is gone.
void leave(const std::shared_ptr<communicator_state>& part, rank_t place) { part->cell(place).leave(); }

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

std::shared_ptr<communicator_state> divisions::take(epoch_t which, int color, rank_t taker,
                                                    std::span<const rank_t> members,
                                                    const std::function<std::shared_ptr<communicator_state>()>& make) {
  const auto held = lock();
  const auto ranks_here = [](const std::shared_ptr<communicator_state>& part) { return part->table->cells().size(); };
  return parts_.take(which, color, taker, members, make, ranks_here, leave);
}

void divisions::give_up(epoch_t which, rank_t rank) {
  const auto held = lock();
  parts_.give_up(which, rank, leave);
}

std::size_t divisions::open() const {
  const auto held = lock();
  return parts_.open();
}

}  // namespace troupe
