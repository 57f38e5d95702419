#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/calls.hpp"
#include "engine/api/persistent.hpp"
#include "engine/api/request.hpp"
#include "memory/export.hpp"

namespace troupe {

class group;

/// One rank's membership in a group of ranks.
///
/// Every collective comes in four forms with the arguments that engine/api/calls.hpp describes:
///   all_reduce(args…)              blocking; throws error
///   all_reduce_async(args…)        returns a request; throws only for arguments that are wrong on this rank alone
///   all_reduce_async(group, args…) joins the group, launched with it
///   all_reduce_init(args…)         returns a persistent operation, checked and planned once and started many times
/// The last three outlive the call, so they take no temporaries that own their elements: a named range, or a std::span.
/// A call that is refused on one rank alone (a null buffer, a bad root …) throws there and is no call: the rank may call again,
/// and until it does, or leaves, or a deadline passes, the others wait for it.
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
  /// "world", "world.split(1)" …, as errors name it.
  const std::string& name() const noexcept;

  // -- collectives ----------------------------------------------------------------------------------------------------

#define TROUPE_COLLECTIVE(NAME)                                                                                        \
  template <class... Arguments>                                                                                        \
  void NAME(Arguments&&... arguments) {                                                                                \
    run(calls::NAME(std::forward<Arguments>(arguments)...));                                                           \
  }                                                                                                                    \
  template <class... Arguments>                                                                                        \
    requires(outlives_call<Arguments> && ...)                                                                          \
  &&requires(Arguments && ... a) { calls::NAME(std::forward<Arguments>(a)...); }                                       \
  [[nodiscard]] request NAME##_async(Arguments&&... arguments) {                                                       \
    return start(calls::NAME(std::forward<Arguments>(arguments)...));                                                  \
  }                                                                                                                    \
  template <class... Arguments>                                                                                        \
    requires(outlives_call<Arguments> && ...)                                                                          \
  request NAME##_async(group& in, Arguments&&... arguments) {                                                          \
    return join(in, calls::NAME(std::forward<Arguments>(arguments)...));                                               \
  }                                                                                                                    \
  template <class... Arguments>                                                                                        \
    requires(outlives_call<Arguments> && ...)                                                                          \
  [[nodiscard]] persistent NAME##_init(Arguments&&... arguments) {                                                     \
    return prepare(calls::NAME(std::forward<Arguments>(arguments)...));                                                \
  }

// An int is a count, too: it is converted here, where its caller could not silence the warning.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
  TROUPE_COLLECTIVE(all_reduce)
  TROUPE_COLLECTIVE(all_gather)
  TROUPE_COLLECTIVE(all_gather_v)
  TROUPE_COLLECTIVE(reduce_scatter)
  TROUPE_COLLECTIVE(reduce_scatter_v)
  TROUPE_COLLECTIVE(broadcast)
  TROUPE_COLLECTIVE(reduce)
  TROUPE_COLLECTIVE(gather)
  TROUPE_COLLECTIVE(gather_v)
  TROUPE_COLLECTIVE(scatter)
  TROUPE_COLLECTIVE(scatter_v)
  TROUPE_COLLECTIVE(all_to_all)
  TROUPE_COLLECTIVE(all_to_all_v)
  TROUPE_COLLECTIVE(barrier)
  TROUPE_COLLECTIVE(scan)
  TROUPE_COLLECTIVE(exscan)
  TROUPE_COLLECTIVE(send)
  TROUPE_COLLECTIVE(recv)
#pragma GCC diagnostic pop
#undef TROUPE_COLLECTIVE

  /// Sends to one rank and receives from another at once. The ranges may be of different sizes, and must not overlap
  /// (errc::buffers_overlap).
  template <buffer S, buffer R>
  void send_recv(S&& out, rank_t to, R&& in, rank_t from, call_options options = {}) {
    exchange(calls::recv(std::forward<R>(in), from, options), calls::send(std::forward<S>(out), to, options));
  }

  /// The same with one range for both: what it held is sent, and what is received replaces it. Cost: a copy of what is sent.
  template <buffer B>
  void send_recv_replace(B&& data, rank_t to, rank_t from, call_options options = {}) {
    replace(calls::recv(data, from, options), calls::send(data, to, options));
  }

  /// Any operation, described; what the forms above do.
  void run(call_description what);
  [[nodiscard]] request start(call_description what);
  request join(group& in, call_description what);
  [[nodiscard]] persistent prepare(call_description what);

  // -- communicators --------------------------------------------------------------------------------------------------

  /// Ranks with the same color form a communicator, ordered by (key, rank). A negative color gets an empty one (size 0).
  /// Collective: every rank must call it, in the order of its other calls.
  communicator split(int color, int key, call_options options = {});
  /// The same ranks, with operations of their own. Collective.
  communicator duplicate(call_options options = {});

  /// Fails every operation under way and every later one on all ranks with errc::communicator_aborted and this reason. From any
  /// thread; returns at once.
  void abort(const std::string& reason = "abort was called");

  /// Deadline of operations that name none; overrides the engine's. Empty: none.
  void set_deadline(std::optional<std::chrono::nanoseconds> deadline);

  explicit operator bool() const noexcept { return impl_ != nullptr; }

private:
  friend class engine;
  friend class group;
  friend class persistent;
  friend struct communicator_access;
  struct impl;
  explicit communicator(std::shared_ptr<impl> i);
  void exchange(call_description incoming, call_description outgoing);
  void replace(call_description incoming, call_description outgoing);
  std::shared_ptr<impl> impl_;
};

/// Operations that are launched together. Operations may belong to different communicators and ranks; one thread that drives
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
  request add(const std::shared_ptr<request::started>& what, std::shared_ptr<const void> member);
  void launch_all();
  std::vector<request> requests_;
  std::size_t launched_ = 0;  ///< of them, from the first
};

}  // namespace troupe
