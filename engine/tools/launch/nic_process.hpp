// SPDX-License-Identifier: Apache-2.0
#pragma once
// A `troupe nicd` for one job of processes that are all started here.

#include <string>

#include <sys/types.h>

#include "engine/tools/launch/child.hpp"

namespace troupe::launch {

class nic_process {
public:
  /// It listens when this returns. It is killed with its launcher, and leads a process group of its own, so that an interrupt from a terminal comes to
  /// the job first. Throws errc::io: it cannot be started. @param program this program's own path
  nic_process(const std::string& program, const held_signals& signals);
  /// It has ended.
  ~nic_process();
  nic_process(const nic_process&) = delete;
  nic_process& operator=(const nic_process&) = delete;

  /// For engine.nic.
  const std::string& address() const noexcept { return address_; }

private:
  std::string address_;
  pid_t pid_ = -1;
};

}  // namespace troupe::launch
