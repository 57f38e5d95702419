// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator for whose ranks a process's NIC performs more than that process's own do: ranks of other processes of the host (nic_between.hpp), or
// other hosts' NICs (nic_hosts.hpp). What its thread asks of both.

#include "actors/ports/nic/nic_driver.hpp"
#include "actors/waiting/parking.hpp"

namespace troupe::actors {

class nic_served {
public:
  virtual ~nic_served() = default;
  nic_served(const nic_served&) = delete;
  nic_served& operator=(const nic_served&) = delete;

  /// Reads what has come, and hands it in or tells the ranks here. True: there was something.
  virtual bool serve(nic_driver& driver, picoseconds now) = 0;
  /// This process's NIC performs, and does not only tell what another one's says.
  virtual bool at_home() const = 0;
  /// For which it performs.
  virtual int ranks() const = 0;
  /// look_after() has to be called now and then, though nobody rings.
  virtual bool waits() const { return false; }
  virtual void look_after(steady_time /*now*/) {}
  /// The communicator has ended in this process.
  virtual bool has_ended() const = 0;
  /// Nothing of it is performed any more, and nothing here touches other processes' memory.
  virtual void close(nic_driver& driver, picoseconds now) = 0;

protected:
  nic_served() = default;
};

}  // namespace troupe::actors
