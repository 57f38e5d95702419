// SPDX-License-Identifier: Apache-2.0
#pragma once
// The actor side of an engine behind a door without CAF: communicators' actors, their scheduler, waiting.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/log.hpp"
#include "actors/ports/link/core_share.hpp"
#include "actors/rank/operation.hpp"
#include "actors/waiting/completion.hpp"
#include "actors/waiting/no_waiting.hpp"
#include "protocols/call_description.hpp"
#include "topology/machine/card_sizes.hpp"
#include "topology/machine/element_traffic.hpp"
#include "topology/machine/graph.hpp"

namespace troupe {
class board_memory;
}

namespace troupe::actors {

/// Seeded mischief of a communicator's channels; see engine/api/options.hpp.
struct fault_settings {
  std::uint64_t seed = 0;
  double drop = 0, duplicate = 0, reorder = 0, delay = 0;
  std::chrono::microseconds longest_delay{500};
  std::int64_t kill_after = -1;
  int kill_rank = 0;
  bool any() const { return drop > 0 || duplicate > 0 || reorder > 0 || delay > 0 || kill_after >= 0; }
};

struct runtime_options {
  int workers = -1;
  int spin = 64;
  bool trace_routes = false;
  card_sizes card;                    ///< of every card of the machine
  std::uint64_t first_operation = 0;  ///< see engine_options
  bool offloads = false;              ///< calls may be the NIC's, also between processes of a host
  fault_settings faults;
  std::shared_ptr<spdlog::logger> log;  ///< null: warnings and errors on standard error
};

struct communicator_actors;
class job_links;
class rank_cell;
class rank_table;

/// What a caller does itself while it waits (runtime::wait()).
class waiting_work {
public:
  virtual ~waiting_work() = default;
  /// A thread that leaves something to do wakes `place` until leave(); the caller looks at wants() in between.
  virtual void enter(parker& place) = 0;
  virtual void leave(parker& place) = 0;
  virtual bool wants() const noexcept = 0;
  /// Until there is nothing to do, or the deadline has passed. @pre entered
  virtual void work(steady_time deadline) = 0;
};

/// The threads of one engine::run, each the only caller of its rank: when all of them wait, nobody can call anything more.
class run_threads {
public:
  explicit run_threads(int ranks) : threads_(static_cast<std::size_t>(ranks)) {}
  void waits(int rank, completion_ptr what);  ///< null: goes on
  void finished(int rank);
  /// Every thread has finished or waits for something that is not done.
  bool all_wait() const;

private:
  struct thread {
    completion_ptr waiting;
    bool finished = false;
  };
  mutable std::mutex mutex_;  // on the slow path of waiting only
  std::vector<thread> threads_;
};

/// Of a communicator whose ranks live in several processes of a job.
struct job_part {
  std::uint64_t id = 0;                   ///< the same in all of them
  std::vector<std::uint32_t> process_of;  ///< by rank
  core_share cores{};                     ///< those of this process, and who else waits there
  std::shared_ptr<troupe::board_memory>
      boards_in{};  ///< of all its processes, or of those of this host; null: they share none
  int of_host = 0;  ///< see rank_table_options
  // Of a part of another communicator:
  std::uint64_t parent = 0;
  epoch_t split = 0;                  ///< the number of the operation that made it
  std::vector<rank_t> parent_rank{};  ///< by rank
};

/// Thread-safe.
class runtime {
public:
  explicit runtime(const runtime_options& options, machine hardware);
  /// Aborts what is under way with errc::engine_closed, waits for it, ends all actors, joins. Bounded.
  ~runtime();
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;

  arena& memory();
  int cores() const;

  /// Spawns the actors of a communicator. `boards`: its plans may be performed on boards. `machine_ranks`: where each rank sits in the machine's layout (empty: flat).
  /// `run`: the run whose threads alone can call, or null.
  std::shared_ptr<communicator_actors> make_actors(std::string name, int ranks, int channels, bool boards,
                                                   std::vector<int> machine_ranks,
                                                   const std::shared_ptr<run_threads>& run,
                                                   std::function<operation_ptr(rank_t, const call_description&)> accept,
                                                   const job_part* job = nullptr);

  /// The engine becomes a part of a job. Once, before any communicator of it is made. Throws error(io).
  void join(std::unique_ptr<job_links> job);
  /// Null: it has not joined one.
  job_links* job() const;
  /// Returns when all communicators of the job have ended. Helps meanwhile.
  void wait_for_others();

  static rank_table& ranks_of(const communicator_actors& of);
  void abort(communicator_actors& to, const failure_ptr& why);
  /// The same, of each communicator of a job of which not all ranks that live here have left; they leave. @pre nobody calls any more
  void abort_those_in_use(const failure_ptr& why);
  /// Fails everything under way in every communicator, everything later, and the flows under way.
  void abort_all(const failure_ptr& why);

  static constexpr int no_looks = -1;
  /// Runs ready actors until `what` is done; false at the deadline. Throws error(invalid_argument) inside an actor's handler.
  /// @param run the run whose ranks `what` belongs to, or null: only who waits for one of its own, and without a deadline, calls
  ///            nothing more until the others do.
  /// @param yields looks with a yield between before it sleeps (waiting_policy); no_looks: it sleeps at once
  /// @param own the rank that `what` is an operation of, so that its messages wake this thread
  bool wait(const completion_ptr& what, steady_time deadline = no_deadline, const run_threads* run = nullptr,
            int yields = 0, rank_cell* own = nullptr);
  /// The same of a caller that has work of its own.
  bool wait(const completion_ptr& what, steady_time deadline, const run_threads* run, int yields, waiting_work* own);
  /// Throws error(invalid_argument) inside a callback or an actor's handler, where nobody may wait.
  static void check_may_wait() {
    if (no_waiting::here()) [[unlikely]]
      refuse_to_wait();
  }
  /// Runs what is ready; never sleeps. Does nothing inside an actor's handler.
  void help_briefly();

  /// While it lives, this thread runs what it makes ready, so a submission wakes nobody.
  class submitting {
  public:
    explicit submitting(runtime& on);
    ~submitting();
    submitting(const submitting&) = delete;
    submitting& operator=(const submitting&) = delete;

  private:
    alignas(16) std::byte room_[96];
  };

  /// The calling thread is the one that calls for this rank of the run.
  static void enter_run(std::shared_ptr<run_threads> in, int rank);
  static void leave_run();
  /// The calling thread is one of this run's.
  static bool is_in_run(const run_threads& which);

  /// The ways that chunks really took, each once, and what passed each element, when `trace_routes`.
  std::vector<std::string> traced_routes() const;
  std::vector<element_traffic> traffic() const;

  struct hidden;
  hidden& inside() { return *hidden_; }

private:
  [[noreturn]] static void refuse_to_wait();
  void look_for_trouble();
  void settle(communicator_actors& which);
  void share_nic(communicator_actors& members, const job_part& job);
  void join_nics(communicator_actors& members, const job_part& job);
  std::unique_ptr<hidden> hidden_;
};

}  // namespace troupe::actors
