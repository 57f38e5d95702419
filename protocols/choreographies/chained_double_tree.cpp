// SPDX-License-Identifier: Apache-2.0
// NCCL's Tree (2.19, spec 5; ncclGetBtree and ncclGetDtree of trees.cc, ncclTopoPreset and connectTrees of connect.cc): double binary
// trees over *servers*, and in every server a chain of its cards. The network is crossed once up and once down in each tree, by what
// only the server's head sends, instead of by every edge between ranks as in double_binary_tree.
//
// A server's chain is its ranks in the order of their numbers. Its first, the head, gives the server's sum to the parent server
// and takes the result from there. As in NCCL's "balanced tree", which it tries first, the head also takes the second child server, and the
// chain's second rank the first one, so that two network cards share the work. Tree 1 is tree 0 mirrored (even number of
// servers) or shifted by one server (odd); server 0, or 1, is a root of one child.
//
// Each tree carries one half of the block, as the two channels of a pair: for m cards in each of n servers about 2·(m − 1 + log2 n) rounds;
// every rank sends and receives each byte at most once a phase and child. Lanes and pipelining are those of double_binary_tree.
//
// That is one pair of channels. NCCL makes as many as the machine has network cards, with chains that begin at different ranks: so does
// `tree_per_nic`, of which pair c carries the c-th part of the block. Of a server of m ranks with n network cards, which neighbours share, its chain begins
// at rank ⌈c·m/n⌉ and goes round. setup::nics says how many pairs there are; unless it does, each rank has a network card.

#include <string>
#include <string_view>
#include <vector>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/choreographies/tree_lanes.hpp"

namespace troupe::choreographies {

namespace chained_double_tree_scores {
namespace {

using namespace notation;

/// A server in a tree of servers.
struct server_node {
  int parent = -1;
  int children[2] = {-1, -1};  ///< the first one has the lower label
  bool is_first = false;       ///< of its parent's children
};

/// Labels 0 … servers−1: odd ones are leaves, a label's lowest set bit is its height, and 0 is the root above them all.
server_node plain_node(int label, int servers) {
  server_node node;
  int bit = 1;
  while (bit < servers && (label & bit) == 0) bit *= 2;
  if (label == 0) {
    node.children[1] = servers > 1 ? bit / 2 : -1;
    return node;
  }
  node.parent = (label ^ bit) | (2 * bit);
  if (node.parent >= servers) node.parent = label ^ bit;
  node.is_first = label < node.parent;
  if (bit == 1) return node;
  node.children[0] = label - bit / 2;
  for (int reach = bit / 2; reach > 0 && node.children[1] < 0; reach /= 2)
    if (label + reach < servers) node.children[1] = label + reach;
  return node;
}

/// Tree 1 is tree 0 with other labels.
server_node server_tree(int which, int server, int servers) {
  if (which == 0) return plain_node(server, servers);
  const bool mirrored = servers % 2 == 0;
  const auto label = [&](int of) { return mirrored ? servers - 1 - of : (of + servers - 1) % servers; };
  const auto server_of = [&](int of) {
    if (of < 0) return -1;
    return mirrored ? servers - 1 - of : (of + 1) % servers;
  };
  server_node node = plain_node(label(server), servers);
  node.parent = server_of(node.parent);
  for (int& child : node.children) child = server_of(child);
  return node;
}

/// A rank's place in the tree of all ranks: chains, joined by the tree of their servers.
/// @param pair of so many, whose chains begin at the entrance of the NIC of that number
tree_node place_of(int which, rank_t r, const hierarchy& where, int pair, int pairs) {
  const int server = where.server_of(r), cards = where.size_of(server);
  const auto head = [&](int of) { return entrance_of(pair, pairs, where.size_of(of)); };
  const int index = (where.index_of(r) - head(server) + cards) % cards;
  const auto at = [&](int of, int place) { return where.at(of, head(of) + place); };
  const server_node up = server_tree(which, server, where.servers());
  const auto takes_first = [&](int of) { return at(of, where.size_of(of) > 1 ? 1 : 0); };
  tree_node node;
  if (index > 0) node.parent = at(server, index - 1);
  else if (up.parent >= 0) node.parent = up.is_first ? takes_first(up.parent) : at(up.parent, 0);
  if (index + 1 < cards) node.children.push_back(at(server, index + 1));
  if (up.children[0] >= 0 && takes_first(server) == r) node.children.push_back(at(up.children[0], 0));
  if (up.children[1] >= 0 && index == 0) node.children.push_back(at(up.children[1], 0));
  return node;
}

score write(const setup& on, std::string_view name, const hierarchy& where, int pairs) {
  score_builder s{on, name, 2 * pairs};
  for (rank_t r = 0; r < on.ranks; ++r)
    for (int pair = 0; pair < pairs; ++pair)
      for (int t = 0; t < 2; ++t) {
        const tree_node node = place_of(t, r, where, pair, pairs);
        const int part = 2 * pair + t, up = 4 * pair + t, down = up + 2;
        const step_ref sum = climb(s.lane(r, up), r, node, part, output[part]);
        descend(s.lane(r, down), node, part, output[part], node.is_root() ? sum : step_ref{});
      }
  return s.finish();
}

score one_pair(const setup& on) { return write(on, "chained_double_tree", hierarchy{on.placement}, 1); }

score pair_per_nic(const setup& on) {
  const hierarchy where{on.placement};
  return write(on, "tree_per_nic", where, nics_used(on, where));
}

std::string refuses(const setup& on) {
  if (std::string why = needs_places(on); !why.empty()) return why;
  const hierarchy where{on.placement};
  if (where.servers() < 2) return "on one server it would be a chain of all ranks; it needs at least two servers";
  if (where.servers() == on.ranks)
    return "no server has two ranks to make a chain of; double_binary_tree is for one rank a server";
  return {};
}

std::string refuses_per_nic(const setup& on) { return refuses_without_nics(on, 4, "double_binary_tree"); }

constexpr offer offered[] = {{collective::all_reduce, one_pair}};
constexpr offer offered_per_nic[] = {{collective::all_reduce, pair_per_nic}};

}  // namespace
}  // namespace chained_double_tree_scores

constinit const choreography chained_double_tree{
    "chained_double_tree", "NCCL's Tree: two binary trees over servers, a chain in each: few crossings of the network",
    "NCCL 2.19 (arXiv 2507.04786)", chained_double_tree_scores::offered, chained_double_tree_scores::refuses};

constinit const choreography tree_per_nic{
    "tree_per_nic", "chained_double_tree for each NIC of a server, with chains that begin at ranks of its own",
    "NCCL 2.19 (arXiv 2507.04786)", chained_double_tree_scores::offered_per_nic,
    chained_double_tree_scores::refuses_per_nic};

}  // namespace troupe::choreographies
