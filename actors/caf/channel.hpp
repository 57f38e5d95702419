#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/caf/crew.hpp"

namespace troupe::actors {

/// The actor around a channel_state (its contract is there).
caf::actor spawn_channel(caf::actor_system& system, crew_ptr members, rank_t rank, int channel);

}  // namespace troupe::actors
