// SPDX-License-Identifier: Apache-2.0
// Servers of eight H100 on NVSwitch with a ConnectX-7 NIC for each GPU (NVIDIA DGX H100 data sheet and user guide). Only data-sheet
// rates: what a program gets is lower, and no latency is published. Layout servers x 8; one server unless said.
#include "topology/presets/gpu_servers.hpp"
#include "topology/presets/presets.hpp"

namespace troupe::presets {

hardware dgx_h100(const preset_request& wanted) {
  constexpr std::uint64_t gigabyte = 1'000'000'000;
  gpu_servers s;
  s.name = "dgx_h100";
  s.about = "servers of eight H100 on NVSwitch, a 400 Gbit/s NIC a GPU";
  s.usual_layout = "1x8";
  s.nvlink = {
      .name = "nvlink",
      .role = element_role::link,
      .bytes_per_second = 450 * gigabyte,
      .source =
          "DGX H100 data sheet: 900 GB/s a GPU both directions together (18 links of NVLink 4); latency is in the "
          "protocols' latency per hop (spec 5)"};
  s.nic = {.name = "nic",
           .role = element_role::nic,
           .latency = std::chrono::nanoseconds{500},
           .bytes_per_second = 50 * gigabyte,
           .source = "DGX H100 data sheet: eight ConnectX-7 of 400 Gbit/s for the GPUs; 0.5 "
                     "us a NIC assumed"};
  s.fabric = {.name = "fabric",
              .role = element_role::switch_port,
              .latency = std::chrono::nanoseconds{300},
              .bytes_per_second = 50 * gigabyte,
              .source = "not part of the product: a switch port a NIC, as fast; 300 ns assumed"};
  s.reduces = fabric_reduction::
      inside;  // third-generation NVSwitch, with NVLink SHARP; whether the network reduces is not the product's
  return build_gpu_servers(s, wanted);
}

}  // namespace troupe::presets
