// SPDX-License-Identifier: Apache-2.0
// ascend_a2: servers of Ascend 910B cards as spec 2 sees them ("Setting").
//
//   inside a server   full mesh: a wire of its own between every two cards, bw_a in each direction (class mesh)
//   between servers   rails: every card has one network port of bw_e in each direction (class rail). The ports of one index are
//                     joined by switches that do not block (Clos): a message meets the sender's port and the receiver's alone.
//
// Cards of different index on different servers have no direct path. A message between them takes the mesh to the neighbour that
// has the destination's index, and that card's rail, and occupies both: hops that a choreography of spec 2 never asks for, and
// that a flat one pays. What the card in between spends on forwarding is not published and counts as nothing.
#include <utility>

#include "memory/error.hpp"
#include "topology/presets/presets.hpp"

namespace troupe::presets {

namespace {

/// Where the elements of servers × cards begin; all wires of a server, then the next server's, then the rails.
struct places_of_elements {
  int cards;
  int rails;  ///< first of the rails

  /// The direction a → b of the wire between two cards of a server; pairs in the order (0,1), (0,2) … (1,2) …
  element_index wire(int server, int a, int b) const {
    const int low = a < b ? a : b, high = a < b ? b : a;
    const int pair = low * (2 * cards - low - 1) / 2 + (high - low - 1);
    return 2 * (server * (cards * (cards - 1) / 2) + pair) + (a < b ? 0 : 1);
  }
  element_index out(int server, int card) const { return rails + 2 * (server * cards + card); }
  element_index in(int server, int card) const { return out(server, card) + 1; }
};

element_class mesh_class() {
  element_class c;
  c.name = "mesh";
  c.role = element_role::link;
  c.latency = std::chrono::microseconds{1};
  c.bytes_per_second = 28'000'000'000;
  c.source = "bw_a: Atlas 800T A2 (8 x 910B), HCCS 392 GB/s a card over 7 wires, 56 GB/s each, read as both directions "
             "together; "
             "latency assumed: spec 4 says microseconds";
  return c;
}

element_class rail_class() {
  element_class c;
  c.name = "rail";
  c.role = element_role::nic;
  c.latency = std::chrono::nanoseconds{2500};
  c.bytes_per_second = 25'000'000'000;
  c.source = "bw_e: Atlas 800T A2, one 200 Gbit/s RoCE port a card; spec 4: 10-100 GB/s; "
             "latency assumed: 5 us from card to card, half in each port";
  return c;
}

std::string at(int server, int card) { return std::to_string(server) + ':' + std::to_string(card); }

void add_elements(hardware& h, const layout& places) {
  const class_id mesh = h.add_class(mesh_class()), rail = h.add_class(rail_class());
  for (int s = 0; s < places.servers; ++s)
    for (int a = 0; a < places.cards; ++a)
      for (int b = a + 1; b < places.cards; ++b)
        h.add_pair(mesh, "mesh " + at(s, a) + '-' + at(s, b), "mesh " + at(s, b) + '-' + at(s, a));
  for (int r = 0; r < h.ranks; ++r) {
    const std::string where = at(r / places.cards, r % places.cards);
    h.add_pair(rail, "rail " + where + " out", "rail " + where + " in", r);
  }
}

}  // namespace

hardware ascend_a2(const preset_request& wanted) {
  const layout places = layout::parse(wanted.layout.empty() ? "4x8" : wanted.layout);
  if (!places.is_grid() || places.core_groups != 1 || places.ranks_per_core_group != 1)
    throw error(errc::bad_config, "preset ascend_a2: the layout is " + places.to_string() +
                                      "; it must be servers x cards, a rank a card: 4x8");
  if (wanted.ranks > 0 && wanted.ranks != places.size())
    throw error(errc::bad_config, "preset ascend_a2: the layout " + places.to_string() + " has " +
                                      std::to_string(places.size()) + " cards, but ranks is " +
                                      std::to_string(wanted.ranks) + "; leave ranks away, or say the same");
  hardware h{"ascend_a2", places.size()};
  h.about = std::to_string(places.servers) + " servers of " + std::to_string(places.cards) +
            " cards: a full mesh inside, rails between cards of the same index";
  h.arrangement = places;
  h.protocols = plain_protocols();
  add_elements(h, places);
  const int cards = places.cards;
  const places_of_elements elements{cards, places.servers * cards * (cards - 1)};
  h.way = [cards, elements](int from, int to, int, std::vector<element_index>& way) {
    const int here = from / cards, there = to / cards, card = from % cards, target = to % cards;
    if (card != target) way.push_back(elements.wire(here, card, target));
    if (here != there) way.insert(way.end(), {elements.out(here, target), elements.in(there, target)});
  };
  return h;
}

}  // namespace troupe::presets
