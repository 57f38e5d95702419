// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the processes of a job meet: the launcher holds the address, so that none of them has to be first.

#include <string>

#include "actors/ports/link/job_key.hpp"
#include "engine/tools/launch/child.hpp"
#include "engine/tools/launch/hosts.hpp"

namespace troupe::launch {

class meeting_place {
public:
  /// @param listen "tcp://127.0.0.1:0"; port 0: any that is free
  /// Throws errc::bad_config, errc::io.
  meeting_place(const std::string& listen, int processes, const actors::job_key& key);

  /// With the port that it got.
  const std::string& address() const noexcept { return address_; }

private:
  owned_descriptor listener_;
  std::string address_;
};

/// Where to listen so that all of these hosts can come: at loopback if all processes are started here, else at this machine's address on
/// the way to the first host that is not. Throws errc::bad_config.
std::string listen_for(const std::vector<host>& hosts);

}  // namespace troupe::launch
