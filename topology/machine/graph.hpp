// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topology/layout/layout.hpp"
#include "topology/machine/links.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// A thing that carries chunks. In real runs and in virtual time each one can be an actor.
enum class element_kind : std::uint8_t {
  dma,             // of one core group: reads (out) and writes (in) its memory
  ring_segment,    // of one card, one direction; the two directions of a segment are two elements: they do not contend
  card_link,       // direct link from one card to another card of its server; the way back is another element
  nic,             // one port of a server, full duplex: out and in do not contend
  network_switch,  // one, non-blocking
  host,  // of one server: reads (out) and writes (in) its host's memory; only where a rank sits at a host, as pcie
  pcie,  // of one card, one direction: to the card and back are two elements
};
inline constexpr int element_kind_count = 7;

std::string_view name(element_kind) noexcept;
link_class link_class_of(element_kind) noexcept;

enum class direction : std::uint8_t {
  out,  // dma, host, nic: away from the rank's memory, the server; pcie: up to the host; card_link, network_switch: always
  in,                // dma, host, nic: towards it; pcie: down to the card
  clockwise,         // ring_segment: towards the next higher core group
  counterclockwise,  // ring_segment: towards the next lower core group
};

/// Dense: 0 … machine::element_count() − 1.
using element_id = std::size_t;

/// What an id stands for.
///   dma: index = core group · ring_segment: index = segment i, which joins core groups i and i + 1 (mod core_groups)
///   card_link: card = from, index = to · nic: card = 0, index = port · network_switch: all 0 · host: card = index = 0 · pcie: index = 0
struct machine_element {
  element_kind kind = element_kind::dma;
  int server = 0;
  int card = 0;
  int index = 0;
  direction way = direction::out;  // ring_segment, pcie: its direction; all others: out

  friend constexpr bool operator==(const machine_element&, const machine_element&) = default;
};

struct machine_options {
  int nic_ports = 1;       // per server
  bool has_switch = true;  // false: NICs are wired back to back (routes skip the switch)
};

/// The hardware that a layout implies. Elements exist for the whole bounding grid (servers × cards × core groups), also
/// where an irregular layout puts no rank, so that ids are arithmetic: no tables, O(1) either way, immutable and
/// readable from any thread. Ids of unused elements simply never occur in a route: create actors on first use.
///
/// Ring of g core groups: g = 1 none; g = 2 one segment (0 ↔ 1); g ≥ 3 g segments. A segment counts two elements.
/// Cards of a server are a full mesh (spec 2), cards·(cards − 1) links per server.
/// Hosts, and the PCIe links between them and the cards, exist where a rank sits at a host.
class machine {
public:
  /// @throws error(errc::bad_config) if the layout is invalid or nic_ports < 1.
  explicit machine(layout ranks, machine_options options = {});

  const layout& ranks() const noexcept { return layout_; }
  const machine_options& options() const noexcept { return options_; }

  std::size_t element_count() const noexcept { return first_[element_kind_count]; }
  std::size_t count_of(element_kind kind) const noexcept;
  int ring_segments_per_card() const noexcept { return segments_; }

  /// @throws error(errc::invalid_argument) if this machine has no such element.
  element_id id_of(const machine_element& what) const;
  machine_element at(element_id id) const;
  /// The element that reads and writes the memory of the rank there: a DMA engine, or a host.
  element_id memory_of(const coordinates& place) const;

  /// "dma 0.0.1" · "ring 0.0:1→2" · "link 0:0→3" · "nic 1:0" · "switch" · "host 0" · "pcie 0.0 down"
  std::string to_string(const machine_element& what) const;

private:
  layout layout_;
  machine_options options_;
  std::size_t servers_, cards_, core_groups_, ports_;
  int segments_;
  std::size_t first_[element_kind_count + 1] = {};  // first id of each kind, in the order of element_kind
};

}  // namespace troupe
