// SPDX-License-Identifier: Apache-2.0
// The list of all presets, and those that need no file of their own. A preset with constants of its own is a file here: one
// function preset_request → hardware whose element classes cite their sources, declared in presets.hpp and named in the list below.
#include "topology/presets/presets.hpp"

#include "memory/error.hpp"

namespace troupe {

namespace {

hardware flat(const preset_request& wanted) {
  if (!wanted.layout.empty())
    throw error(errc::bad_config, "preset flat has no layout; say ranks, or take the preset machine");
  return flat_hardware(wanted.ranks > 0 ? wanted.ranks : 8);
}

hardware machine_of_layout(const preset_request& wanted) {
  machine_options options;
  options.nic_ports = wanted.number("nic_ports", 1, 1, 64);
  const layout places = layout::parse(wanted.layout.empty() ? "2x4" : wanted.layout);
  if (wanted.ranks > 0 && wanted.ranks != places.size())
    throw error(errc::bad_config, "preset machine: the layout " + places.to_string() + " has " +
                                      std::to_string(places.size()) + " places, but ranks is " +
                                      std::to_string(wanted.ranks) + "; leave ranks away, or say the same");
  return machine_hardware(machine{places, options});
}

}  // namespace

const std::vector<preset>& all_presets() {
  static const std::vector<preset> all{
      {"flat", "one full-duplex port a rank on a switch that never blocks: α + n·β", "", flat},
      {"machine", "servers × cards × core groups of a layout, with the elements of `troupe route`", "nic_ports",
       machine_of_layout},
      {"ascend_a2",
       "n servers × m cards (spec 2): mesh.bandwidth = bw_a inside, rail.bandwidth = bw_e between cards of one index",
       "", presets::ascend_a2},
      {"sunway_card", "core groups on a ring bus with a shared segment L2, one PCIe (spec 1)", "core_groups|host",
       presets::sunway_card},
      {"gh200_16", "16 nodes of 4 GH200: 150 GB/s inside, 25 GB/s per direction between (spec 5)", "",
       presets::gh200_16},
      {"dgx_h100", "servers of 8 H100 on NVSwitch, 8 NICs each", "", presets::dgx_h100},
      {"tianhe_32", "32 nodes whose NICs perform collectives, or leave them to the hosts (spec 3)", "offload|jobs",
       presets::tianhe_32},
      {"fat_tree", "hosts under leaf and spine switches, with the contention of every port",
       "hosts|radix|oversubscription", presets::fat_tree},
  };
  return all;
}

}  // namespace troupe
