// SPDX-License-Identifier: Apache-2.0
// NCCL's CollNet Direct and CollNet Chain (2.19, spec 5): the network between servers reduces and multicasts (SHARP), and every server gives it
// each share of a block but once.
//
// A block is cut into shares, and in every server one rank is the *head* of a share: it brings the server's sum to the network, and what comes back to the server.
//   collnet_direct: a share a rank of a server; everybody sends every head its share straight away, and gets it back so. For switched servers
//   collnet_chain: up to eight shares; each is summed up along a chain of the server's ranks that ends at its head, and passed back along it

#include <string>
#include <utility>
#include <vector>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/fabric.hpp"

namespace troupe::choreographies {

namespace collnet_scores {
namespace {

using namespace notation;

constexpr int most_direct_ranks = 8;  ///< of a server: NCCL_MAX_DIRECT_ARITY and one

/// Rank `index` sums up share `index` of its server in its output, and sends the others theirs. It sends in lane `index` and takes what another one
/// sends in that one's, so that no send waits for a receive, of an earlier slice neither. Returns the step that completes the sum.
step_ref gather_share(score_builder& s, const hierarchy& where, int server, int index) {
  const int n = where.size_of(server);
  step_ref sum;
  for (int d = 1; d < n; ++d) {
    const int to = (index + d) % n, from = (index - d + n) % n;
    s.lane(where.at(server, index), index).to(where.at(server, to)).send(input[to]);
    lane_writer in = s.lane(where.at(server, index), from).from(where.at(server, from));
    sum = d == 1 ? in.recv_reduce_copy(input[index], output[index]) : in.after(sum).recv_reduce(output[index]);
  }
  return sum;
}

/// It gives the others the share that it has after `ready`, and gets theirs, by lanes from `first` on, in the same way.
void spread_share(score_builder& s, const hierarchy& where, int server, int index, int first, step_ref ready) {
  const int n = where.size_of(server);
  for (int d = 1; d < n; ++d) {
    const int to = (index + d) % n, from = (index - d + n) % n;
    s.lane(where.at(server, index), first + index)
        .after(std::exchange(ready, {}))
        .to(where.at(server, to))
        .send(output[index]);
    s.lane(where.at(server, index), first + from).from(where.at(server, from)).recv(output[from]);
  }
}

score direct(const setup& on) {
  const hierarchy where{on.placement};
  const int shares = where.size_of(0), servers = where.servers();
  score_builder s{on, "collnet_direct", shares};
  fabric_writer network = network_switch(s, where, shares, 2 * shares);
  for (int c = 0; c < shares; ++c) {
    std::vector<step_ref> ready;
    for (int server = 0; server < servers; ++server) ready.push_back(gather_share(s, where, server, c));
    ready = reduce_between(network, where, c, c, shares == 1 ? input[c] : output[c], ready);
    for (int server = 0; server < servers; ++server)
      spread_share(s, where, server, c, shares, ready[static_cast<std::size_t>(server)]);
  }
  return s.finish();
}

/// Up the chain that ends at share c's head. Returns the step that completes the server's sum.
step_ref chain_up(score_builder& s, const hierarchy& where, int server, int c) {
  const int n = where.size_of(server);
  for (int i = 1; i < n; ++i) {
    lane_writer me = s.lane(where.at(server, c + i), c);
    me.to(where.at(server, c + i + 1));
    if (i == 1) me.send(input[c]);
    else me.from(where.at(server, c + i - 1)).recv_reduce_send(input[c]);
  }
  if (n == 1) return {};
  return s.lane(where.at(server, c), c).from(where.at(server, c + n - 1)).recv_reduce_copy(input[c], output[c]);
}

/// And back along it.
void chain_down(score_builder& s, const hierarchy& where, int server, int c, int lane, step_ref ready) {
  const int n = where.size_of(server);
  if (n > 1) s.lane(where.at(server, c), lane).after(ready).to(where.at(server, c + n - 1)).send(output[c]);
  for (int i = n - 1; i > 0; --i) {
    lane_writer me = s.lane(where.at(server, c + i), lane);
    me.from(where.at(server, c + i + 1));
    if (i == 1) me.recv(output[c]);
    else me.to(where.at(server, c + i - 1)).recv_copy_send(output[c]);
  }
}

score chain(const setup& on) {
  const hierarchy where{on.placement};
  const int shares = std::min(where.size_of(0), most_planes), servers = where.servers();
  score_builder s{on, "collnet_chain", shares};
  fabric_writer network = network_switch(s, where, shares, 2 * shares);
  for (int c = 0; c < shares; ++c) {
    std::vector<step_ref> ready;
    for (int server = 0; server < servers; ++server) ready.push_back(chain_up(s, where, server, c));
    ready = reduce_between(network, where, c, c, where.size_of(0) == 1 ? input[c] : output[c], ready);
    for (int server = 0; server < servers; ++server)
      chain_down(s, where, server, c, shares + c, ready[static_cast<std::size_t>(server)]);
  }
  return s.finish();
}

std::string refuses_chain(const setup& on) {
  if (std::string why = needs_reduction_between(on); !why.empty()) return why;
  if (std::string why = needs_equal_servers(on); !why.empty()) return why;
  const hierarchy where{on.placement};
  if (where.servers() < 2 && on.ranks > 1) return "there is one server, and no network for it to let reduce";
  return lanes_fit(on, 2 + 4 * std::min(where.size_of(0), most_planes)) ? "" : "more lanes than a verifier can take";
}

std::string refuses_direct(const setup& on) {
  if (std::string why = refuses_chain(on); !why.empty()) return why;
  const int cards = hierarchy{on.placement}.size_of(0);
  if (cards <= most_direct_ranks) return {};
  return "a server has " + std::to_string(cards) +
         " ranks, each of which would send to all others at once; it is for up to " +
         std::to_string(most_direct_ranks) + ", and collnet_chain for more";
}

constexpr offer offered_direct[] = {{collective::all_reduce, direct}};
constexpr offer offered_chain[] = {{collective::all_reduce, chain}};

}  // namespace
}  // namespace collnet_scores

constinit const choreography collnet_direct{
    "collnet_direct", "the network reduces and multicasts; inside servers everybody sends each share to its head",
    "NCCL 2.19, CollNet Direct (arXiv 2507.04786)", collnet_scores::offered_direct, collnet_scores::refuses_direct};
constinit const choreography collnet_chain{
    "collnet_chain", "the network reduces and multicasts; inside servers chains that end at each share's head",
    "NCCL 2.19, CollNet Chain (arXiv 2507.04786)", collnet_scores::offered_chain, collnet_scores::refuses_chain};

}  // namespace troupe::choreographies
