// SPDX-License-Identifier: Apache-2.0
#pragma once
// Constants of a machine whose NICs can perform collectives (spec 3, Tianhe), and of its hosts, which perform them otherwise. The element
// class "nic" has L_network and the bandwidth of the ports; "memory" has the bandwidth of a node's memory.
//
// Between two neighbours a packet takes, as the source's two formulas have it:
//   in a collective that does not reduce (1): a control descriptor and an RDMA descriptor, 2 (cpu + 2 io + L_network) + n / bandwidth;
//     where hosts perform, `poll` besides
//   in one that reduces (2): L_network + n / bandwidth + trigger + n / unit_rate where NICs perform;
//     cpu + 2 io + L_network + n / bandwidth, and T_soft + T_compute where hosts do: `soft` a message, and a copy, and a sum where there is one, which
//     pass the processor at `soft_rate` and the node's memory two and three times

#include <cstdint>
#include <string>

#include "topology/machine/links.hpp"

namespace troupe {

struct nic_collectives {
  bool offload = true;  ///< NICs perform; else a process of each job on every node does
  int jobs = 1;         ///< that call the same at the same time, each with a process on every node (1 … 256)

  picoseconds cpu{0};   ///< L_CPU: to make a descriptor
  picoseconds io{0};    ///< L_IO: between processor and NIC, one way
  picoseconds poll{0};  ///< L_poll: until a host notices
  picoseconds soft{0};  ///< of T_soft: a processor's, for every message of a reduction, whatever its size …
  std::uint64_t soft_rate =
      0;  ///< … and for its bytes: operands and results that one processor moves per second; 0: as fast as memory
  picoseconds trigger{0};       ///< T_nic of a packet, whatever its size
  std::uint64_t unit_rate = 0;  ///< of an offload unit, bytes of operands per second

  int units = 8;                            ///< offload units of a NIC
  std::uint64_t buffer = 512 * 1024;        ///< bytes of a unit's hash buffer
  std::uint64_t packet = 2048;              ///< largest, bytes
  int window = 32;                          ///< packets of a channel under way
  std::uint64_t reduction_elements = 8192;  ///< C
  int pulses = 4;                           ///< k
  int counters = 256;                       ///< of pulses, in a NIC
  std::string source{};
};

}  // namespace troupe
