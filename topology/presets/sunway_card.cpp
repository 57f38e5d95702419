// SPDX-License-Identifier: Apache-2.0
// One card of spec 1 (SW-IntraCC): core groups on a ring bus, a segment L2 that all of them address, one PCIe to the host.
//
// One set of constants for every figure of spec 1, and where each comes from:
//   launch 25 µs, sync 15 µs, other 5 µs, BW_Ring 100 GB/s     printed.
//   BW_GLOBAL 100 GB/s     not printed, but (4) gives its 69.6 GB/s at 8 MB only with it.
//   local HBM 200 GB/s     not printed. (3) has every core group read for its successor and write for its predecessor at BW_Ring at
// once:
//                          that takes 2 · BW_Ring. More would change CSC at large sizes, whose DMA
//                          engines are the limit there (`troupe study --published spec1.curve4`). The source is at odds with itself here: the gain of
// "about 50 %"
//                          that it gives for (11) needs ¾ · BW_GLOBAL, at which neither (3) nor (4) could hold.
//   PCIe 31.5 GB/s         the text says x16 without a generation; generation 4 assumed (16 GT/s · 16 lanes · 128/130 / 8).
//   latency of a segment 100 ns, of PCIe 1 µs     assumed; they are small beside the 45 µs of an iteration.
//
// Where the host's costs go. Ring: an iteration is launch + copy + sync + other, and a rank's part of one is a send, the copy, a
// receive:
// `send` = other, `receive` = sync, and the launch is `launch` for the first iteration and `forward` for the others. CSC: one
// launch, one
// barrier, and in an iteration a get and a put, which share `other`: `transfer` = half of it.
//
// L2 is the bus' cross segment: every core group's memory holds a share of it (topology/machine/shared_segment.hpp). An access to the own share
// passes the own DMA engine alone, one to another's the two ports and the ring segments between, hop by hop, in the direction that is shorter; not the
// other core group's DMA engine, past which its memory is reached. So CSC's rotation matters: without it all fetch from one core group's
// port at once (config/studies/csc_rotation.toml). In real runs with a layout, whose elements are actors and not times, the other core group's
// DMA engine is who serves its share, and is passed.
//
// Structure: core_groups (4); host = 1 adds the host as the last rank, behind PCIe.
#include "topology/presets/presets.hpp"

#include <string>

#include "memory/error.hpp"

namespace troupe::presets {

namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;
constexpr std::uint64_t gigabyte = 1'000'000'000;

host_costs card_costs() {
  host_costs c;
  c.launch = microseconds{25};
  c.forward = microseconds{25};
  c.send = microseconds{5};
  c.receive = microseconds{15};
  c.sync = microseconds{15};
  c.transfer = nanoseconds{2500};
  c.work_uses_dma = true;
  c.source = "spec 1: t_LAUNCH 25 us, t_SYNC 15 us, t_OTHERS 5 us (a CSC iteration is two transfers); reductions in "
             "LDM (TB/s) are "
             "not charged, "
             "those in memory pass the DMA engine";
  return c;
}

struct card {
  int core_groups = 4;
  bool has_host = false;
  // First element of each sort; pairs are neighbours (there, back).
  element_index dma = 0, port = 0, segment = 0, pcie = 0;

  bool is_host(int rank) const { return rank >= core_groups; }
  element_index dma_of(int r) const { return dma + r; }
  element_index port_out(int r) const { return port + 2 * r; }
  element_index port_in(int r) const { return port + 2 * r + 1; }

  /// The shorter way round. Of two equal ones even core groups take the one down and odd ones the one up: then on a ring of four,
  /// four
  /// messages to the opposite core group do not meet.
  void around(int from, int to, std::vector<element_index>& way) const {
    if (core_groups == 2) return way.push_back(segment + from);
    const int up = (to - from + core_groups) % core_groups;
    const bool upwards = 2 * up < core_groups || (2 * up == core_groups && from % 2 == 1);
    for (int at = from; at != to;) {
      const int next = (at + (upwards ? 1 : core_groups - 1)) % core_groups;
      way.push_back(segment + 2 * (upwards ? at : next) + (upwards ? 0 : 1));
      at = next;
    }
  }
  void message(int from, int to, std::vector<element_index>& way) const {
    if (is_host(from)) return way.insert(way.end(), {pcie, dma_of(to)}), void();
    if (is_host(to)) return way.insert(way.end(), {dma_of(from), pcie + 1}), void();
    way.insert(way.end(), {dma_of(from), port_out(from)});
    around(from, to, way);
    way.insert(way.end(), {port_in(to), dma_of(to)});
  }
  /// L2 lies in the core groups' memories alone: the share of a host, the rank behind them, is with core group 0.
  void share(int rank, int owner, bool writes, std::vector<element_index>& way) const {
    const int home = owner % core_groups;
    if (is_host(rank)) return way.push_back(writes ? pcie : pcie + 1);
    if (writes || home == rank) way.push_back(dma_of(rank));
    if (home == rank) return;
    const auto [from, to] = writes ? std::pair{rank, home} : std::pair{home, rank};
    way.push_back(port_out(from));
    around(from, to, way);
    way.push_back(port_in(to));
    if (!writes) way.push_back(dma_of(rank));
  }
};

void add_elements(hardware& h, card& c) {
  const class_id dma = h.add_class(
      {.name = "dma",
       .role = element_role::dma,
       .bytes_per_second = 200 * gigabyte,
       .source =
           "a core group's DMA engines and the memory behind: 2 x BW_Ring, which model (3) of spec 1 needs; set-up is "
           "part of t_OTHERS"});
  const class_id port = h.add_class({.name = "bus_port",
                                     .role = element_role::link,
                                     .bytes_per_second = 100 * gigabyte,
                                     .source = "spec 1: BW_Ring = 100 GB/s, and BW_GLOBAL the same by its model (4)"});
  const class_id segment =
      h.add_class({.name = "ring_segment",
                   .role = element_role::ring_segment,
                   .latency = nanoseconds{100},
                   .bytes_per_second = 100 * gigabyte,
                   .source = "spec 1: BW_Ring = 100 GB/s, each direction; latency of a hop assumed"});
  const class_id pcie = h.add_class(
      {.name = "pcie",
       .role = element_role::pcie,
       .latency = microseconds{1},
       .bytes_per_second = 31'508'000'000,
       .source = "spec 1: x16, shared by the card; generation 4 and 1 us assumed: 16 GT/s x 16 x 128/130 / 8"});
  const auto group = [](int r) { return std::to_string(r); };
  for (int r = 0; r < c.core_groups; ++r) {
    const element_index at = h.add(dma, "dma " + group(r), r);
    if (r == 0) c.dma = at;
    h.place(r, {no_element, at});
  }
  for (int r = 0; r < c.core_groups; ++r)
    if (const auto at = h.add_pair(port, "port " + group(r) + " out", "port " + group(r) + " in", r).first; r == 0)
      c.port = at;
  const int segments = c.core_groups == 2 ? 1 : c.core_groups;
  for (int r = 0; r < segments; ++r) {
    const int next = (r + 1) % c.core_groups;
    const auto at =
        h.add_pair(segment, "ring " + group(r) + "→" + group(next), "ring " + group(next) + "→" + group(r)).first;
    if (r == 0) c.segment = at;
  }
  c.pcie = h.add_pair(pcie, "pcie down", "pcie up").first;
}

}  // namespace

hardware sunway_card(const preset_request& wanted) {
  card c;
  c.has_host = wanted.number("host", 0, 0, 1) == 1;
  const int extra = c.has_host ? 1 : 0;
  const int otherwise = wanted.ranks > 0 ? wanted.ranks - extra : 4;
  c.core_groups = wanted.number("core_groups", otherwise, 2, 256);
  if (!wanted.layout.empty())
    throw error(errc::bad_config, "preset sunway_card is one card and has no layout; say structure.core_groups");
  if (wanted.ranks > 0 && wanted.ranks != c.core_groups + extra)
    throw error(errc::bad_config, "preset sunway_card: " + std::to_string(c.core_groups) + " core groups" +
                                      (c.has_host ? " and the host" : "") + " are " +
                                      std::to_string(c.core_groups + extra) + " ranks, not " +
                                      std::to_string(wanted.ranks) + "; leave ranks away");
  hardware h{"sunway_card", c.core_groups + extra};
  h.about =
      "one card of " + std::to_string(c.core_groups) + " core groups on a ring bus with a shared segment L2 (spec 1)";
  h.arrangement = layout::grid(1, 1, c.core_groups);
  if (c.has_host) h.arrangement = h.arrangement.with_hosts();
  h.protocols = {plain_protocols().front()};
  h.host = card_costs();
  add_elements(h, c);
  h.way = [c](int from, int to, int, std::vector<element_index>& way) { c.message(from, to, way); };
  h.memory_way = [c](int rank, memory_place at, bool writes, std::vector<element_index>& way) {
    if (at.in_segment) c.share(rank, at.owner, writes, way);
    else if (writes) c.message(rank, at.owner, way);
    else c.message(at.owner, rank, way);
  };
  return h;
}

}  // namespace troupe::presets
