// SPDX-License-Identifier: Apache-2.0
#include "engine/world/divisions.hpp"

#include <utility>
#include <vector>

#include "actors/waiting/policy.hpp"
#include "engine/world/communicator_state.hpp"

namespace troupe {

namespace {

/// A rank whose own communicator never came to be. It leaves when nobody holds the lock any more: others may wait for it in a shrink, whose answer
/// may come at once.
struct leaver {
  std::shared_ptr<communicator_state> part;
  rank_t place = -1;
  void leave() const {
    part->shrunk.leave(part, place);
    part->cell(place).leave();
  }
};

/// All of a transition, in which nothing may fail.
struct leavers {
  std::vector<leaver> all;
  void operator()(const std::shared_ptr<communicator_state>& part, rank_t place) { all.push_back({part, place}); }
};

}  // namespace

/// Making a part takes some microseconds, less than to sleep and to be woken.
std::unique_lock<std::mutex> divisions::lock() const {
  std::unique_lock held(mutex_, std::try_to_lock);
  wait_course course{{spins_}, 0};
  while (!held && course.next() == wait_course::step::pause) {
    pause_core();
    static_cast<void>(held.try_lock());
  }
  if (!held) held.lock();
  return held;
}

std::shared_ptr<communicator_state> divisions::take(epoch_t which, int color, std::span<const rank_t> members,
                                                    const std::function<std::shared_ptr<communicator_state>()>& make) {
  const auto ranks_here = [](const std::shared_ptr<communicator_state>& part) { return part->table->cells().size(); };
  leavers gone;
  std::shared_ptr<communicator_state> part;
  {
    const auto held = lock();
    if (parts_.any_given_up()) gone.all.reserve(members.size());
    part = parts_.take(which, color, members, make, ranks_here, std::ref(gone));
  }
  for (const leaver& each : gone.all) each.leave();
  return part;
}

void divisions::give_up(epoch_t which, rank_t rank) {
  leaver gone;  // who gives up may be out of memory
  {
    const auto held = lock();
    const auto note = [&](const std::shared_ptr<communicator_state>& part, rank_t place) { gone = {part, place}; };
    parts_.give_up(which, rank, std::cref(note));
  }
  if (gone.part != nullptr) gone.leave();
}

std::size_t divisions::open() const {
  const auto held = lock();
  return parts_.open();
}

}  // namespace troupe
