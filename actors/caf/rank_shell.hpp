// SPDX-License-Identifier: Apache-2.0
#pragma once
// What CAF lends a rank: a name and an address (`rank_actor(comm)` for programs made of actors), a place in the scheduler, down and
// exit, and the way of the membership's messages. The rank itself is a rank_cell; its shell only unpacks messages and hands them on.

#include <memory>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/caf/communicator_actors.hpp"

namespace troupe::actors {

/// The actor. When it is killed, the rank perishes (rank_state.hpp).
/// What a rank does when it hears the other end of a send or receive.
rank_order order_of(const pair_word& what);
caf::actor spawn_rank_shell(caf::actor_system& system, communicator_actors_ptr members, rank_t rank);

/// How a rank of this process speaks: to ranks by their inboxes, or along the machine's route where there is a layout; to the
/// membership and its DMA engine by messages of CAF. @param of outlives it
std::unique_ptr<rank_outbox> make_outbox(communicator_actors& of, rank_t rank);

}  // namespace troupe::actors
