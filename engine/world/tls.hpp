// SPDX-License-Identifier: Apache-2.0
#pragma once
// The identity of a process for those that reach it over a network: what the options, or the environment, name in files.

#include <memory>

#include "actors/ports/link/tls.hpp"
#include "engine/api/job_id.hpp"
#include "engine/api/options.hpp"

namespace troupe {

/// Null: they name no certificate. Throws error(bad_config): they name a part of what it takes, or files that are none.
std::shared_ptr<const actors::tls_identity> tls_of(const engine_options& options);
/// The same; what they leave open the environment says.
std::shared_ptr<const actors::tls_identity> tls_of(const id_options& options);
/// What TROUPE_ENGINE_TLS_CERTIFICATE, _KEY and _AUTHORITY name; for launchers of processes, whose TROUPE_CONFIG may be a file of another host.
std::shared_ptr<const actors::tls_identity> tls_of_environment();

}  // namespace troupe
