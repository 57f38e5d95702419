// SPDX-License-Identifier: Apache-2.0
#pragma once
// Writes what the ranks of a world call, and how long they compute between, as GOAL (engine/tools/replay/application.hpp has the grammar), for
// `troupe replay`.
//
//   computation  CPU time of the calling thread between two of its calls: what the rank does, also where ranks share cores and
//                take turns. Sleep is not in it.
//   order        a call begins when the one before it of its rank has ended, if that was waited for; and a computation likewise. A wait for an
//                operation puts its end before whatever comes next.
//   the process  how much CPU time all its threads had, from the world's begin to its end: much less than its cores have is a sign of other
//                work on them, or of ranks that slept; and how long its threads were here
//   memory       64 KiB a rank; what is more lies in an unnamed temporary file until the end.
//
// One recorder a world and process; all communicators that come of the world write to it. Every function may be called from any thread; calls of one
// rank come one after the other, as everywhere.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "actors/log.hpp"
#include "protocols/call_description.hpp"

namespace troupe {

struct communicator_state;

class recorder {
public:
  /// Operations of a rank that began together: `count` from number `first` on. None: nothing is recorded of them.
  struct label {
    std::uint64_t first = 0;
    std::uint32_t count = 0;
  };

  /// @param file engine_options::record @param of_job whether there are other processes, of which this one is number `process`
  /// @throws error(bad_config) if it cannot be written
  recorder(const std::string& file, int ranks, bool of_job, int process, std::shared_ptr<spdlog::logger> log);
  recorder(const recorder&) = delete;
  ~recorder() { finish(); }

  /// Writes the file; what comes later is not in it. Once.
  void finish() noexcept;

private:
  friend class recorded_communicator;
  struct file_closer {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  using file_ptr = std::unique_ptr<std::FILE, file_closer>;
  struct rank_data {
    std::mutex mutex;
    std::string text;
    file_ptr spilt;
    std::uint64_t count = 0;              ///< of operations
    std::vector<std::uint64_t> wait_for;  ///< what the next one requires
  };

  /// Of the calling thread since its last call, in nanoseconds.
  std::int64_t computed(bool in_run) const;
  void mark() const;  ///< the calling thread leaves a call
  static std::uint64_t add(rank_data& of, const std::string& operation);
  void spill(rank_data& of);
  void report(const std::string& why) const noexcept;
  std::string name_for(const std::vector<int>& members);

  /// The calling thread has recorded for so long.
  void add_cost(std::int64_t ns) const { cost_ns_.fetch_add(ns, std::memory_order_relaxed); }

  const std::uint64_t id_;  ///< of its own in the process
  std::atomic<bool> open_{true};
  const std::string file_;
  const std::shared_ptr<spdlog::logger> log_;
  std::vector<rank_data> ranks_;
  std::mutex mutex_;
  file_ptr out_;  ///< null: finished
  std::vector<std::pair<std::string, std::vector<int>>> communicators_;
  std::map<std::vector<int>, int> times_;  ///< how many of the communicators have these ranks
  std::int64_t born_ns_ = 0;               ///< steady clock
  std::int64_t born_cpu_ns_ = 0;           ///< of the whole process
  mutable std::atomic<std::int64_t> cost_ns_{0};
};

/// Why a recording of this process is not complete, as a sentence: of the first that is not. Empty: all are, as far as they are written. The
/// engine's log has it, too; this is for a program that answers for it with its exit code. From any thread.
std::string incomplete_recording();

/// A communicator of a recorded world.
class recorded_communicator {
public:
  /// The world itself.
  explicit recorded_communicator(std::shared_ptr<recorder> in);
  /// A communicator of some of its ranks. Once for all its ranks in the process.
  std::shared_ptr<recorded_communicator> part(std::span<const rank_t> members) const;

  /// What `rank` has computed since its thread's last call.
  void compute(rank_t rank, bool in_run) const;
  /// It begins these together. @param blocking whatever comes next comes behind them
  recorder::label begin(rank_t rank, std::initializer_list<const call_description*> calls, bool blocking) const;
  /// It has waited for them. Clears `of`.
  void waited(rank_t rank, recorder::label& of) const;
  void leave() const { in_->mark(); }
  void add_cost(std::int64_t ns) const { in_->add_cost(ns); }

private:
  recorded_communicator(std::shared_ptr<recorder> in, std::string name, std::vector<int> members);
  std::string text_of(const call_description& of) const;
  recorder::rank_data& rank_of(rank_t rank) const;

  std::shared_ptr<recorder> in_;
  std::string name_;  ///< empty: the world
  std::vector<int> members_;
};

/// While a blocking call is under way. @pre recorded
class recorded_call {
public:
  recorded_call(const communicator_state& of, rank_t rank, std::initializer_list<const call_description*> calls);
  recorded_call(const recorded_call&) = delete;
  ~recorded_call() { of_.leave(); }

private:
  const recorded_communicator& of_;
};

/// While a thread is in a call that begins or waits for operations. @pre recorded
class recorded_visit {
public:
  recorded_visit(const communicator_state& of, rank_t rank);
  recorded_visit(const recorded_visit&) = delete;
  ~recorded_visit() { of_.leave(); }

private:
  const recorded_communicator& of_;
};

}  // namespace troupe
