// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "engine/api/communicator.hpp"
#include "engine/api/job_id.hpp"
#include "engine/api/join_options.hpp"
#include "engine/api/options.hpp"
#include "memory/export.hpp"
#include "topology/machine/element_traffic.hpp"

namespace troupe {

class shared_buffer;
class configuration;
struct communicator_state;
namespace actors {
class run_threads;
}

/// Owns the actors and their scheduler. Cheap to create; uses no CPU when idle. Thread-safe.
/// Destruction fails operations still under way with errc::engine_closed and joins within a bounded time; communicators
/// outlive it harmlessly: their calls fail with errc::engine_closed. The end of an engine that has joined a job waits for the other processes.
class TROUPE_API engine {
public:
  engine() : engine(engine_options{}) {}
  /// Throws error(bad_config) for options out of range, error(bad_score) for a user's score that does not verify.
  explicit engine(engine_options options);
  /// From a TOML file, overridden by TROUPE_… variables (docs/config.md).
  static engine from_file(const std::string& path);
  engine(engine&&) noexcept;  ///< calls of one that was moved from throw error(invalid_argument)
  engine& operator=(engine&&) noexcept;
  ~engine();

  /// Runs `body` once per rank, each on a thread of its own, and returns when all have. The first exception thrown by a rank is
  /// rethrown (ranks that failed only because of it are not counted), after the communicator was aborted so that no rank hangs.
  /// Inside, a rank's calls come from its own thread: then it is certain when all ranks wait for one that never comes,
  /// and they get errc::rank_missing at once instead of at a deadline.
  void run(int ranks, const std::function<void(troupe::communicator&)>& body);

  /// The communicators of `ranks` new ranks, at most 1024 in a process, to be used from wherever the caller likes: a thread each, or one thread with groups.
  std::vector<troupe::communicator> communicators(int ranks);

  /// The world communicator of a job of many processes, of which this one has one rank: started by troupe launch, mpirun, srun or torchrun, or
  /// told by hand (join_options); or, invited by communicator::grow(), the communicator that a running job has grown to. Blocks until all processes
  /// have come. Once for an engine, whose end then waits until the others have left
  /// what they need this process for, as MPI_Finalize does. Throws error: bad_config (nothing says where to join), timed_out with who is missing,
  /// cancelled, mismatch (the processes do not fit together), io.
  troupe::communicator join(const join_options& how = {});
  /// The same with several ranks in this process, each on a thread of its own, like run().
  void join(int ranks_here, const std::function<void(troupe::communicator&)>& body, const join_options& how = {});
  /// The same, to be used from wherever the caller likes.
  std::vector<troupe::communicator> join_communicators(int ranks_here, const join_options& how = {});

  /// Rank `rank` of the job that `id` names (make_id), as ncclCommInitRank has it: each of `ranks` processes calls this with the same id. Blocks
  /// until all have come. `how` says for how long, its cancel flag, its silence and its interfaces. Else as join(). Throws error also:
  /// invalid_argument (no such rank; these bytes are no id).
  troupe::communicator communicator(const job_id& id, int ranks, int rank, const join_options& how = {});

  /// Memory that other processes of the host can map, from the join on (buffers.hpp); the resource outlives the engine. Thread-safe.
  shared_buffer allocate(std::size_t bytes) const;
  std::shared_ptr<std::pmr::memory_resource> memory() const;

  const engine_options& options() const noexcept;

  /// The ways that messages have taken through the machine so far, each once, by their ranks: "rank 0 → dma 0.0.0 → nic
  /// 0:0 → … → rank 5". Empty unless options().trace_routes and a layout that is not flat.
  std::vector<std::string> traced_routes() const;
  /// The traffic of each element of the machine so far, payload apart from messages without; a DMA engine's copies
  /// within its core group's memory count, too. Elements that nothing passed are left out. Empty as traced_routes().
  std::vector<element_traffic> traffic() const;

private:
  friend struct engine_access;
  static void confirm(troupe::communicator& of);
  static std::vector<troupe::communicator> here(const std::shared_ptr<communicator_state>& of);
  std::vector<troupe::communicator> joined(int ranks_here, const join_options& how,
                                           const std::shared_ptr<actors::run_threads>& run);
  static void run_on_threads(const std::shared_ptr<actors::run_threads>& run, std::vector<troupe::communicator> comms,
                             const std::function<void(troupe::communicator&)>& body);
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace troupe
