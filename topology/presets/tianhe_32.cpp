// 32 nodes whose NICs perform collectives (spec 3, Tianhe). The source prints speed-ups and the shape of its models, (1) and (2), but none
// of their constants. Assumed here: L_CPU 0.2 µs, L_IO 0.5 µs (PCIe, one way), L_network 1 µs, 12.5 GB/s (100 Gbit/s). L_poll follows from
// its one published end, 2.11× for a broadcast of 256 B: by (1), L_poll = 1.11 · 2 · (L_CPU + 2·L_IO + L_network) = 4.9 µs. So that figure
// shows nothing about the model here; how the speed-up falls with size does.
//
// structure.offload: 1 (default), the NIC performs the steps: L_network and a few cycles. 0, the host does: every hop is a control
// descriptor and an RDMA descriptor, each L_CPU + 2·L_IO + L_network, and polling; reductions run at the host's T_soft.
// A rank is one job on one offload unit; the other units of a NIC would serve other jobs.
#include "topology/presets/presets.hpp"

#include <string>

#include "memory/error.hpp"

namespace troupe::presets {

namespace {
using std::chrono::nanoseconds;

host_costs costs(bool offload) {
  host_costs c;
  if (offload) {
    c.launch = nanoseconds{1200};  // the descriptor sequence: L_CPU + 2·L_IO
    c.reduce_rate = 12'500'000'000;
    c.source = "spec 3: the NIC reduces in a few cycles, hence at line rate; one descriptor sequence a collective, L_CPU + 2 L_IO (assumed 0.2 and 0.5 us)";
  } else {
    c.send = nanoseconds{3400};  // control descriptor L_CPU + 2·L_IO + L_network, then the RDMA descriptor's L_CPU + 2·L_IO
    c.receive = nanoseconds{4900};
    c.reduce_rate = 5'000'000'000;
    c.source = "spec 3, host path: two descriptors of L_CPU + 2 L_IO + L_network (assumed 0.2, 0.5, 1 us; the last L_network is the NIC's latency); L_poll "
               "4.9 us from its 2.11x at 256 B; T_soft assumed 5 GB/s, one core reading two operands";
  }
  return c;
}
}  // namespace

hardware tianhe_32(const preset_request& wanted) {
  if (!wanted.layout.empty()) throw error(errc::bad_config, "preset tianhe_32 has one process a node and no layout; say ranks");
  const int nodes = wanted.ranks > 0 ? wanted.ranks : 32;
  const bool offload = wanted.number("offload", 1, 0, 1) == 1;
  hardware h{"tianhe_32", nodes};
  h.about = std::string{"nodes with FPGA NICs, collectives driven by the "} + (offload ? "NICs" : "hosts") + " (spec 3)";
  h.arrangement = layout::grid(nodes, 1);
  h.protocols = {plain_protocols().front()};
  h.host = costs(offload);
  const class_id nic = h.add_class({.name = "nic", .role = element_role::nic, .latency = nanoseconds{500}, .bytes_per_second = 12'500'000'000,
                                    .source = "not published: 100 Gbit/s, L_network = 1 us (half in each NIC) assumed"});
  for (int r = 0; r < nodes; ++r) h.add_pair(nic, "nic " + std::to_string(r) + " out", "nic " + std::to_string(r) + " in", r);
  h.way = [](int from, int to, int, std::vector<element_index>& way) { way.assign({2 * from, 2 * to + 1}); };
  return h;
}

}  // namespace troupe::presets
