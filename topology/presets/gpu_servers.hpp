// SPDX-License-Identifier: Apache-2.0
#pragma once
// The common part of the GPU presets: inside a server a port of every GPU on a fabric that does not block, between servers a NIC a
// GPU
// and a network that blocks at its ports only.
//
// Where switches reduce, each is a class more: "nvls", the switches inside a server, whose chips reduce beside each other, and "sharp", the network.
// What ranks give them passes the ranks' own links towards them, and what they multicast the links back.

#include "topology/machine/hardware.hpp"

namespace troupe::presets {

struct gpu_servers {
  std::string name, about;
  std::string usual_layout;  ///< "16x4"
  element_class nvlink, nic, fabric;
  fabric_reduction reduces = fabric_reduction::none;  ///< unless the layout asked for says otherwise
};

/// @throws error(bad_config): core groups in the layout, ranks that are not its size.
hardware build_gpu_servers(const gpu_servers& what, const preset_request& wanted);

}  // namespace troupe::presets
