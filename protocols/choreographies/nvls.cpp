// SPDX-License-Identifier: Apache-2.0
// NCCL's NVLS and NVLS Tree (2.19, spec 5; src/device/all_reduce.h, runTreeUpDown's NVLS kin): the switch inside a server, which joins its
// ranks, reduces and multicasts (NVLink SHARP).
//
// A block is cut into as many shares as a server has ranks; rank c of a server is the *head* of share c. The head's load-reduce lets the
// switch read share c of every rank of the server and reduce it on the way; its multicast store goes up once, and from the switch to
// everybody else (real switches send it back to the head, too, which has it already). So a rank sends a block and a share of it, and receives
// as much, where a ring over n ranks sends and receives 2(n − 1)/n blocks.
//   where ranks reach each other's memory, the board at which they meet is the switch: see "on a board"
//   reduce_scatter is the first half, all_gather the second: each rank's block goes up once instead of n − 1 times
//   nvls on several servers, where the network reduces, too: the heads of a share give the network their server's sum, which it reduces
//   nvls_tree: the heads of a share pass their servers' sums up and down a binary tree; even shares take tree 0, odd ones tree 1

#include <string>
#include <vector>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/fabric.hpp"
#include "protocols/choreographies/patterns.hpp"
#include "topology/trees.hpp"

namespace troupe::choreographies {

namespace nvls_scores {
namespace {

using namespace notation;

std::vector<rank_t> without(const std::vector<rank_t>& all, rank_t one) {
  std::vector<rank_t> rest;
  for (const rank_t r : all)
    if (r != one) rest.push_back(r);
  return rest;
}

int planes_of(int ranks) { return std::min(ranks, most_planes); }

/// The switch of every server, from lane 0 on.
std::vector<fabric_writer> switches_inside(score_builder& s, const hierarchy& where) {
  std::vector<fabric_writer> all;
  for (int server = 0; server < where.servers(); ++server) {
    const std::vector<rank_t>& here = where.members(server);
    const std::vector<rank_t> seats(here.begin(), here.begin() + planes_of(where.size_of(server)));
    all.emplace_back(s, s.on().placement.server_of(here.front()), here, seats, 0, here.size() > seats.size());
  }
  return all;
}

/// Joins the servers' sums of share c, which their heads have in output[c] after the steps `ready`; afterwards `ready` tells when they have the whole.
class tree_of_heads {
public:
  tree_of_heads(score_builder& s, const hierarchy& where, int first_lane) : s_(s), where_(where), first_(first_lane) {}

  void join(int c, std::vector<step_ref>& ready) {
    for (int server = 0; server < where_.servers(); ++server) {
      const tree_node node = double_tree(c % 2, server, where_.servers());
      const rank_t me = where_.at(server, c);
      const step_ref sum = climb(s_.lane(me, first_), node, c, ready[static_cast<std::size_t>(server)]);
      ready[static_cast<std::size_t>(server)] = descend(s_.lane(me, first_ + 1), node, c, sum);
    }
  }

private:
  step_ref climb(lane_writer me, const tree_node& node, int c, step_ref last) const {
    me.after(last);
    for (const int child : node.children) last = me.from(where_.at(child, c)).recv_reduce(output[c]);
    return node.is_root() ? last : me.to(where_.at(node.parent, c)).send(output[c]);
  }
  step_ref descend(lane_writer me, const tree_node& node, int c, step_ref sum) const {
    step_ref whole = sum;
    if (!node.is_root()) whole = me.from(where_.at(node.parent, c)).recv(output[c]);
    bool told = !node.is_root();
    for (const int child : node.children) {
      if (!std::exchange(told, true)) me.after(sum);
      me.to(where_.at(child, c)).send(output[c]);
    }
    return whole;
  }

  score_builder& s_;
  const hierarchy& where_;
  int first_;
};

enum class joined_by { nobody, network, tree };

score all_reduce_by(const setup& on, std::string_view name, joined_by how) {
  const hierarchy where{on.placement};
  const int shares = where.size_of(0), servers = where.servers(), planes = planes_of(shares);
  score_builder s{on, name, shares};
  std::vector<fabric_writer> inside = switches_inside(s, where);
  tree_of_heads tree{s, where, inside.front().lanes()};
  std::vector<fabric_writer> network;
  if (how == joined_by::network) network.push_back(network_switch(s, where, planes, inside.front().lanes()));
  for (int c = 0; c < shares; ++c) {
    const int plane = c % planes;
    std::vector<step_ref> ready;
    for (int server = 0; server < servers; ++server) {
      std::vector<gift> given;
      for (int i = 0; i < shares; ++i) given.push_back({where.at(server, c + i), input[c]});
      fabric_writer& by = inside[static_cast<std::size_t>(server)];
      ready.push_back(by.give(by.reduce(plane, input[c], given), where.at(server, c), output[c]));
    }
    if (how == joined_by::tree) tree.join(c, ready);
    if (how == joined_by::network) ready = reduce_between(network.front(), where, c, plane, output[c], ready);
    for (int server = 0; server < servers; ++server) {
      const rank_t head = where.at(server, c);
      fabric_writer& by = inside[static_cast<std::size_t>(server)];
      const held whole = by.take(plane, output[c], {head, output[c], ready[static_cast<std::size_t>(server)]});
      by.multicast(whole, without(where.members(server), head), output[c]);
    }
  }
  return s.finish();
}

// -- on a board -------------------------------------------------------------------------------------------------------
// The board's memory is the switch, its units are the switch's lanes (direct_program.hpp), and any rank that is there performs them. A head's load-reduce
// reads its share where each rank has it, its own first, and its multicast store writes the sum where each wants it: in one pass of the kernel, with
// nothing in between, and nothing is sent but the syncs. Between processes the shares are read and written where all map them, or by way of
// staging buffers there (direct_board.hpp): a rank writes what it gives once, and reads what it gets once.

void load_reduce(lane_writer& me, const setup& on, rank_t head, cells share, cells sum) {
  const auto of = [share](rank_t r) { return cells{share.buffer, r, share.first, share.count, share.blocks}; };
  me.copy(of(head), sum);
  for (int i = 1; i < on.ranks; ++i) me.reduce(of((head + i) % on.ranks), sum);
}

void multicast_store(lane_writer& me, const setup& on, rank_t head, cells what, cells target) {
  for (int i = 1; i < on.ranks; ++i)
    me.copy(what, cells{target.buffer, (head + i) % on.ranks, target.first, target.count, target.blocks});
}

void all_reduce_share(score_builder& s, lane_writer& me, rank_t head) {
  load_reduce(me, s.on(), head, input[head], output[head]);
  multicast_store(me, s.on(), head, output[head], output[head]);
}
void reduce_scatter_share(score_builder& s, lane_writer& me, rank_t head) {
  load_reduce(me, s.on(), head, input[head], output[0]);
}
void all_gather_share(score_builder& s, lane_writer& me, rank_t head) {
  me.copy_own(input[0], output[head]);
  multicast_store(me, s.on(), head, input[0], output[head]);
}

template <share_writer share_of>
score by_heads_on_board(const setup& on) {
  return write_shares(on, "nvls", share_of);
}

// -- by messages ------------------------------------------------------------------------------------------------------

score all_reduce(const setup& on) {
  if (on.on_board) return by_heads_on_board<all_reduce_share>(on);
  return all_reduce_by(on, "nvls", hierarchy{on.placement}.servers() > 1 ? joined_by::network : joined_by::nobody);
}

score all_reduce_tree(const setup& on) { return all_reduce_by(on, "nvls_tree", joined_by::tree); }

score reduce_scatter(const setup& on) {
  if (on.on_board) return by_heads_on_board<reduce_scatter_share>(on);
  const hierarchy where{on.placement};
  score_builder s{on, "nvls", 1};
  fabric_writer by = switches_inside(s, where).front();
  for (int c = 0; c < on.ranks; ++c) {
    const rank_t head = where.at(0, c);
    std::vector<gift> given;
    for (int i = 0; i < on.ranks; ++i) given.push_back({where.at(0, c + i), input[head]});
    by.give(by.reduce(c % planes_of(on.ranks), input[head], given), head, output[0]);
  }
  return s.finish();
}

score all_gather(const setup& on) {
  if (on.on_board) return by_heads_on_board<all_gather_share>(on);
  const hierarchy where{on.placement};
  score_builder s{on, "nvls", 1};
  fabric_writer by = switches_inside(s, where).front();
  for (int c = 0; c < on.ranks; ++c) {
    const rank_t head = where.at(0, c);
    const held block = by.take(c % planes_of(on.ranks), output[head], {head, input[0]});
    by.multicast(block, without(where.members(0), head), output[head]);
    s.lane(head).copy_own(input[0], output[head]);
  }
  return s.finish();
}

std::string refuses(const setup& on) {
  if (std::string why = needs_reduction_inside(on); !why.empty()) return why;
  if (std::string why = needs_equal_servers(on); !why.empty()) return why;
  const hierarchy where{on.placement};
  if (where.servers() > 1 && on.what != collective::all_reduce)
    return "there are several servers, and a switch inside one reaches no other; between them it offers all_reduce "
           "alone";
  if (where.servers() > 1) {
    if (std::string why = needs_reduction_between(on); !why.empty()) return why + "; nvls_tree does without";
  }
  if (on.on_board) return {};
  return lanes_fit(on, 2 * (2 + 3 * planes_of(where.size_of(0)))) ? "" : "more lanes than a verifier can take";
}

std::string refuses_tree(const setup& on) {
  if (std::string why = needs_reduction_inside(on); !why.empty()) return why;
  if (std::string why = needs_equal_servers(on); !why.empty()) return why;
  const hierarchy where{on.placement};
  if (where.servers() < 2 && on.ranks > 1) return "there is one server, and no tree of servers; nvls is for one";
  return lanes_fit(on, 4 + 3 * planes_of(where.size_of(0))) ? "" : "more lanes than a verifier can take";
}

constexpr offer offered[] = {{collective::all_reduce, all_reduce},
                             {collective::reduce_scatter, reduce_scatter},
                             {collective::all_gather, all_gather}};
constexpr offer offered_tree[] = {{collective::all_reduce, all_reduce_tree}};

}  // namespace
}  // namespace nvls_scores

constinit const choreography nvls{"nvls",
                                  "the switch inside a server reduces and multicasts; needs a layout that says so",
                                  "NCCL 2.19, NVLS (arXiv 2507.04786)", nvls_scores::offered, nvls_scores::refuses};
constinit const choreography nvls_tree{
    "nvls_tree", "the switches inside servers reduce and multicast; a tree of their heads between them",
    "NCCL 2.19, NVLS Tree (arXiv 2507.04786)", nvls_scores::offered_tree, nvls_scores::refuses_tree};

}  // namespace troupe::choreographies
