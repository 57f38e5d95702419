// SPDX-License-Identifier: Apache-2.0
#pragma once
// For programs that have a way of their own to spread some bytes among their processes (MPI, a store, a file), as with ncclGetUniqueId().

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <type_traits>

#include "memory/export.hpp"

namespace troupe {

/// Names a job that is going to begin: where its processes meet, and its key. Anybody who has it can join; so it goes to the job's processes only.
/// Its bytes mean nothing to anybody else, and are copied like any others.
struct job_id {
  std::array<std::byte, 128> bytes{};
  bool operator==(const job_id&) const = default;
};
static_assert(sizeof(job_id) == 128 && std::is_trivially_copyable_v<job_id>);

struct id_options {
  /// Where the others come to: "tcp://10.0.0.1:0", "tcp://127.0.0.1:0" if all are on this host. Empty: at all of this host's interfaces that
  /// TROUPE_INTERFACE allows; at loopback if it has no other.
  std::string listen{};
  /// So long the others may come. An id that nobody uses is given up then.
  std::chrono::milliseconds serve_for{std::chrono::hours{1}};
  /// As in engine_options; empty: the environment's.
  std::string tls_certificate{}, tls_key{}, tls_authority{};
};

/// A new one, for one job (engine::communicator). The calling process serves the rendezvous in the background until all ranks have come, so it has
/// to live until then; it may be one of them, or none. Cost: a thread and a socket until then. Throws error: bad_config (options.listen,
/// certificates), io.
TROUPE_API job_id make_id(const id_options& options = {});

}  // namespace troupe
