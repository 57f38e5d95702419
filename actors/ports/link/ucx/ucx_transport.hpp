// SPDX-License-Identifier: Apache-2.0
#pragma once
// UCX (openucx.org) as a transport between hosts: whatever networks it knows, by active messages of at most 64 KiB.
//
// Its ports are open to all that reach them, and what it reads there is not authenticated: each message bears its line's name,
// and those that bear none are dropped, but only after UCX has parsed them. Hence not beside TLS, and only in networks that are the job's own.

#include <memory>
#include <string>

#include "actors/ports/link/transport.hpp"

namespace troupe::actors {

/// Which UCX this was built with, "1.13"; empty: without.
std::string ucx_version();
/// Makes this process's worker, with one thread of UCX's own; UCX_… variables say how (UCX_TLS, UCX_NET_DEVICES). Throws error(bad_config) where this was
/// built without UCX, or it cannot be loaded, and error(io) where UCX finds no network.
std::shared_ptr<transport> make_ucx_transport();

}  // namespace troupe::actors
