// SPDX-License-Identifier: Apache-2.0
#pragma once
// The actors of one communicator, and what they share.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include <caf/actor.hpp>
#include <caf/fwd.hpp>

#include "actors/caf/messages.hpp"
#include "actors/caf/runtime.hpp"
#include "actors/ports/link/frames.hpp"
#include "actors/ports/link/given_up.hpp"
#include "actors/ports/nic/nic_arrivals.hpp"
#include "actors/ports/nic/nic_between.hpp"
#include "actors/ports/nic/nic_hosts.hpp"
#include "actors/rank/rank_table.hpp"

namespace troupe::actors {

class fabric;
class job_links;
class nic_thread;

/// Written while the communicator is made, before any of its actors has a message; read-only afterwards, but for the members that
/// say so. Refers to itself until all ranks have left, so that what is under way goes on when its callers have dropped everything.
///
/// The actors themselves, a shell for each rank and the membership, are made when there is something to say to one of them: an
/// operation that takes long, a failure, a program that asks for a rank's actor. Most communicators come and go without.
struct communicator_actors : std::enable_shared_from_this<communicator_actors> {
  communicator_actors(caf::actor_system& system, std::string called, int n, int channel_count, arena& m, fabric* way);
  ~communicator_actors();

  std::string name;
  int ranks;
  int channels;
  arena& memory;
  fabric* ways;               ///< null on a flat layout: references go directly
  nic_thread* nic = nullptr;  ///< the process's
  std::uint64_t name_at_nic = 0;
  nic_arrivals at_nic;
  std::shared_ptr<nic_hosts> nic_across;    ///< they live on several hosts, whose NICs perform together; or null
  int ranks_at_nic = 0;                     ///< those for whom one NIC performs together; 0: all
  std::vector<std::uint32_t> nic_of_host;   ///< by host: the process whose NIC performs for its ranks
  std::shared_ptr<nic_between> nic_shared;  ///< its ranks live in several processes of a host, one NIC for all; or null
  fault_settings faults;
  std::shared_ptr<spdlog::logger> log;  ///< the engine's
  std::vector<int> machine_rank;        ///< rank of the communicator → rank of the machine's layout
  rank_t first_on_card = 0;             ///< whose card's L2 operations use: the first that is at no host; 0 if all are
  std::vector<caf::actor> shells;       ///< the ranks'; for the membership, others ask shell()
  std::shared_ptr<card_tiers> card;     ///< null: no operation uses a modelled card's memory
  std::unique_ptr<rank_threads> threads;
  std::unique_ptr<rank_table> table;  ///< thread-safe
  /// Makes an operation of a request that came as a message to a rank actor; set by the engine. Thread-safe.
  std::function<operation_ptr(rank_t, const call_description&)> accept;

  /// Chunks that fault injection has held back, and let go again, so far.
  std::atomic<std::uint64_t> held_back{0}, let_go{0};
  std::atomic<look_t> looks{0};    ///< that have begun: see confirm()
  std::atomic<bool> ended{false};  ///< all ranks have left or the communicator was dissolved

  // -- if its ranks live in several processes (job_links.hpp) --
  job_links* links = nullptr;             ///< null: all live here
  std::uint64_t id = 0;                   ///< the same in all processes
  std::vector<std::uint32_t> process_of;  ///< by rank; empty: all live here
  std::uint32_t home = 0;                 ///< the process of the membership, until it is lost
  std::atomic<bool> at_home{true};        ///< the membership is here
  std::uint64_t parent = 0;               ///< it is a part of that communicator
  epoch_t split = 0;                      ///< by that operation
  std::vector<rank_t> parent_rank;        ///< by rank

  bool is_here(rank_t rank) const { return links == nullptr || table->is_here(rank); }
  /// That rank of the parent has not got its part, and never will. Any thread.
  void never_comes(rank_t in_parent);
  /// All ranks of this process have left.
  bool all_left_here();
  /// `lost` is out of the job: so are its ranks, and the membership if it was there. Any thread.
  void process_lost(std::uint32_t lost, const std::string& how);

  // -- any thread; the caller holds a reference ------------------------------------------------------------------------

  bool has_actors() const noexcept { return made_.load(std::memory_order_acquire); }
  /// Made now if they are not there yet. Null when the communicator has ended without.
  const caf::actor& membership();
  const caf::actor& shell(rank_t rank);
  /// From a rank to the membership, wherever that is.
  template <class Word>
  void tell_membership(Word&& what);
  /// A rank will call nothing more. When all have said so, a communicator without actors has ended.
  void left(rank_t rank, epoch_t operations, call last, sends_ptr sent);
  /// A rank refers to nobody's buffers any more, and the communicator is broken.
  void quiet(rank_t rank);
  void abort(const failure_ptr& why);
  /// Ends all actors.
  void dissolve();
  /// The same, but for the membership, which has said so.
  void end_ranks();
  /// It lives until it ends. Once, when all is made.
  void live();
  void end();

private:
  bool make();
  template <class Word>
  bool keep(Word&& what);
  template <class Word>
  void keep_in_job(Word&& what);
  void make_membership();
  void send_home(const home_word& what);
  void tell_untold();

  caf::actor_system& system_;
  std::atomic<bool> made_{false};
  std::atomic<int> left_{0};  ///< while there are no actors
  mutable std::mutex mutex_;  // when actors are made, and for what comes seldom
  caf::actor membership_;
  std::vector<std::variant<left_message, quiet_message, abort_message>>
      early_;  ///< for the membership: two a rank, and one. In a job they are kept, for the one that may follow
  empty_places never_come_;
  std::shared_ptr<communicator_actors> alive_;
};
template <class Word>
void communicator_actors::tell_membership(Word&& what) {
  if (!at_home.load()) return send_home(home_word{std::forward<Word>(what)});
  if (const caf::actor& there = membership()) post(there, std::forward<Word>(what));
}

using communicator_actors_ptr = std::shared_ptr<communicator_actors>;

}  // namespace troupe::actors
