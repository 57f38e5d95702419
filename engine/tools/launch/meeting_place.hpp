// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the processes of a job meet: the launcher serves there (actors/ports/link/rendezvous.hpp), so that none of them has to be first.

#include <string>
#include <vector>

#include "engine/tools/launch/hosts.hpp"

namespace troupe::launch {

/// Where to listen so that all of these hosts can come: at loopback if all processes are started here, else at this machine's address on
/// the way to the first host that is not. Throws errc::bad_config.
std::string listen_for(const std::vector<host>& hosts);

}  // namespace troupe::launch
