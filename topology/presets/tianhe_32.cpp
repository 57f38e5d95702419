// SPDX-License-Identifier: Apache-2.0
// 32 nodes whose NICs perform collectives (spec 3, Tianhe). The source prints speed-ups and the shape of its models, (1) and (2),
// but none
// of their constants. Assumed here: L_CPU 0.2 µs, L_IO 0.5 µs (PCIe, one way), L_network 1 µs, 12.5 GB/s (100 Gbit/s). L_poll
// follows from
// its one published end, 2.11× for a broadcast of 256 B: by (1), L_poll = 1.11 · 2 · (L_CPU + 2·L_IO + L_network) = 4.9 µs. So that
// figure
// shows nothing about the model here; how the speed-up falls with size does.
//
// structure.offload: 1 (default), the NICs perform the steps; 0, the hosts do. A hop is in both cases a control descriptor and an
// RDMA
// descriptor, each L_CPU + 2·L_IO + L_network, as (1) has it; the host polls besides, and reduces in software at T_soft. (The
// source's (2) counts
// neither descriptor for an offloaded reduction, only L_network + T_nic; one preset cannot be both, and (1) is the one with a
// measured end.)
// A rank is one job on one offload unit; the other units of a NIC would serve other jobs.
#include "topology/presets/presets.hpp"

#include <string>

#include "memory/error.hpp"

namespace troupe::presets {

namespace {
using std::chrono::nanoseconds;

host_costs costs(bool offload) {
  host_costs c;
  c.send = nanoseconds{
      3400};  // L_CPU + 2·L_IO + L_network, and again L_CPU + 2·L_IO; the second L_network is the NICs' latency
  if (!offload) c.receive = nanoseconds{4900};
  c.reduce_rate = offload ? 12'500'000'000 : 5'000'000'000;
  c.source = offload ? "spec 3, (1) without L_poll; L_CPU 0.2, L_IO 0.5, L_network 1 us assumed; the NIC reduces in a "
                       "few cycles: at line rate"
                     : "spec 3, (1): L_CPU 0.2, L_IO 0.5, L_network 1 us assumed, L_poll 4.9 us from its 2.11x at 256 "
                       "B; T_soft: 5 GB/s "
                       "assumed";
  return c;
}
}  // namespace

hardware tianhe_32(const preset_request& wanted) {
  if (!wanted.layout.empty())
    throw error(errc::bad_config, "preset tianhe_32 has one process a node and no layout; say ranks");
  const int nodes = wanted.ranks > 0 ? wanted.ranks : 32;
  const bool offload = wanted.number("offload", 1, 0, 1) == 1;
  hardware h{"tianhe_32", nodes};
  h.about =
      std::string{"nodes with FPGA NICs, collectives driven by the "} + (offload ? "NICs" : "hosts") + " (spec 3)";
  h.arrangement = layout::grid(nodes, 1);
  h.protocols = {plain_protocols().front()};
  h.host = costs(offload);
  const class_id nic =
      h.add_class({.name = "nic",
                   .role = element_role::nic,
                   .latency = nanoseconds{500},
                   .bytes_per_second = 12'500'000'000,
                   .source = "not published: 100 Gbit/s, L_network = 1 us (half in each NIC) assumed"});
  for (int r = 0; r < nodes; ++r)
    h.add_pair(nic, "nic " + std::to_string(r) + " out", "nic " + std::to_string(r) + " in", r);
  h.way = [](int from, int to, int, std::vector<element_index>& way) { way.assign({2 * from, 2 * to + 1}); };
  return h;
}

}  // namespace troupe::presets
