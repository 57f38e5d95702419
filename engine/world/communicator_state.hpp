// SPDX-License-Identifier: Apache-2.0
#pragma once
// What engine, communicators and requests share behind the public headers.

#include <atomic>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/caf/runtime.hpp"
#include "actors/log.hpp"
#include "actors/ports/segment/caller_memory.hpp"
#include "actors/rank/rank_table.hpp"
#include "engine/api/communicator.hpp"
#include "engine/api/engine.hpp"
#include "engine/api/gate.hpp"
#include "engine/api/request.hpp"
#include "engine/planning/planner.hpp"
#include "engine/world/divisions.hpp"
#include "engine/world/recorder.hpp"
#include "engine/world/shrinks.hpp"

namespace troupe {

struct communicator_state;
class lasting_memory;
namespace choreographies {
class peer_order;
}

/// The inside of an engine; communicators and requests keep it alive, the engine closes it.
struct engine_core : std::enable_shared_from_this<engine_core> {
  explicit engine_core(engine_options o);
  ~engine_core();

  std::shared_ptr<communicator_state> found(std::string name, layout placement, std::vector<int> machine_ranks,
                                            std::shared_ptr<actors::run_threads> run,
                                            const actors::job_part* job = nullptr,
                                            std::shared_ptr<recorded_communicator> record = nullptr);
  void meet_on_host(actors::job_part& part, const layout& placement) const;
  void close();
  /// A rank of `which` is going to wait for others that are no operation's. Throws error(engine_closed) when it is too late for that.
  void will_wait(const std::shared_ptr<communicator_state>& which);

  engine_options options;
  const offload_wish offload;
  layout machine_layout;  ///< of the options; one rank if they say no places
  bool has_layout = false;
  std::shared_ptr<spdlog::logger> log;
  const std::shared_ptr<actors::caller_memory> memory = std::make_shared<actors::caller_memory>();
  const std::shared_ptr<lasting_memory> lasting;  ///< of `memory`: what peers read of expert exchanges
  planner plans;
  gate door;  ///< guards `runtime`
  std::unique_ptr<actors::runtime> runtime;
  std::atomic<int> worlds{0};
  int channels_of_job = 0;  ///< as all processes of the job have it; 0: it has joined none
  join_options joined_by;   ///< what a job that this one grows into is joined by, too
  bool has_grown = false;   ///< the job is one that another one has grown into
  std::mutex waiting_mutex;
  std::vector<std::weak_ptr<communicator_state>> waiting;  ///< see will_wait()
  bool closing = false;                                    ///< guarded by waiting_mutex
  std::vector<std::weak_ptr<recorder>> recorders;          ///< guarded by waiting_mutex

  // -- jobs that its communicators have grown into: each has a core of its own, which ends with the engine --
  std::weak_ptr<engine_core> grown_from;  ///< the engine's; empty: this one is
  std::shared_ptr<engine_core> root() { return grown_from.lock() ? grown_from.lock() : shared_from_this(); }
  /// It ends with this one. Throws error(engine_closed) when it is too late for that. @pre this is the engine's own
  void adopt(const std::shared_ptr<engine_core>& grown);
  /// Ends those that nobody uses any more, here and elsewhere.
  void end_unused();

private:
  void begin_close();
  void end_close();
  std::vector<std::shared_ptr<engine_core>> grown_;  ///< guarded by waiting_mutex
};

/// Throws the failure as error.
[[noreturn]] void throw_failure(const failure_ptr& why);

/// Whether the caller waits for the end of the call. Then it calls for no other rank before that.
enum class caller_waits : bool { no, yes };

/// A communicator as all its ranks see it.
struct communicator_state : std::enable_shared_from_this<communicator_state> {
  explicit communicator_state(int spins) : parts(spins) {}

  /// What one rank's caller has set, and remembers.
  struct caller {
    using counter = std::shared_ptr<std::atomic<int>>;
    /// Under way: sends and receives, and collectives begun by …_async or in a group. Each costs memory here and, unmatched, at peers.
    struct open_calls {
      std::atomic<int> pairs{0}, collectives{0};
    };
    const std::shared_ptr<open_calls> open = std::make_shared<open_calls>();
    counter open_pairs() const { return {open, &open->pairs}; }
    counter open_collectives() const { return {open, &open->collectives}; }
    static constexpr int most_open = 8192;
    static constexpr std::int64_t unset = std::numeric_limits<std::int64_t>::min();
    static constexpr std::int64_t no_deadline = std::numeric_limits<std::int64_t>::max();
    std::atomic<std::int64_t> deadline_ns{unset};
    plan_memo last_plan;
  };

  std::shared_ptr<engine_core> core;
  std::shared_ptr<recorded_communicator> record;  ///< null unless engine_options::record names a file
  std::shared_ptr<actors::communicator_actors> members;
  actors::rank_table* table = nullptr;  ///< of `members`
  std::string name;
  int ranks = 0;
  layout placement;
  /// With `planner = nccl`: of a group's sends and receives, and of their channels. Else null: in the order of adding, by the first channel.
  std::shared_ptr<const choreographies::peer_order> meeting;
  std::vector<int> machine_ranks;
  std::shared_ptr<actors::run_threads> run;
  std::unique_ptr<caller[]> callers;  ///< by rank

  divisions parts;
  shrinks shrunk;
  bool part_has_name = false;  ///< its one split has its own name: it only orders the ranks
  /// Ranks here, and what the communicator grew into for them: written by one of them before all meet, and taken by each of them then (grow.cpp).
  std::vector<std::pair<rank_t, communicator>> grown;
  std::uint64_t id = 0;                   ///< the same in all processes that have ranks of it
  std::vector<std::uint32_t> process_of;  ///< by rank; empty: all ranks live here
  mutable std::mutex copies_mutex;        // when a copy is made, and when it ends
  std::vector<std::weak_ptr<communicator_state>> copies;

  /// The job's side of the part that these ranks form by split number `which`; nothing: they all live here.
  std::optional<actors::job_part> part_for(std::span<const rank_t> members, epoch_t which, int color) const;
  /// The communicator of those that a shrink has left, as `rank` of this one has it; and its rank there. Throws error
  std::pair<std::shared_ptr<communicator_state>, rank_t> part_after(const shrinks::round& which, rank_t rank);
  /// The rank will never take its place in a part of that split; the other processes hear it, too.
  void give_up(epoch_t which, rank_t rank);
  /// Checks the description and makes an operation of it, without its place in the order. Throws error; then it is no call.
  void describe(actors::operation& op, rank_t rank, call_description& what, const actors::plan_ptr& known = nullptr);
  /// The same for a call: one that is refused is told to the others. @param checked the description has been checked before
  void prepare(actors::operation& op, rank_t rank, call_description& what, caller_waits waits,
               const actors::plan_ptr& known = nullptr, bool checked = false);
  actors::operation_ptr prepare(rank_t rank, call_description what, caller_waits waits);
  template <class Title>
  static void open(actors::operation& op, rank_t rank, caller::counter among, const char* what, Title&& title);
  /// Counts it among the rank's collectives under way. Throws error(out_of_memory): they are too many; then it is no call.
  void open_collective(actors::operation& op, rank_t rank, const call_description& what);
  /// The same of a description that has been checked. @param known its plan; null: not asked for yet
  void prepare_checked(actors::operation& op, rank_t rank, call_description&& what, caller_waits waits,
                       const actors::plan_ptr& known);
  actors::rank_cell& cell(rank_t rank) const { return table->at(rank); }
  /// A call was refused here, and the others would wait for it. It takes its place in the order, where it fails on every rank, and what
  /// was thrown goes on to the caller, with the rank's name. Of sends and receives nobody is told. @pre in a handler
  [[noreturn]] void refuse(rank_t rank, const call_description& what, caller_waits waits);
  /// Nor of the exception under way if no rank can do what was called, and this thread may be the one that calls for all ranks: it
  /// would have called for the others next, and leaves that now. @pre in a handler
  bool is_no_call(const call_description& what, caller_waits waits) const;
  /// A blocking collective that may be performed on the boards, where no operation object is needed. It is over, or it has not begun;
  /// then the description has been checked if `plan` is set, to the call's. Throws error if it is refused. @param why it has failed
  /// @pre table->has_boards()
  bool end_on_board(rank_t rank, call_description& what, actors::plan_ptr& plan, failure_ptr& why);
  /// The same, of sends and receives, too. False: it has not begun. Throws error as soon as it has failed.
  bool run_on_board(rank_t rank, call_description& what, actors::plan_ptr& plan);
  /// The same for a send and a receive at once. False: neither has begun.
  bool run_pairs(rank_t rank, std::initializer_list<call_description*> calls);
  /// A blocking collective that is one of the rank's last ones on the boards again, buffers and all: it was right then. False: it has not begun;
  /// describe it. Throws error as soon as it has failed.
  bool run_again(rank_t rank, const plain_call& what);
  /// The same, of blocks of different sizes, if nothing is wrong with it; buffers and sizes may be others.
  bool run_again(rank_t rank, const plain_v_call& what);
  /// The same of what has not been described yet, or checked. False: describe it; it has not begun, or something may be wrong with it.
  bool run_messages(rank_t rank, std::span<const detail::message> what);
  /// Of what was found right. False: none has begun. Throws error as soon as one has failed.
  bool perform_pairs(rank_t rank, std::span<const actors::pair_call> calls, actors::time_limit deadline);
  /// The same of those that have begun and take long. @pre rank_cell::pairs_end::later
  void wait_for_pairs(rank_t rank);
  /// A send to or receive from proc_null, which is done at once. Throws error as check_call().
  bool is_nothing(rank_t rank, call_description& what) const;
  /// A blocking operation. @pre inside the engine's door, and the thread may wait
  void run_now(rank_t rank, call_description&& what);
  /// The same of a send and a receive, of which neither is nothing.
  void exchange_now(rank_t rank, call_description&& incoming, call_description&& outgoing);
  /// One that may be performed like the last one of its class. Whether the NIC performs it depends on its sizes.
  bool may_be_listed(const op& reduction, const call_options& options) const {
    return core->offload == offload_wish::never && actors::is_known_by_words(reduction, options);
  }
  /// If nothing is wrong with it, and it is like one of the rank's last calls, with other sizes perhaps.
  actors::rank_cell::call_end begin_listed(rank_t rank, listed_call&& what, const call_options& options);
  /// Waits for its end, if it takes long. False: it has not begun. Throws error if it has failed.
  bool see_end(rank_t rank, actors::rank_cell::call_end of) {
    if (of == actors::rank_cell::call_end::later) [[unlikely]]
      if (const failure_ptr why = end_of_rest(rank)) throw_failure(why);
    return of != actors::rank_cell::call_end::not_begun;
  }
  /// Waits for what has begun and takes long. Null: it is performed. @pre rank_cell::call_end::later
  failure_ptr end_of_rest(rank_t rank) const;
  /// Its first part, which throws only if nothing was begun.
  actors::rank_cell::call_end begin_on_board(rank_t rank, call_description& what, actors::plan_ptr& plan);
  /// Turns the rank, and then helps others, until `done`. False: the deadline has passed.
  bool wait(rank_t rank, const actors::completion_ptr& done, actors::steady_time deadline = actors::no_deadline) const;
  /// As all ranks that call the same have it.
  agreement_time agreement_for(const call& what, const call_options& options) const {
    if (!has_root(what.what)) return agreement_time::strict;
    return options.agreement != agreement_time::unset ? options.agreement : core->options.agreement;
  }
  /// Of a blocking send.
  sent_when when_sent(std::size_t bytes, agreement_time asked) const {
    const bool fits = bytes <= pair_lane::left_bytes;
    const agreement_time agreed = asked != agreement_time::unset ? asked : core->options.agreement;
    return fits && agreed == agreement_time::eager ? sent_when::copied : sent_when::taken;
  }
  /// Whether the process's NIC is to perform it, if it can, and if it pays (planner.hpp).
  bool wants_offload(const call& what, caller_waits waits) const {
    return core->offload != offload_wish::never &&
           troupe::wants_offload(core->offload, what, waits == caller_waits::no);
  }
  /// The call's, else the communicator's, else the engine's.
  actors::time_limit deadline_for(rank_t rank, const std::optional<std::chrono::nanoseconds>& asked) const {
    constexpr std::int64_t longest =
        std::chrono::nanoseconds{std::chrono::hours(24 * 365)}.count();  // beyond: none, so that no clock overflows
    std::int64_t chosen = callers[static_cast<std::size_t>(rank)].deadline_ns.load(std::memory_order_relaxed);
    if (asked) chosen = asked->count();
    else if (chosen == caller::unset)
      chosen = core->options.deadline ? core->options.deadline->count() : caller::no_deadline;
    if (chosen > longest) return {};
    return std::chrono::nanoseconds{std::max<std::int64_t>(chosen, 0)};
  }
  /// A copy of this one, of the same ranks, whose calls serve calls of this one: what ends this one ends it, too, while somebody has it. Any thread.
  void takes_along(const std::shared_ptr<communicator_state>& copy);
  /// Revoked or aborted by that rank of this process, and all copies with it. Any thread. @pre inside the engine's door
  void end(rank_t by, const failure_ptr& why) const;
  /// Of shrink() and grow() without one.
  static constexpr std::chrono::minutes usual_deadline{1};
  /// A rank that waits for longer is named in the log, where the membership does not see it wait.
  static constexpr std::chrono::seconds long_time{5};
};

struct TROUPE_INTERNAL communicator::impl {
  std::shared_ptr<communicator_state> of;
  rank_t rank = 0;
  gate::entrance
      entrance;  ///< of blocking calls, to the engine's gate. @pre the thread may wait, so it is in no call here already
  ~impl();
  /// A blocking operation that needs no description, unless it has to be recorded. False: it has not begun.
  template <class Run>
  bool at_once(Run&& run);
  std::size_t doorway() const { return static_cast<std::size_t>(rank); }  ///< of the engine's gate
};

struct TROUPE_INTERNAL request::state {
  std::shared_ptr<communicator_state> of;
  rank_t rank = 0;
  actors::operation* what = nullptr;  ///< in the same piece of memory
  started_pair* pair = nullptr;       ///< the piece of memory, if a send is in it, too
  std::atomic<bool> launched{false};
  std::atomic<bool> cancel_wanted{false};
  mutable recorder::label recorded{};  ///< until it has been waited for
  actors::completion_ptr done;
  // Of a group that is not launched yet:
  actors::operation_ptr to_launch;
  std::shared_ptr<const void> member;  ///< so that the rank does not leave before

  void begin(actors::operation_ptr op);
  /// @param open the engine's door is held open; else it was closed before. @pre of a group, and not launched
  void launch(bool open);
  void give_up();
  /// False: `deadline` has passed.
  bool wait_until(actors::steady_time deadline) const;
  bool wait_now(actors::steady_time deadline) const;
  void note_begin();
  /// @pre launched, and inside the engine's door
  static void end_cancelled(const std::shared_ptr<state>& which);
  static void end_with(const std::shared_ptr<state>& which, const failure_ptr& why);
};

/// An asynchronous operation with all that belongs to it, in one piece of memory: the request's state and the operation share it.
struct TROUPE_INTERNAL request::started {
  started(const std::shared_ptr<communicator_state>& of, rank_t rank) : op(done) {
    caller.of = of;
    caller.rank = rank;
    caller.done = op.done;
    caller.what = &op;
  }

  /// Makes it ready to be begun once more. @pre on a board, done, and nobody else refers to it
  void again() {
    done.reset();
    op.registered = op.stalled = op.agreed = op.over = op.launched = false;
    op.unlike = -1;
    op.moved = 0;
    op.suspected = 0;
    op.begun = {};
    op.expires = actors::no_deadline;
    caller.launched.store(false);
    caller.cancel_wanted.store(false);
  }
  /// For those who perform it.
  static actors::operation_ptr share(const std::shared_ptr<started>& all) { return {all, &all->op}; }

  actors::completion done;
  state caller;
  actors::operation op;  // last: when it is destroyed it completes `done`
};

/// The same for a send_recv: two operations, and one end.
struct TROUPE_INTERNAL request::started_pair {
  /// @param replaces the send is of a copy of what the receive is going to replace
  started_pair(const std::shared_ptr<communicator_state>& of, rank_t rank, call_description&& incoming,
               call_description&& outgoing, bool replaces);

  /// @param whole shares this
  void begin(const actors::operation_ptr& whole);
  void part_ended();
  static std::shared_ptr<state> share(const std::shared_ptr<started_pair>& all) { return {all, &all->caller}; }

  actors::completion done, received, sent;
  state caller;
  std::atomic<int> left{2};
  std::unique_ptr<std::byte[]> copy;  ///< filled when it begins
  std::size_t copied_bytes = 0;
  actors::operation in, out;  // last: when they are destroyed they complete their parts
};

/// Rank's view of the description: sizes, roots, overlaps, types. Fills in what the description leaves open (in place, counts
/// of ranges). Throws error with what is wrong and what would be right.
void check_call(call_description& what, rank_t rank, int ranks);
/// Makes of it what check_call() would, if nothing is wrong with it: what only the root needs another rank leaves out. False: check_call() decides,
/// which finds more of them right, and has the sentences for the others. @pre without a tag
bool look_at_lists(listed_call& what, rank_t rank, int ranks);
/// Elements of the only block there is, so that the call is that of blocks of equal size; none: something may be wrong with it, or its block does not lie at
/// the begin of its buffer. @pre of a rank alone
std::optional<std::size_t> only_block_of(const listed_call& c);

/// The engine's inside. engine.cpp.
const std::shared_ptr<engine_core>& core_of(engine& of);
/// Null: the handle is empty.
const communicator_state* state_of(const communicator& of);
/// communicator_state::takes_along(). @pre neither is empty
void take_along(const communicator& of, const communicator& copy);

[[noreturn]] void refuse_closed();
[[noreturn]] void refuse_empty();

template <class Run>
bool communicator::impl::at_once(Run&& run) {
  actors::runtime::check_may_wait();
  const gate::quick_pass inside{of->core->door, entrance};
  if (!inside) refuse_closed();
  return !of->record && run(*of, rank);
}

}  // namespace troupe
