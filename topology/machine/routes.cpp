// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/routes.hpp"

#include "memory/error.hpp"

namespace troupe {

namespace {

void add(const machine& on, route& way, const machine_element& what, direction used) {
  way.hops.push_back({what.kind, what.server, what.card, what.index, used, on.id_of(what)});
}

void add_memory(const machine& on, route& way, const coordinates& at, direction used) {
  if (at.host) add(on, way, {element_kind::host, at.server}, used);
  else add(on, way, {element_kind::dma, at.server, at.card, at.core_group}, used);
}

void add_ring(const machine& on, route& way, const coordinates& a, const coordinates& b) {
  const int groups = on.ranks().core_groups;
  const auto add_segment = [&](int segment, direction which) {
    add(on, way, {element_kind::ring_segment, a.server, a.card, segment, which}, which);
  };
  if (groups == 2) {  // a single segment: no way round the other side
    add_segment(0, a.core_group < b.core_group ? direction::clockwise : direction::counterclockwise);
    return;
  }
  const int up = (b.core_group - a.core_group + groups) % groups;
  const bool clockwise = up <= groups - up;
  for (int at = a.core_group; at != b.core_group;) {
    const int next = (at + (clockwise ? 1 : groups - 1)) % groups;
    if (clockwise) add_segment(at, direction::clockwise);
    else add_segment(next, direction::counterclockwise);
    at = next;
  }
}

// Position among the places of the server, not among its ranks: O(1) also for irregular layouts.
int port_of(const machine& on, const coordinates& at, int channel) {
  const int ports = on.options().nic_ports;
  const int place = at.card * on.ranks().core_groups + at.core_group;
  return (place % ports + channel % ports) % ports;
}

}  // namespace

void route_between(const machine& on, int from, int to, int channel, route& into) {
  if (channel < 0) throw error(errc::invalid_argument, "route: channel " + std::to_string(channel) + " is negative");
  const coordinates a = on.ranks().of(from);
  const coordinates b = on.ranks().of(to);
  into.from = from;
  into.to = to;
  into.hops.clear();
  if (a == b) return;
  add_memory(on, into, a, direction::out);
  if (a.server != b.server) {
    add(on, into, {element_kind::nic, a.server, 0, port_of(on, a, channel)}, direction::out);
    if (on.options().has_switch) add(on, into, {element_kind::network_switch}, direction::out);
    add(on, into, {element_kind::nic, b.server, 0, port_of(on, b, channel)}, direction::in);
  } else if (a.host || b.host) {
    const direction towards = a.host ? direction::in : direction::out;
    add(on, into, {element_kind::pcie, a.server, (a.host ? b : a).card, 0, towards}, towards);
  } else if (a.card != b.card) {
    add(on, into, {element_kind::card_link, a.server, a.card, b.card}, direction::out);
  } else {
    add_ring(on, into, a, b);
  }
  add_memory(on, into, b, direction::in);
}

route route_between(const machine& on, int from, int to, int channel) {
  route way;
  route_between(on, from, to, channel, way);
  return way;
}

std::string to_string(const machine& on, const route& way) {
  std::string text = "rank " + std::to_string(way.from);
  for (const hop& h : way.hops) text += " → " + on.to_string({h.kind, h.server, h.card, h.index, h.way});
  text += " → rank " + std::to_string(way.to);
  if (way.is_direct()) text += " (direct)";
  return text;
}

}  // namespace troupe
