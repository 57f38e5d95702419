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
  places.reduces = wanted.layout.find(':') == std::string::npos ? what.reduces : parsed.reduces;
  if (wanted.ranks == 0 || wanted.ranks == places.size()) return places;
  if (!wanted.layout.empty() || wanted.ranks % places.cards != 0)
    throw error(errc::bad_config,
                "preset " + what.name + ": " + std::to_string(wanted.ranks) + " ranks are not " + said +
                    "; leave ranks away, or take " +
                    (wanted.layout.empty() ? "a multiple of " + std::to_string(places.cards) : "the layout's number"));
  layout grown = layout::grid(wanted.ranks / places.cards, places.cards);
  grown.reduces = places.reduces;
  return grown;
}

/// Which switch of hardware::switches is of which server: those of servers first.
void add_switches(hardware& h, const layout& places) {
  constexpr std::uint64_t gigabyte = 1'000'000'000;
  constexpr int chips = 4;
  if (places.reduces_inside()) {
    const class_id unit =
        h.add_class({.name = "nvls",
                     .role = element_role::switch_port,
                     .bytes_per_second = 1600 * gigabyte,
                     .units = chips,
                     .source = "four NVSwitch chips of 64 ports of 25 GB/s; that each reduces as fast as its ports "
                               "bring operands is assumed; latency is in the protocols' latency per hop (spec 5)"});
    for (int server = 0; server < places.servers; ++server)
      h.switches.push_back({server, h.add(unit, "nvls " + std::to_string(server))});
  }
  if (!places.reduces_between()) return;
  const class_id unit =
      h.add_class({.name = "sharp",
                   .role = element_role::switch_port,
                   .latency = std::chrono::nanoseconds{300},
                   .source = "assumed: reduces as fast as its ports bring operands, 300 ns a reduction"});
  h.switches.push_back({-1, h.add(unit, "sharp")});
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
  add_switches(h, places);
  h.switch_way = [switches = h.switches](int rank, int which, bool towards, std::vector<element_index>& way) {
    const element_index a = rank * each;
    if (switches[static_cast<std::size_t>(which)].server >= 0) way.assign({towards ? a + 3 : a + 4});
    else if (towards) way.assign({a});
    else way.assign({a + 2, a + 1});
  };
  h.way = [gpus](int from, int to, int, std::vector<element_index>& way) {
    const element_index a = from * each, b = to * each;
    if (from / gpus != to / gpus) way.assign({a, b + 2, b + 1});
    else way.assign({a + 3, b + 4});
  };
  return h;
}

}  // namespace troupe::presets
