// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/caf/communicator_actors.hpp"

namespace troupe::actors {

/// The actor around a membership_state (actors/rank/membership_state.hpp), one per communicator. It also watches the ranks.
caf::actor spawn_membership(caf::actor_system& system, communicator_actors_ptr members);

}  // namespace troupe::actors
