// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a CAF actor says to a rank's actor, and hears from it. engine/api/caf_actors.hpp, for programs, says how to get that actor.

#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <caf/actor.hpp>
#include <caf/fwd.hpp>

#include "actors/caf/caf_compat.hpp"
#include "memory/export.hpp"
#include "protocols/call_description.hpp"

namespace troupe {

struct TROUPE_API collective_request {
  std::shared_ptr<const call_description> what;

  collective_request() = default;
  explicit collective_request(call_description description)
      : what(std::make_shared<const call_description>(std::move(description))) {}
};

struct TROUPE_API collective_response {
  std::error_code status;
  std::string message;
};

namespace actors {
class runtime;
struct communicator_actors;
TROUPE_API caf::actor_system& system_of(runtime& of);
TROUPE_API caf::actor rank_actor_of(communicator_actors& of, int rank);
}  // namespace actors

}  // namespace troupe

TROUPE_BEGIN_MESSAGES(troupe_interface, 80)
TROUPE_LOCAL_MESSAGE(troupe_interface, troupe::collective_request)
TROUPE_LOCAL_MESSAGE(troupe_interface, troupe::collective_response)
TROUPE_END_MESSAGES(troupe_interface)
