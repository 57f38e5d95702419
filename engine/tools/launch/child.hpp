// SPDX-License-Identifier: Apache-2.0
#pragma once
// A process that the launcher has started, its streams and its process group.

#include <string>
#include <vector>

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "engine/tools/launch/commands.hpp"

namespace troupe::launch {

/// A descriptor that is closed at its end.
class owned_descriptor {
public:
  explicit owned_descriptor(int number = -1) noexcept : number_(number) {}
  owned_descriptor(owned_descriptor&& from) noexcept : number_(from.release()) {}
  owned_descriptor& operator=(owned_descriptor&& from) noexcept {
    if (this != &from) reset(from.release());
    return *this;
  }
  ~owned_descriptor() { reset(); }

  int get() const noexcept { return number_; }
  bool open() const noexcept { return number_ >= 0; }
  int release() noexcept {
    const int number = number_;
    number_ = -1;
    return number;
  }
  void reset(int number = -1) noexcept;

private:
  int number_;
};

/// Signals that a launcher takes from a descriptor, in its own time, and as many descriptors as it may have. Made before any other
/// thread, which would otherwise get the signals. They stay held: a process that has launched a job ends with the job's status, which a
/// late signal must not change.
class held_signals {
public:
  held_signals();
  held_signals(const held_signals&) = delete;
  held_signals& operator=(const held_signals&) = delete;

  int descriptor() const noexcept { return descriptor_.get(); }
  /// The next signal that has come, or 0.
  int take() const;
  /// The setting as it was before, for a process that is to be started; between fork and exec.
  void give_back() const noexcept;

private:
  sigset_t before_{};
  rlimit descriptors_before_{};
  struct sigaction pipe_before_ {};
  struct sigaction child_before_ {};
  struct sigaction input_before_ {};
  owned_descriptor descriptor_;
};

/// How a process gets its standard input.
enum class input_from { nothing, ours, pipe };

struct child {
  pid_t pid = -1;       ///< and its process group's number
  owned_descriptor in;  ///< of a pipe; non-blocking, as all of these
  owned_descriptor out, err;
  owned_descriptor report;  ///< says errno if the program could not be executed, else nothing
};

/// Throws errc::io if there is no process or descriptor to be had.
child start(const command& what, input_from input, const held_signals& signals);

/// Waits until the program is executed. errno if it could not be, else 0.
int wait_for_program(child& of);

}  // namespace troupe::launch
