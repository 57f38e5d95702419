#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/caf/communicator_actors.hpp"

namespace troupe::actors {

/// The actor around an agreement (protocols/agreement/agreement.hpp), one per communicator. It also watches the ranks: when one dies it
/// waits for what its DMA engine still does for that rank, and breaks the communicator. When
/// all ranks have left, or on dissolve_message, it ends every actor of the communicator and itself.
caf::actor spawn_membership(caf::actor_system& system, communicator_actors_ptr members);

}  // namespace troupe::actors
