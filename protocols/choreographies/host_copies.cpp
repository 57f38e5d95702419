// SPDX-License-Identifier: Apache-2.0
// Between a host and all core groups of its card (spec 1, "Host → card", fig. 12): a broadcast from the rank at the host is an upload, a
// gather to it a download.
//   one_copy      three tiers of memory. Up: once over PCIe into L2, one sync, and every core group copies it from there, over the ring bus. Down: every
//                 core group puts its block into its share of L2, one sync, and the host fetches them.
//   each_a_copy   two tiers: a copy over PCIe for each core group.
//
// An upload is cut into eighths, so that a core group fetches one while it stores another. The host, like a core group, moves data
// between L2 and its buffers through memory of its own (its L0).

#include <string>
#include <vector>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace host_copies_scores {
namespace {

using namespace notation;

constexpr int pieces = 8;

/// Ranks but the root, which is the host.
std::vector<rank_t> core_groups(const setup& on) {
  std::vector<rank_t> all;
  for (rank_t r = 0; r < on.ranks; ++r)
    if (r != on.root) all.push_back(r);
  return all;
}

score upload_once(const setup& on) {
  score_builder s{on, "one_copy", pieces};
  s.l2_block(0);
  const auto room = [&](rank_t r, cells model) { return s.l0_like(r, model); };
  for (const rank_t r : core_groups(on)) {
    const step_ref published = s.lane(r).sync();
    for (int p = 0; p < pieces; ++p) {
      lane_writer me = s.lane(r, p);
      const cells tile = room(r, output[p]);
      if (p > 0) me.after(published);
      me.dma_get(l2[p], tile);
      me.dma_put(tile, output[p]);
    }
  }
  lane_writer host = s.lane(on.root);
  for (int p = 0; p < pieces; ++p) {
    const cells tile = room(on.root, input[p]);
    host.dma_get(input[p], tile);
    host.dma_put(tile, l2[p]);
  }
  host.sync();
  host.copy_own(input.all(), output.all());
  return s.finish();
}

/// The host has a lane for each core group, so that it fetches from one while it stores what came from another.
score download_once(const setup& on) {
  score_builder s{on, "one_copy", 1};
  const std::vector<rank_t> sources = core_groups(on);
  for (const rank_t r : sources) s.l2_block(r);
  lane_writer host = s.lane(on.root);
  host.copy_own(input[0], output[on.root]);
  const step_ref published = host.sync();
  for (int i = 0; i < static_cast<int>(sources.size()); ++i) {
    const rank_t r = sources[static_cast<std::size_t>(i)];
    lane_writer me = s.lane(r);
    const cells own = s.l0_like(r, input[0]);
    me.dma_get(input[0], own);
    me.dma_put(own, l2[i]);
    me.sync();
    lane_writer fetching = s.lane(on.root, i);
    const cells tile = s.l0_like(on.root, output[r]);
    if (i > 0) fetching.after(published);
    fetching.dma_get(l2[i], tile);
    fetching.dma_put(tile, output[r]);
  }
  return s.finish();
}

score upload_each(const setup& on) {
  score_builder s{on, "each_a_copy", 1};
  lane_writer host = s.lane(on.root);
  for (const rank_t r : core_groups(on)) {
    s.lane(r).from(on.root).recv(output[0]);
    host.to(r).send(input[0]);
  }
  host.copy_own(input[0], output[0]);
  return s.finish();
}

score download_each(const setup& on) {
  score_builder s{on, "each_a_copy", 1};
  lane_writer host = s.lane(on.root);
  host.copy_own(input[0], output[on.root]);
  for (const rank_t r : core_groups(on)) {
    s.lane(r).to(on.root).send(input[0]);
    host.from(r).recv(output[r]);
  }
  return s.finish();
}

std::string refuses_no_host(const setup& on) {
  const layout& places = on.placement;
  if (places.size() != on.ranks || !places.of(on.root).host)
    return "it is between a host and its cards, and root " + std::to_string(on.root) +
           " is at no host (layout \"1x1x4+host\")";
  for (const rank_t r : core_groups(on))
    if (places.of(r).host) return "rank " + std::to_string(r) + " is at a host, too";
  return {};
}

std::string refuses_several_cards(const setup& on) {
  if (std::string why = refuses_no_host(on); !why.empty()) return why;
  if (std::string why = refuses_apart(on); !why.empty()) return why;
  const std::vector<rank_t> all = core_groups(on);
  for (const rank_t r : all)
    if (on.placement.of(r).card != on.placement.of(all[0]).card)
      return "it goes through the L2 of one card, and ranks " + std::to_string(all[0]) + " and " + std::to_string(r) +
             " are on different cards";
  return {};
}

constexpr offer offered_once[] = {{collective::broadcast, upload_once}, {collective::gather, download_once}};
constexpr offer offered_each[] = {{collective::broadcast, upload_each}, {collective::gather, download_each}};

}  // namespace
}  // namespace host_copies_scores

constinit const choreography one_copy{"one_copy", "between a host and its card: once over PCIe, and through L2",
                                      "SW-IntraCC, three tiers of memory (spec 1, fig. 12)",
                                      host_copies_scores::offered_once, host_copies_scores::refuses_several_cards};
constinit const choreography each_a_copy{"each_a_copy", "between a host and its cards: a copy over PCIe for each rank",
                                         "SW-IntraCC, two tiers of memory (spec 1, fig. 12)",
                                         host_copies_scores::offered_each, host_copies_scores::refuses_no_host};

}  // namespace troupe::choreographies
