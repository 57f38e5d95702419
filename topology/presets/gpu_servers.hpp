#pragma once
// What the GPU presets have in common: servers of GPUs on a fabric that does not block inside, a NIC a GPU, a network that does not
// block between.

#include "topology/hardware.hpp"

namespace troupe::presets {

struct gpu_servers {
  std::string name, about;
  std::string usual_layout;   ///< "16x4"
  element_class nvlink, nic, fabric;
  bool switched = false;      ///< inside: one port a GPU on a switch; else a link of its own for every pair
};

/// @throws error(bad_config): core groups in the layout, ranks that are not its size.
hardware build_gpu_servers(const gpu_servers& what, const preset_request& wanted);

}  // namespace troupe::presets
