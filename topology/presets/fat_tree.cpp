// SPDX-License-Identifier: Apache-2.0
// Hosts under leaf switches under spine switches, all of one radix: a two-level folded Clos (Leiserson, "Fat-trees", 1985; Al-
// Fares,
// Loukissas, Vahdat, "A scalable, commodity data center network architecture", 2008). Every port is an element, so that incast and
// shared
// trunks show. A leaf gives radix · o / (o + 1) ports to hosts and the rest to spines, one each, for an oversubscription of o to 1.
// Routes are static: the spine is the destination's number modulo the spines (D-mod-k), and one further per channel.
//
// A layout of groups of hosts, 4x8x1x1 for those of four leaves, is for choreographies that know levels; hops are those of the tree.
//
// Structure: hosts (32), radix (16), oversubscription (1). Round figures: 25 GB/s a port, 300 ns a switch, 0.5 µs a host's port.
#include "topology/presets/presets.hpp"

#include <string>

#include "memory/error.hpp"

namespace troupe::presets {

namespace {

struct tree {
  int hosts = 0, down = 0, spines = 0, leaves = 0;
  /// Host r: up 2r, down 2r + 1. Trunks: leaf l and spine s.
  element_index trunk_up(int leaf, int spine) const { return 2 * hosts + 2 * (leaf * spines + spine); }
  element_index trunk_down(int leaf, int spine) const { return trunk_up(leaf, spine) + 1; }
};

tree shape_of(const preset_request& wanted) {
  const int otherwise = wanted.ranks > 0         ? wanted.ranks
                        : !wanted.layout.empty() ? layout::parse(wanted.layout).size()
                                                 : 32;
  const int hosts = wanted.number("hosts", otherwise, 1, 1 << 20);
  const int radix = wanted.number("radix", 16, 2, 4096);
  const int over = wanted.number("oversubscription", 1, 1, 64);
  if (wanted.ranks > 0 && wanted.ranks != hosts)
    throw error(errc::bad_config, "preset fat_tree: ranks and structure.hosts are the same number; leave one away");
  tree t;
  t.hosts = hosts;
  t.spines = radix / (over + 1);
  if (t.spines == 0)
    throw error(errc::bad_config, "preset fat_tree: switches of radix " + std::to_string(radix) +
                                      " cannot be oversubscribed " + std::to_string(over) + " to 1; take a radix of " +
                                      std::to_string(over + 1) + " at least");
  t.down = radix - t.spines;
  t.leaves = (hosts + t.down - 1) / t.down;
  if (t.leaves > radix)
    throw error(errc::bad_config, "preset fat_tree: two levels of radix " + std::to_string(radix) + " have room for " +
                                      std::to_string(radix * t.down) + " hosts, not " + std::to_string(hosts) +
                                      "; take a larger structure.radix");
  return t;
}

/// How choreographies see the hosts: those of a leaf switch as a pod, for example. Which switches a message passes depends on the tree alone.
layout layout_of_hosts(const preset_request& wanted, int hosts) {
  layout places = layout::parse(wanted.layout);
  if (places.size() != hosts)
    throw error(errc::bad_config, "preset fat_tree: the layout " + wanted.layout + " has " +
                                      std::to_string(places.size()) + " ranks, the tree " + std::to_string(hosts) +
                                      " hosts; take as many");
  if (!places.is_grid() || places.cards != 1 || places.core_groups != 1 || places.ranks_per_core_group != 1)
    throw error(errc::bad_config, "preset fat_tree: the layout " + wanted.layout +
                                      " has servers of several ranks, but every host is one; write groups of hosts "
                                      "as in 4x8x1x1, or " +
                                      std::to_string(hosts) + "x1");
  return places;
}

}  // namespace

hardware fat_tree(const preset_request& wanted) {
  const tree t = shape_of(wanted);
  hardware h{"fat_tree", t.hosts};
  h.about = std::to_string(t.leaves) + " leaf switches with " + std::to_string(t.down) + " hosts each under " +
            std::to_string(t.spines) + " spines";
  h.arrangement = wanted.layout.empty() ? layout::grid(t.hosts, 1) : layout_of_hosts(wanted, t.hosts);
  h.protocols = plain_protocols();
  const class_id port = h.add_class({.name = "host_port",
                                     .role = element_role::nic,
                                     .latency = std::chrono::nanoseconds{500},
                                     .bytes_per_second = 25'000'000'000,
                                     .source = "round figures: 200 Gbit/s, 0.5 us"});
  const class_id trunk =
      h.add_class({.name = "trunk",
                   .role = element_role::switch_port,
                   .latency = std::chrono::nanoseconds{300},
                   .bytes_per_second = 25'000'000'000,
                   .source = "a port between leaf and spine, as fast as a host's; 300 ns a switch: round figure"});
  for (int r = 0; r < t.hosts; ++r) h.add_pair(port, "up " + std::to_string(r), "down " + std::to_string(r), r);
  for (int leaf = 0; leaf < t.leaves; ++leaf)
    for (int spine = 0; spine < t.spines; ++spine)
      h.add_pair(trunk, "leaf " + std::to_string(leaf) + " → spine " + std::to_string(spine),
                 "spine " + std::to_string(spine) + " → leaf " + std::to_string(leaf));
  h.way = [t](int from, int to, int channel, std::vector<element_index>& way) {
    const int a = from / t.down, b = to / t.down, spine = (to + channel) % t.spines;
    if (a == b) way.assign({2 * from, 2 * to + 1});
    else way.assign({2 * from, t.trunk_up(a, spine), t.trunk_down(b, spine), 2 * to + 1});
  };
  return h;
}

}  // namespace troupe::presets
