// SPDX-License-Identifier: Apache-2.0
// 32 nodes whose NICs perform collectives (spec 3, Tianhe), by the very state of protocols/offload and actors/elements/offload.
//
// structure.offload: 1 (default), the NICs perform; 0, the hosts do. structure.jobs: so many call at once, each with a process a node.
//
// The source prints speed-ups and the terms of its models, (1) and (2), but hardly any of their constants. It says 8 units, 512 KB of hash
// buffer each, for 16 incoming nodes of a job at most: which makes 32 KB, 16 packets, of window a channel. Assumed, once for everything:
// L_network 1 us, 12.5 GB/s (100 Gbit/s), L_IO 0.25 us (a posted write over PCIe), L_CPU 0.1 us, a trigger of 20 cycles at 250 MHz, units
// that reduce at the rate of the port, packets of 2 KiB, C = 8192, k = 4.
//
// Four constants follow from figures. L_poll: by (1), 2.11 for a broadcast of 256 B makes it 1.11 (2 (L_CPU + 2 L_IO + L_network) + T_msg) = 3.6 us.
// The others are what makes reductions gain 1.46 with 256 B and 2.42 with 1 MB for 1, 8 and 32 jobs: T_soft of a message 0.23 us; 12 GB/s that a
// processor moves (one job); 18 GB/s that a node's memory gives all its processors (8 and 32 jobs).
//
// Where the text leaves it open: (1) is for collectives that do not reduce, and (2) for those that do, in their second half, too. What
// processors do passes the memory of the node, which its processes share, since the source has the same speed-ups for 1, 8 and 32 jobs.
#include <string>

#include "memory/error.hpp"
#include "topology/presets/presets.hpp"

namespace troupe::presets {

namespace {
using std::chrono::nanoseconds;

nic_collectives constants(const preset_request& wanted) {
  nic_collectives n;
  n.offload = wanted.number("offload", 1, 0, 1) == 1;
  n.jobs = wanted.number("jobs", 1, 1, 256);
  n.cpu = nanoseconds{100};
  n.io = nanoseconds{250};
  n.poll = nanoseconds{3570};
  n.soft = nanoseconds{230};
  n.soft_rate = 12'000'000'000;
  n.trigger = nanoseconds{80};
  n.unit_rate = 12'500'000'000;
  n.packet = 2048;
  n.window = 16;
  n.source = "spec 3: 8 units, 512 KB a unit for 16 nodes; L_CPU 0.1, L_IO 0.25 us, a trigger of 20 cycles at 250 MHz, "
             "packets of 2 "
             "KiB, C 8192, "
             "k 4 assumed; L_poll by (1) from 2.11x at 256 B; soft and soft_rate from reduce's 1.46x and 2.42x";
  return n;
}
}  // namespace

hardware tianhe_32(const preset_request& wanted) {
  if (!wanted.layout.empty())
    throw error(errc::bad_config, "preset tianhe_32 has one process of a job on a node and no layout; say ranks");
  const int nodes = wanted.ranks > 0 ? wanted.ranks : 32;
  hardware h{"tianhe_32", nodes};
  h.nics = constants(wanted);
  h.about = std::string{"nodes with FPGA NICs, collectives performed by the "} + (h.nics->offload ? "NICs" : "hosts") +
            (h.nics->jobs > 1 ? ", " + std::to_string(h.nics->jobs) + " jobs at once" : "") + " (spec 3)";
  h.arrangement = layout::grid(nodes, 1);
  h.protocols = {plain_protocols().front()};
  const class_id nic =
      h.add_class({.name = "nic",
                   .role = element_role::nic,
                   .latency = nanoseconds{500},
                   .bytes_per_second = 12'500'000'000,
                   .source = "not published: 100 Gbit/s, L_network = 1 us (half in each NIC) assumed"});
  for (int r = 0; r < nodes; ++r)
    h.add_pair(nic, "nic " + std::to_string(r) + " out", "nic " + std::to_string(r) + " in", r);
  const class_id memory = h.add_class(
      {.name = "memory",
       .role = element_role::core,
       .bytes_per_second = 18'000'000'000,
       .source =
           "not published: 18 GB/s, read or written by a node's processors, from reduce's 2.42x with 8 and 32 jobs"});
  for (int r = 0; r < nodes; ++r) h.add(memory, "memory " + std::to_string(r), r);
  h.way = [](int from, int to, int, std::vector<element_index>& way) { way.assign({2 * from, 2 * to + 1}); };
  return h;
}

}  // namespace troupe::presets
