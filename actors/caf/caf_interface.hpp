#pragma once
// For programs that are themselves built of CAF actors: ask a rank actor for a collective with a message, get a response.
// The only public header that includes CAF; link CAF, or troupe::caf.
//
//   self->request(troupe::rank_actor(comm), caf::infinite,
//                 troupe::collective_request{troupe::calls::all_reduce(data)})
//       .then([=](const troupe::collective_response& r) { if (r.status) …; });
//
// A request counts as a call of its rank, in the order in which the rank actor receives it. The buffers must live until the
// response. The response comes also on failure; it is no CAF error, so one handler sees both.

#include <concepts>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <caf/actor.hpp>
#include <caf/fwd.hpp>

#include "actors/caf/caf_compat.hpp"

namespace troupe {

struct call_description;
class communicator;
class engine;

struct collective_request {
  std::shared_ptr<const call_description> what;

  collective_request() = default;
  template <class Description>
    requires std::same_as<std::remove_cvref_t<Description>, call_description>
  explicit collective_request(Description&& description)
      : what(std::make_shared<const call_description>(std::forward<Description>(description))) {}
};

struct collective_response {
  std::error_code status;
  std::string message;
};

namespace actors {
class runtime;
struct crew;
caf::actor_system& system_of(runtime& of);
caf::actor rank_actor_of(const crew& of, int rank);
}  // namespace actors

/// How the two functions below get inside; defined beside `engine` and `communicator`. Throw error(engine_closed) and
/// error(invalid_argument).
actors::runtime& runtime_of(engine& of);
const actors::crew& crew_of(const communicator& of);

/// The engine's actor system: spawn your actors here, and they run on the engine's scheduler.
/// End them, and let go of their handles, before the engine is destroyed: after a few seconds its destructor gives up and leaves the
/// actor system behind.
inline caf::actor_system& caf_system(engine& of) { return actors::system_of(runtime_of(of)); }

/// The actor of a communicator's rank; answers as long as the communicator lives.
template <class Communicator>
  requires std::same_as<Communicator, communicator> caf::actor rank_actor(const Communicator& of) {
    return actors::rank_actor_of(crew_of(of), of.rank());
  }

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::collective_request)
TROUPE_LOCAL_MESSAGE(troupe::collective_response)
