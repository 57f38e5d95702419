// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/caf_interface.hpp"

#include <caf/logger.hpp>

#include "actors/caf/runtime_hidden.hpp"

namespace troupe::actors {

caf::actor_system& system_of(runtime& of) { return of.inside().system; }

caf::actor rank_actor_of(communicator_actors& of, int rank) { return of.shell(rank); }

lets_go_of_logger::~lets_go_of_logger() { CAF_SET_LOGGER_SYS(nullptr); }

}  // namespace troupe::actors
