// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sees to it that a job ends with its launcher, also when that is killed: a process that knows the groups of all processes, and kills them when
// the pipe to its launcher is closed. (The kernel would end the processes alone, by PR_SET_PDEATHSIG, and not what they have started.)

#include <sys/types.h>

#include "engine/tools/launch/child.hpp"

namespace troupe::launch {

class guardian {
public:
  /// Forks: make it before any other thread. Throws errc::io.
  guardian();
  /// Waits for the process to end, which kills whatever it has not been told to forget.
  ~guardian();
  guardian(const guardian&) = delete;
  guardian& operator=(const guardian&) = delete;

  void watch(pid_t group) const noexcept { tell(group); }
  /// Before the group's number can be somebody else's.
  void forget(pid_t group) const noexcept { tell(-group); }

private:
  void tell(pid_t group) const noexcept;

  owned_descriptor pipe_;
  pid_t process_ = -1;
};

}  // namespace troupe::launch
