// SPDX-License-Identifier: Apache-2.0
// 16 nodes of GH200 (spec 5, measured part: arXiv 2507.04786): "150 GB/s inside, 25 GB/s per direction between". The digest says
// neither how
// many GPUs a node has nor how many NICs; the machine is Alps, whose nodes have four GH200 and a 200 Gbit/s Slingshot-11 NIC for
// each
// (CSCS, Alps documentation): layout 16x4. Take 16x1 for the network alone and 1x4 for the inside of a node. The one figure for the
// inside is
// read as what a GPU sends, and receives, whoever the peer is. (On Alps each pair has six NVLinks of 25 GB/s for itself; algorithms
// that use
// all pairs at once gain by that, but the source measures rings and trees that do not.)
#include "topology/presets/gpu_servers.hpp"
#include "topology/presets/presets.hpp"

namespace troupe::presets {

hardware gh200_16(const preset_request& wanted) {
  constexpr std::uint64_t gigabyte = 1'000'000'000;
  gpu_servers s;
  s.name = "gh200_16";
  s.about = "nodes of GH200 on NVLink, a NIC a GPU (spec 5)";
  s.usual_layout = "16x4";
  s.nvlink = {
      .name = "nvlink",
      .role = element_role::link,
      .bytes_per_second = 150 * gigabyte,
      .source =
          "spec 5: 150 GB/s inside, read as per GPU and direction; its latency is in the protocols' latency per hop"};
  s.nic = {.name = "nic",
           .role = element_role::nic,
           .latency = std::chrono::nanoseconds{500},
           .bytes_per_second = 25 * gigabyte,
           .source = "spec 5: 25 GB/s per direction between; 0.5 us a NIC is assumed, beside the "
                     "protocols' latency per hop"};
  s.fabric = {.name = "fabric",
              .role = element_role::switch_port,
              .latency = std::chrono::nanoseconds{300},
              .bytes_per_second = 25 * gigabyte,
              .source = "not published: a switch port a NIC, as fast; 300 ns assumed"};
  // Four GH200 are wired to each other without a switch, and Slingshot does not reduce: what would be if they did, ask with a layout
  // such as 16x4:inside.
  return build_gpu_servers(s, wanted);
}

}  // namespace troupe::presets
