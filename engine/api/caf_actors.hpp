// SPDX-License-Identifier: Apache-2.0
#pragma once
// For programs that are themselves built of CAF actors: ask a rank actor for a collective with a message, get a response.
// The only public header that leads to CAF; link CAF, or troupe::caf.
//
//   self->request(troupe::rank_actor(comm), caf::infinite,
//                 troupe::collective_request{troupe::calls::all_reduce(data)})
//       .then([=](const troupe::collective_response& r) { if (r.status) …; });
//
// A request counts as a call of its rank, in the order in which the rank actor receives it. The buffers must live until the
// response. The response comes also on failure; it is no CAF error, so one handler sees both.

#include "actors/caf/caf_interface.hpp"
#include "engine/api/communicator.hpp"
#include "engine/api/engine.hpp"
#include "memory/export.hpp"

namespace troupe {

/// How the two functions below get inside; engine.cpp. Throw error(engine_closed) and error(invalid_argument).
TROUPE_API actors::runtime& runtime_of(engine& of);
TROUPE_API actors::communicator_actors& actors_of(const communicator& of);

/// The engine's actor system: spawn your actors here, and they run on the engine's scheduler.
/// End them, and let go of their handles, before the engine is destroyed: after a few seconds its destructor gives up and leaves the
/// actor system behind.
inline caf::actor_system& caf_system(engine& of) { return actors::system_of(runtime_of(of)); }

/// The actor of a communicator's rank; answers as long as the communicator lives.
inline caf::actor rank_actor(const communicator& of) { return actors::rank_actor_of(actors_of(of), of.rank()); }

}  // namespace troupe
