// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/api/communicator.hpp"
#include "engine/api/options.hpp"
#include "memory/export.hpp"

namespace troupe {

class configuration;

/// Owns the actors and their scheduler. Cheap to create; uses no CPU when idle. Thread-safe.
/// Destruction fails operations still under way with errc::engine_closed and joins within a bounded time; communicators
/// outlive it harmlessly: their calls fail with errc::engine_closed.
class TROUPE_API engine {
public:
  engine() : engine(engine_options{}) {}
  /// Throws error(bad_config) for options out of range, error(bad_score) for a user's score that does not verify.
  explicit engine(engine_options options);
  /// From a TOML file, overridden by TROUPE_… variables (docs/config.md).
  static engine from_file(const std::string& path);
  engine(engine&&) noexcept;
  engine& operator=(engine&&) noexcept;
  ~engine();

  /// Runs `body` once per rank, each on a thread of its own, and returns when all have. The first exception thrown by a rank is
  /// rethrown (ranks that failed only because of it are not counted), after the communicator was aborted so that no rank hangs.
  /// Inside, a rank's calls come from its own thread: then it is certain when all ranks wait for one that never comes,
  /// and they get errc::rank_missing at once instead of at a deadline.
  void run(int ranks, const std::function<void(communicator&)>& body);

  /// The communicators of `ranks` new ranks, to be used from wherever the caller likes: a thread each, or one thread with groups.
  std::vector<communicator> communicators(int ranks);

  const engine_options& options() const noexcept;

  /// The ways that chunks have taken through the machine so far, one line for each pair of ranks that talked: "rank 0 → dma 0.0.0 →
  /// nic 0:0 → … → rank 5". Empty unless options().trace_routes and a layout that is not flat.
  std::vector<std::string> traced_routes() const;

private:
  friend struct engine_access;
  static void confirm(communicator& of);
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace troupe
