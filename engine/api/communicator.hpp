// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/arguments.hpp"
#include "engine/api/calls.hpp"
#include "engine/api/messages.hpp"
#include "engine/api/partitioned.hpp"
#include "engine/api/persistent.hpp"
#include "engine/api/refusals.hpp"
#include "engine/api/request.hpp"
#include "memory/error.hpp"
#include "memory/export.hpp"

namespace troupe {

class group;
class expert_exchange;
struct expert_options;

/// How an operation ended on every rank.
struct operation_outcome {
  std::vector<errc> of_rank;  ///< errc::ok where it succeeded
  bool all_succeeded() const {
    for (const errc one : of_rank)
      if (one != errc::ok) return false;
    return true;
  }
};

/// Of communicator::shrink().
struct shrink_options {
  /// Empty: the communicator's or the engine's, and if those name none a minute.
  std::optional<std::chrono::nanoseconds> deadline{};
  /// Fewer ranks than this are an error on all of them: with more than half of all, only one side of a network that was cut goes on.
  int at_least = 1;
};

/// Of communicator::grow().
struct grow_options {
  /// Called on rank 0, when new processes can come, with the invitation: one word, which they join by (TROUPE_JOIN,
  /// join_options::rendezvous). It holds the key of the new job: anybody who reads it can join. It must not wait for this engine; what it throws ends
  /// the grow on all ranks. Other ranks' is not looked at.
  std::function<void(const std::string& invitation)> invite{};
  /// Empty: the communicator's or the engine's, and if those name none a minute.
  std::optional<std::chrono::nanoseconds> deadline{};
  const std::atomic<bool>* cancel =
      nullptr;           ///< set to true by any thread: it ends with error(cancelled), on all ranks
  std::string listen{};  ///< of rank 0: where the new processes come, as in id_options
};

/// One rank's membership in a group of ranks.
///
/// Every collective comes in four forms with the arguments that engine/api/calls.hpp describes:
///   all_reduce(args…)              blocking; throws error
///   all_reduce_async(args…)        returns a request; throws only for arguments that are wrong on this rank alone, and for too many requests
///   all_reduce_async(group, args…) joins the group, launched with it
///   all_reduce_init(args…)         returns a persistent operation, checked and planned once and started many times
/// and, those that move data in equal blocks, partitioned (partitioned.hpp): all_reduce_init(args…, partitions(k)).
/// The last three outlive the call, so they take no temporaries that own what they refer to: name the range, or pass a std::span. What can be done at once is done by the thread that starts them, also a function of the program's that reduces.
/// Options may be written in braces at the end of any of them: {.deadline = std::chrono::seconds{1}}.
/// A collective that is refused on one rank alone (a null buffer, a bad root …) throws there at once. It counts as that rank's call all
/// the same: on the other ranks the operation fails with errc::peer_refused, which names the rank and its reason, and all go on with
/// the next one, or, of a rooted call that others have run ahead of (agreement_time::eager), the communicator ends so. In a group it keeps its place. No calls are: a refused …_init; a refused send or receive, whose peer waits on; one more
/// than the 8192 collectives of the second and third form, or 8192 sends and receives, that a rank may have under way or in groups
/// (errc::out_of_memory: wait for some, and call it again); and
/// what no rank can do (errc::unsupported, unsupported_type, bad_score: a misspelt choreography …) in an …_async form outside of engine::run.
/// A thread that calls for all ranks would be told the same of each, and may stop at the first; other ranks that called
/// something else wait until this one has called or left. Blocking, or on a thread of engine::run, it is a call like any other.
/// All ranks must call the same collectives in the same order, whichever form each uses. One thread at a time may use a
/// communicator object; different communicators are independent, also those of the same rank.
///
/// Move-only. Destroying it tells the others that this rank will call nothing more; operations under way go on.
class TROUPE_API communicator {
public:
  communicator();
  communicator(communicator&&) noexcept;
  communicator& operator=(communicator&&) noexcept;
  ~communicator();

  int rank() const noexcept;
  int size() const noexcept;
  /// "world", "world.split7(1)" (the part of colour 1 that the operation 7 of world made) …, as errors name it.
  const std::string& name() const noexcept;

  // -- collectives ----------------------------------------------------------------------------------------------------

// Each form once for any arguments, and once for each number of arguments before options that are written in braces:
// all_reduce(data, sum, {.deadline = 1s}).
#define TROUPE_JOINED(A, B) A##B
#define TROUPE_JOIN(A, B) TROUPE_JOINED(A, B)
#define TROUPE_SAYS(WHY, ...) (__VA_ARGS__) == detail::refusal::WHY, TROUPE_SENTENCE_##WHY, "error"
#define TROUPE_NOW(WHY) TROUPE_SAYS(WHY, TROUPE_JOIN(refusal_, TROUPE_NAME) < TROUPE_ALL_GIVEN > (false))
#define TROUPE_LATER(WHY) TROUPE_SAYS(WHY, TROUPE_JOIN(refusal_, TROUPE_NAME) < TROUPE_ALL_GIVEN > (true))
#define TROUPE_IN_BRACES true, TROUPE_SENTENCE_in_braces, "error"
// An int is a count, too: it is converted here, where its caller could not silence the warning. GCC does not know the attribute by which clang
// says what is refused.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wgcc-compat"
#else
#pragma GCC diagnostic ignored "-Wattributes"
#endif
#define TROUPE_NAME all_reduce
#define TROUPE_REDUCES
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME all_gather
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME all_gather_v
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME reduce_scatter
#define TROUPE_REDUCES
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME reduce_scatter_v
#define TROUPE_REDUCES
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME broadcast
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME reduce
#define TROUPE_REDUCES
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME gather
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME gather_v
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME scatter
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME scatter_v
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME all_to_all
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME all_to_all_v
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME barrier
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME scan
#define TROUPE_REDUCES
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME exscan
#define TROUPE_REDUCES
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME send
#define TROUPE_WORDS outgoing
#include "engine/api/collective_forms.inc"
#define TROUPE_NAME recv
#define TROUPE_WORDS incoming
#include "engine/api/collective_forms.inc"
  void barrier(call_options o) { run(calls::barrier(std::move(o))); }
  [[nodiscard]] request barrier_async(call_options o) { return start(calls::barrier(std::move(o))); }
  request barrier_async(group& in, call_options o) { return join(in, calls::barrier(std::move(o))); }
  [[nodiscard]] persistent barrier_init(call_options o) { return prepare(calls::barrier(std::move(o))); }

private:
  /// Of a send and a receive at once.
  template <class S, class R>
  static constexpr detail::refusal refusal_of_pair(bool lasts) {
    if (lasts && !(outlives_call<S> && outlives_call<R>)) return detail::refusal::temporary;
    return buffer<S> && output_buffer<R> ? detail::refusal::none : detail::refusal_of<S, R>();
  }

public:
  /// Sends to one rank and receives from another at once. The ranges may be of different sizes, and must not overlap
  /// (errc::buffers_overlap).
  template <class S, class R>
  __attribute__((diagnose_if(TROUPE_SAYS(no_range, refusal_of_pair<S, R>(false))),
                 diagnose_if(TROUPE_SAYS(no_form, refusal_of_pair<S, R>(false))))) void
  send_recv(S&& out, rank_t to, R&& in, rank_t from, call_options options = {}) {
    if constexpr (buffer<S> && output_buffer<R>)
      exchange(detail::incoming(std::forward<R>(in), from, options),
               detail::outgoing(std::forward<S>(out), to, options));
    else detail::refused<refusal_of_pair<S, R>(false), call_description, S, R>();
  }

  /// The same with one range for both: what it held is sent, and what is received replaces it. Cost: a copy of what is sent.
  template <class B>
  __attribute__((diagnose_if(TROUPE_SAYS(no_range, refusal_of_pair<B, B>(false))),
                 diagnose_if(TROUPE_SAYS(no_form, refusal_of_pair<B, B>(false))))) void
  send_recv_replace(B&& data, rank_t to, rank_t from, call_options options = {}) {
    if constexpr (output_buffer<B>) replace(calls::recv(data, from, options), calls::send(data, to, options));
    else detail::refused<refusal_of_pair<B, B>(false), call_description, B>();
  }

  /// The other forms of both, as of a collective. A replacing one copies its message when it begins.
  template <class S, class R>
  [[nodiscard]] __attribute__((diagnose_if(TROUPE_SAYS(temporary, refusal_of_pair<S, R>(true))),
                               diagnose_if(TROUPE_SAYS(no_range, refusal_of_pair<S, R>(true))),
                               diagnose_if(TROUPE_SAYS(no_form, refusal_of_pair<S, R>(true))))) request
  send_recv_async(S&& out, rank_t to, R&& in, rank_t from, call_options options = {}) {
    return start_exchange(lasting_recv(std::forward<R>(in), from, options),
                          lasting_send(std::forward<S>(out), to, options), false);
  }
  template <class S, class R>
  __attribute__((diagnose_if(TROUPE_SAYS(temporary, refusal_of_pair<S, R>(true))),
                 diagnose_if(TROUPE_SAYS(no_range, refusal_of_pair<S, R>(true))),
                 diagnose_if(TROUPE_SAYS(no_form, refusal_of_pair<S, R>(true))))) request
  send_recv_async(group& all, S&& out, rank_t to, R&& in, rank_t from, call_options options = {}) {
    return join_exchange(all, lasting_recv(std::forward<R>(in), from, options),
                         lasting_send(std::forward<S>(out), to, options), false);
  }
  template <class S, class R>
  [[nodiscard]] __attribute__((diagnose_if(TROUPE_SAYS(temporary, refusal_of_pair<S, R>(true))),
                               diagnose_if(TROUPE_SAYS(no_range, refusal_of_pair<S, R>(true))),
                               diagnose_if(TROUPE_SAYS(no_form, refusal_of_pair<S, R>(true))))) persistent
  send_recv_init(S&& out, rank_t to, R&& in, rank_t from, call_options options = {}) {
    return prepare_exchange(lasting_recv(std::forward<R>(in), from, options),
                            lasting_send(std::forward<S>(out), to, options), false);
  }
  template <class B>
  [[nodiscard]] __attribute__((diagnose_if(TROUPE_SAYS(temporary, refusal_of_pair<B, B>(true))),
                               diagnose_if(TROUPE_SAYS(no_range, refusal_of_pair<B, B>(true))),
                               diagnose_if(TROUPE_SAYS(no_form, refusal_of_pair<B, B>(true))))) request
  send_recv_replace_async(B&& data, rank_t to, rank_t from, call_options options = {}) {
    return start_exchange(lasting_recv(std::forward<B>(data), from, options), described_send(data, to, options), true);
  }
  template <class B>
  __attribute__((diagnose_if(TROUPE_SAYS(temporary, refusal_of_pair<B, B>(true))),
                 diagnose_if(TROUPE_SAYS(no_range, refusal_of_pair<B, B>(true))),
                 diagnose_if(TROUPE_SAYS(no_form, refusal_of_pair<B, B>(true))))) request
  send_recv_replace_async(group& all, B&& data, rank_t to, rank_t from, call_options options = {}) {
    return join_exchange(all, lasting_recv(std::forward<B>(data), from, options), described_send(data, to, options),
                         true);
  }
  template <class B>
  [[nodiscard]] __attribute__((diagnose_if(TROUPE_SAYS(temporary, refusal_of_pair<B, B>(true))),
                               diagnose_if(TROUPE_SAYS(no_range, refusal_of_pair<B, B>(true))),
                               diagnose_if(TROUPE_SAYS(no_form, refusal_of_pair<B, B>(true))))) persistent
  send_recv_replace_init(B&& data, rank_t to, rank_t from, call_options options = {}) {
    return prepare_exchange(lasting_recv(std::forward<B>(data), from, options), described_send(data, to, options),
                            true);
  }
#pragma GCC diagnostic pop
#undef TROUPE_JOINED
#undef TROUPE_JOIN
#undef TROUPE_SAYS
#undef TROUPE_NOW
#undef TROUPE_LATER
#undef TROUPE_IN_BRACES
#undef TROUPE_SENTENCE_temporary
#undef TROUPE_SENTENCE_no_range
#undef TROUPE_SENTENCE_no_form
#undef TROUPE_SENTENCE_without_rank
#undef TROUPE_SENTENCE_no_reduction
#undef TROUPE_SENTENCE_no_function
#undef TROUPE_SENTENCE_in_braces

  /// Waits for an operation of this rank, and tells how it ended on every rank. A collective call of its own: all ranks ask about the same
  /// operation, in the order of their other calls, whatever they got. The membership decides once, so every rank that lives gets the same
  /// answer, or the same error if it cannot be known: a deadline (options.deadline) passed, a rank is missing, the communicator ended. Not
  /// of a send or receive (errc::invalid_argument). Cost: a message to the membership and back, some 10 µs.
  operation_outcome outcome(request of, call_options options = {});
  /// The same of what this rank knows itself: of blocking calls, or of several operations.
  operation_outcome outcome(std::error_code mine, call_options options = {});
  /// `told` is filled when the request is done, and must live until then.
  [[nodiscard]] request outcome_async(std::error_code mine, operation_outcome& told, call_options options = {});
  request outcome_async(group& in, std::error_code mine, operation_outcome& told, call_options options = {});

  /// Any operation, described; what the forms above do.
  void run(const plain_call& what);
  void run(const plain_v_call& what);
  void run(call_description&& what);
  void run(const call_description& what);
  [[nodiscard]] request start(call_description what);
  request join(group& in, call_description what);
  [[nodiscard]] persistent prepare(call_description what);
  [[nodiscard]] partitioned prepare(call_description what, const partitions& how);

  // -- mixtures of experts (expert_exchange.hpp, docs/experts.md) -----------------------------------------------------------

  /// Sends tokens to the ranks of their experts and the results back, many times with ever new counts. Collective, blocking: every rank calls it,
  /// with the same options, a thread each. What it returns takes its place among the calls of this communicator whenever it is used. Throws error:
  /// invalid_argument (options that cannot be, here), mismatch (other ranks have other options), and as all_gather().
  troupe::expert_exchange expert_exchange(int experts, expert_options options);

  // -- communicators --------------------------------------------------------------------------------------------------

  /// Ranks with the same color form a communicator, ordered by (key, rank). A negative color gets an empty one (size 0).
  /// Collective: every rank must call it, in the order of its other calls.
  communicator split(int color, int key, call_options options = {});
  /// The same without exceptions.
  [[nodiscard]] std::error_code try_split(communicator& into, int color, int key, call_options options = {}) noexcept;
  /// The same for a thread that drives several ranks: `into` is written by the time the request is done, and must live until then.
  [[nodiscard]] request split_async(communicator& into, int color, int key, call_options options = {});
  request split_async(group& in, communicator& into, int color, int key, call_options options = {});

  /// The same ranks, with operations of their own. Collective; in the same forms.
  communicator duplicate(call_options options = {});
  [[nodiscard]] std::error_code try_duplicate(communicator& into, call_options options = {}) noexcept;
  [[nodiscard]] request duplicate_async(communicator& into, call_options options = {});
  request duplicate_async(group& in, communicator& into, call_options options = {});

  // -- after failures (docs/hosts.md) ---------------------------------------------------------------------------------------

  /// Fails every operation under way and every later one on all ranks with errc::revoked and this reason, also on those that have not noticed
  /// what went wrong. For who knows, and wants the others to come to shrink() too. If the communicator has ended before (a process was lost, it was
  /// aborted), that stays the error. From any thread; returns at once.
  void revoke(const std::string& reason = "revoke was called");

  /// The communicator of the ranks that are left, in the order of their old ranks and in their places of the layout. Works on every communicator,
  /// also one that is revoked, aborted, or has lost processes. Each rank that lives has to call it; nobody waits for ranks
  ///   - that are in a process that is lost, or is lost meanwhile;
  ///   - whose communicator object is gone: they have ended, or threw out of engine::run.
  /// A rank whose actor died in a process that lives is one that lives: the thread that called for it may call this. All get the same answer, also if
  /// processes end meanwhile. A process that ends after the answer is in it: then the new communicator fails with errc::peer_lost, and is shrunk
  /// in turn. This communicator stays what it is. Throws error: timed_out with those that are missing (call it again to go on waiting), peer_lost (this
  /// process was taken for lost by the others; or fewer than at_least are left), engine_closed, out_of_memory. Blocks: a thread a rank. After 5 s the log says
  /// which ranks wait and which have not called it.
  communicator shrink(shrink_options options = {});
  /// The same without exceptions.
  [[nodiscard]] std::error_code try_shrink(communicator& into, shrink_options options = {}) noexcept;

  /// The communicator of these ranks, in their order, and of those of `processes` new processes behind them. The new ones get it by
  /// engine::join(), whose options or environment name the invitation. Collective: every rank calls it, with the same number, also
  /// several threads of a process; the communicator must be whole (shrink it first), and stays what it is. On these ranks
  /// it succeeds on all or fails on all; after a failure they may go on, or grow again. It is a job of its own, with the options of the engine, by
  /// which the new processes must have been made, too; it ends with the engine, whose allocate() is ordinary memory to it. Cost: some milliseconds,
  /// threads and connections as a join has, until nobody uses what it grew to.
  /// Throws error: timed_out with who is missing, cancelled, mismatch (other options, other numbers of processes), peer_lost (a process of this
  /// communicator was lost meanwhile, or before), revoked or communicator_aborted (it was before), bad_config, io, engine_closed; if it failed on
  /// one rank only, the others have its code, and its text. Blocks: a thread a rank.
  communicator grow(int processes, grow_options options);
  /// The same without exceptions.
  [[nodiscard]] std::error_code try_grow(communicator& into, int processes, grow_options options) noexcept;

  /// Fails every operation under way and every later one on all ranks with errc::communicator_aborted and this reason. From any
  /// thread; returns at once.
  void abort(const std::string& reason = "abort was called");

  /// Deadline of operations that name none; overrides the engine's. Empty: none.
  void set_deadline(std::optional<std::chrono::nanoseconds> deadline);

  explicit operator bool() const noexcept { return impl_ != nullptr; }

private:
  friend class engine;
  friend class group;
  friend class partitioned;
  friend class persistent;
  friend struct communicator_access;
  struct impl;
  explicit communicator(std::shared_ptr<impl> i);
  void run(const detail::message& what);
  void exchange(const detail::message& incoming, const detail::message& outgoing);
  void exchange(call_description incoming, call_description outgoing);
  void replace(call_description incoming, call_description outgoing);
  request start_exchange(call_description incoming, call_description outgoing, bool replaces);
  request join_exchange(group& in, call_description incoming, call_description outgoing, bool replaces);
  persistent prepare_exchange(call_description incoming, call_description outgoing, bool replaces);
  struct grow_call;
  /// The communicator of the ranks of which `whole` are, by these keys.
  static std::vector<communicator> ordered(std::vector<communicator> whole, const std::vector<int>& keys,
                                           std::chrono::steady_clock::time_point until,
                                           const std::function<bool()>& give_up);
  struct split_call;
  communicator divide(int color, int key, call_purpose what, call_options options);
  request divide(communicator& into, int color, int key, call_purpose what, call_options options, group* in,
                 bool waits);
  std::shared_ptr<impl> impl_;
};

/// Operations that are launched together, in one turn of each rank, whose collectives are all queued before the first of them begins. They begin in the order of adding, but for sends and receives with different peers
/// where `planner = nccl` has an order of peers (docs/config.md). Operations may belong to different communicators and ranks; one thread that drives
/// several ranks must use a group (or _async), because each rank's operation waits for the others'.
class TROUPE_API group {
public:
  group() = default;
  group(const group&) = delete;
  group& operator=(const group&) = delete;
  /// Launches and waits; failures are swallowed: call wait() to hear of them.
  ~group();

  /// Launches what has been added since the last launch; does not wait.
  void launch();
  /// Launches, waits for all, and throws the first failure in the order of adding.
  void wait();
  std::size_t size() const noexcept { return requests_.size(); }

private:
  friend class communicator;
  friend class persistent;
  request add(const std::shared_ptr<request::state>& what, std::shared_ptr<const void> member);
  [[noreturn]] void refuse(const std::shared_ptr<communicator::impl>& member, const call_description& what);
  class open_doors;
  class launch_order;
  void launch_all(open_doors& inside);
  std::vector<request> requests_;
  std::size_t launched_ = 0;  ///< of them, from the first
};

}  // namespace troupe
