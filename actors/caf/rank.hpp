#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/caf/crew.hpp"

namespace troupe::actors {

/// The actor around a rank_state (its contract is there). Its channels die with it.
caf::actor spawn_rank(caf::actor_system& system, crew_ptr members, rank_t rank);

}  // namespace troupe::actors
