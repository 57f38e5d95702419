// SPDX-License-Identifier: Apache-2.0
#pragma once
// Starts the processes of a job, passes on what they write and what signals come, and sees that all of them end.
//
// Each process leads a group of its own, which signals go to; what is left of a group when its process has ended is killed, so nothing
// outlives the job but what has left its group. When one fails, the others have a time of grace to end by themselves (they notice that a
// peer is lost, and say so), are then asked to (SIGTERM), and after as much time killed. An interrupt is passed on, and a second one, half a
// second later or more, kills. If the launcher itself is killed, so are they.

#include <chrono>
#include <string>
#include <vector>

#include "engine/tools/launch/child.hpp"
#include "engine/tools/launch/commands.hpp"
#include "engine/tools/launch/guardian.hpp"

namespace troupe::launch {

struct supervision {
  bool prefix = true;       ///< "[2] " before each line of process 2
  bool keep_going = false;  ///< others are left alone when one fails
  std::chrono::milliseconds grace{5000};
  std::string speaker = "troupe launch";  ///< in front of what the launcher has to say
  bool say_status = true;                 ///< tell who ended with which exit status; else only ends by a signal
};

/// The exit status of the first process that failed, 128 + n if signal n ended it, 126 or 127 if the program could not be executed; what a signal
/// that was passed on has ended does not count as failed. Else 130 if SIGINT or SIGTERM interrupted the job, 128 + n if another signal n did.
/// Else 3 if the output could not be written; else 0.
/// Throws errc::io if there are no processes or descriptors to be had, after what had been started has ended.
int supervise(const std::vector<command>& commands, const supervision& how, const held_signals& signals,
              const guardian& guard);

}  // namespace troupe::launch
