// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <system_error>

#include "memory/export.hpp"

namespace troupe {

namespace actors {
class completion;
class runtime;
struct operation_name;
}  // namespace actors

/// An operation under way.
///
/// How it ends on the other ranks. Of an operation that all called alike, and that nothing ends before its time, every rank gets the
/// result. A cancel, a deadline, an abort of the communicator, a user's function that throws or a rank that is lost ends it on all ranks; but a
/// rank that had performed its part by then keeps its result, and its request succeeds. So after any of these some ranks may have the
/// result and others the error. Those that have the error all have the same one: errc and text; but the text of a
/// rank that is dozens of failed calls behind may stand for many of them, and then tells that. A mismatch, a call refused on one rank
/// and a rank that never came end it before any rank has performed it; with agreement eager (options.hpp) a rooted operation may have
/// ended on some ranks before that shows, and a mismatch or refusal then ends the communicator. A caller that has to know how it ended everywhere
/// asks communicator::outcome.
///
/// Copies refer to the same operation; dropping all of them neither waits nor cancels, but the
/// buffers must live until the operation is done. Thread-safe.
class TROUPE_API request {
public:
  /// An empty request is done and successful.
  request();
  request(const request&);
  request(request&&) noexcept;
  request& operator=(const request&);
  request& operator=(request&&) noexcept;
  ~request();

  bool done() const noexcept;
  /// Performs what is ready on this thread, never sleeps. True when done. Throws error if the operation failed.
  bool test();
  /// Performs what is ready until done. Throws error if the operation failed: mismatch, rank_missing, timed_out, cancelled …
  /// Must not be called from an actor's handler or a callback (errc::invalid_argument).
  void wait();
  /// False if `time` passed first; the operation goes on. A user's function that this thread performs meanwhile is not interrupted.
  bool wait_for(std::chrono::nanoseconds time);
  /// As wait(), without exceptions.
  std::error_code try_wait() noexcept;
  /// Of a finished operation: its error, or success.
  std::error_code status() const noexcept;
  /// The failure's text; empty on success or while under way.
  std::string message() const;

  /// Calls `callback(status)` when done, at once if it is; on whichever thread completes the operation, possibly a little after
  /// wait() has returned elsewhere. The callback must be short and must not wait for anything (errc::invalid_argument); it may start
  /// further operations. An exception of it is logged, whenever it is called. Throws errc::invalid_argument for an empty function.
  void then(std::function<void(std::error_code)> callback);

  /// Ends the operation with errc::cancelled on every rank that has not performed it yet. Returns at once; wait() tells what became of
  /// it, when no peer touches this rank's buffers any more (a user_function on its way is waited for).
  void cancel();

private:
  friend class communicator;
  friend class group;
  friend class partitioned;
  friend struct partitioned_access;
  friend class persistent;
  struct state;
  struct started;
  struct started_pair;
  explicit request(std::shared_ptr<state> s);
  std::shared_ptr<state> state_;
};

}  // namespace troupe
