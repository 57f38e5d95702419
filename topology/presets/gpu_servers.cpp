// SPDX-License-Identifier: Apache-2.0
#include "topology/presets/gpu_servers.hpp"

#include <string>

#include "memory/error.hpp"

namespace troupe::presets {

namespace {

layout places_of(const gpu_servers& what, const preset_request& wanted) {
  const std::string said = wanted.layout.empty() ? what.usual_layout : wanted.layout;
  const layout parsed = layout::parse(said);
  if (!parsed.is_grid() || parsed.core_groups != 1)
    throw error(errc::bad_config, "preset " + what.name + ": the layout is servers x GPUs, for example " +
                                      what.usual_layout + ", not " + said);
  // "8" parses as eight ranks in one place; here it is one server.
  layout places = parsed.is_flat() ? layout::grid(1, parsed.size()) : parsed;
  if (wanted.ranks == 0 || wanted.ranks == places.size()) return places;
  if (!wanted.layout.empty() || wanted.ranks % places.cards != 0)
    throw error(errc::bad_config,
                "preset " + what.name + ": " + std::to_string(wanted.ranks) + " ranks are not " + said +
                    "; leave ranks away, or take " +
                    (wanted.layout.empty() ? "a multiple of " + std::to_string(places.cards) : "the layout's number"));
  return layout::grid(wanted.ranks / places.cards, places.cards);
}

}  // namespace

hardware build_gpu_servers(const gpu_servers& what, const preset_request& wanted) {
  const layout places = places_of(what, wanted);
  const int gpus = places.cards, ranks = places.size();
  hardware h{what.name, ranks};
  h.about = what.about;
  h.arrangement = places;
  h.protocols = gpu_protocols();
  h.host.source =
      "kernels drive the transfers themselves: launch and copies are part of the protocols' latency and rate (spec 5)";
  const class_id inside = h.add_class(what.nvlink), port = h.add_class(what.nic), fabric = h.add_class(what.fabric);
  const auto label = [gpus](int r) { return std::to_string(r / gpus) + "." + std::to_string(r % gpus); };
  constexpr element_index each = 5;  // of a GPU: NIC out, NIC in, the network's port towards it, NVLink up, down
  for (int r = 0; r < ranks; ++r) {
    h.add_pair(port, "nic " + label(r) + " out", "nic " + label(r) + " in", r);
    h.add(fabric, "fabric to " + label(r));
    h.add_pair(inside, "nvlink " + label(r) + " up", "nvlink " + label(r) + " down", r);
  }
  h.way = [gpus](int from, int to, int, std::vector<element_index>& way) {
    const element_index a = from * each, b = to * each;
    if (from / gpus != to / gpus) way.assign({a, b + 2, b + 1});
    else way.assign({a + 3, b + 4});
  };
  return h;
}

}  // namespace troupe::presets
