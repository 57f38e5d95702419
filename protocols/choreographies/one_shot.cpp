// SPDX-License-Identifier: Apache-2.0
// One round of direct messages: everybody sends what each peer needs straight to it, starting at its own rank + 1 so that no peer is
// everybody's first, and combines what comes in rank order ((0 ⊕ 1) ⊕ 2) ⊕ … One message of latency, n − 1 messages a rank: for
// small blocks among few ranks, above all over the slot port, where a message is a store (spec 4, "NCCL LL-A2A").

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace one_shot_scores {
namespace {
using namespace notation;

template <class Outgoing>
void send_to_all(score_builder& s, lane_writer& me, rank_t r, Outgoing outgoing) {
  for (int k = 1; k < s.on().ranks; ++k) {
    const rank_t peer = s.after(r, k);
    me.to(peer).send(outgoing(peer));
  }
}

/// In the order in which the peers send.
template <class Incoming>
void receive_from_all(score_builder& s, lane_writer& me, rank_t r, Incoming incoming) {
  for (int k = 1; k < s.on().ranks; ++k) {
    const rank_t peer = s.before(r, k);
    me.from(peer).recv(incoming(peer));
  }
}

/// Left fold of all peers' messages and `own` into `sum`, which may be the memory of `own` unless r ≥ 2: there the
/// contributions before r's come first.
void fold(lane_writer& me, int ranks, rank_t r, cells own, cells sum) {
  if (r == 0) me.from(1).swapped().recv_reduce_copy(own, sum);
  if (r == 1) me.from(0).recv_reduce_copy(own, sum);
  if (r >= 2) me.from(0).recv(sum);
  me.fan(1);
  for (rank_t q = 1; q < r; ++q) me.from(q).swapped().recv_reduce(sum);
  me.fan(0);
  if (r >= 2) me.reduce(own, sum);
  me.fan(2);
  for (rank_t q = r == 0 ? 2 : r + 1; q < ranks; ++q) me.from(q).swapped().recv_reduce(sum);
  me.fan(0);
}

/// Where `own` is kept when the fold begins to write over it.
cells kept(score_builder& s, lane_writer& me, rank_t r, cells own) {
  if (!s.on().in_place || r < 2) return own;
  const cells copy = s.scratch_like(r, own);
  me.copy(own, copy);
  return copy;
}

/// In place everybody's fold writes what its peers are still to read, so the messages come from a copy.
void all_reduce(score_builder& s, lane_writer& me, rank_t r) {
  s.stage_input(r);
  const cells own = s.staged(r, input[0]);
  send_to_all(s, me, r, [&](rank_t) { return own; });
  fold(me, s.on().ranks, r, own, output[0]);
}

void reduce_scatter(score_builder& s, lane_writer& me, rank_t r) {
  send_to_all(s, me, r, [](rank_t peer) { return input[peer]; });
  fold(me, s.on().ranks, r, kept(s, me, r, input[r]), output[0]);
}

void reduce(score_builder& s, lane_writer& me, rank_t r) {
  const rank_t root = s.on().root;
  if (r != root) me.to(root).send(input[0]);
  else fold(me, s.on().ranks, r, kept(s, me, r, input[0]), output[0]);
}

void all_to_all(score_builder& s, lane_writer& me, rank_t r) {
  s.stage_input(r);
  send_to_all(s, me, r, [&](rank_t peer) { return s.staged(r, input[peer]); });
  me.copy_own(input[r], output[r]);
  receive_from_all(s, me, r, [](rank_t peer) { return output[peer]; });
}

void all_gather(score_builder& s, lane_writer& me, rank_t r) {
  send_to_all(s, me, r, [](rank_t) { return input[0]; });
  me.copy_own(input[0], output[r]);
  receive_from_all(s, me, r, [](rank_t peer) { return output[peer]; });
}

/// @param block of what the root has, for the peer
template <class BlockFor>
void from_root(score_builder& s, lane_writer& me, rank_t r, BlockFor block) {
  const rank_t root = s.on().root;
  if (r != root) {
    me.from(root).recv(output[0]);
    return;
  }
  send_to_all(s, me, r, [&](rank_t peer) { return input[block(peer)]; });
  me.copy_own(input[block(r)], output[0]);
}

void broadcast(score_builder& s, lane_writer& me, rank_t r) {
  from_root(s, me, r, [](rank_t) { return 0; });
}

void scatter(score_builder& s, lane_writer& me, rank_t r) {
  from_root(s, me, r, [](rank_t peer) { return peer; });
}

void gather(score_builder& s, lane_writer& me, rank_t r) {
  const rank_t root = s.on().root;
  if (r != root) {
    me.to(root).send(input[0]);
    return;
  }
  me.copy_own(input[0], output[r]);
  receive_from_all(s, me, r, [](rank_t peer) { return output[peer]; });
}

void barrier(score_builder& s, lane_writer& me, rank_t r) {
  send_to_all(s, me, r, [](rank_t) { return token; });
  receive_from_all(s, me, r, [](rank_t) { return token; });
}

/// To everybody above.
/// @param kept in place the fold writes over what peers, or the rank itself, have still to read
void send_up(score_builder& s, lane_writer& me, rank_t r, bool kept) {
  if (kept) s.stage_input(r);
  for (rank_t peer = r + 1; peer < s.on().ranks; ++peer) me.to(peer).send(s.staged(r, input[0]));
}

void scan(score_builder& s, lane_writer& me, rank_t r) {
  send_up(s, me, r, r > 1 || (r == 1 && s.on().ranks > 2));
  if (r == 0) me.copy_own(input[0], output[0]);
  else fold(me, r + 1, r, s.staged(r, input[0]), output[0]);
}

void exscan(score_builder& s, lane_writer& me, rank_t r) {
  send_up(s, me, r, r > 0 && r + 1 < s.on().ranks);
  if (r > 0) me.from(0).recv(output[0]);
  me.fan(1);
  for (rank_t q = 1; q < r; ++q) me.from(q).swapped().recv_reduce(output[0]);
  me.fan(0);
}

template <void (*part_of)(score_builder&, lane_writer&, rank_t)>
score of_all(const setup& on) {
  score_builder s{on, "one_shot", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    part_of(s, me, r);
  }
  return s.finish();
}

constexpr offer offered[] = {{collective::all_reduce, of_all<all_reduce>},
                             {collective::all_gather, of_all<all_gather>},
                             {collective::reduce_scatter, of_all<reduce_scatter>},
                             {collective::all_to_all, of_all<all_to_all>},
                             {collective::broadcast, of_all<broadcast>},
                             {collective::reduce, of_all<reduce>},
                             {collective::gather, of_all<gather>},
                             {collective::scatter, of_all<scatter>},
                             {collective::barrier, of_all<barrier>},
                             {collective::scan, of_all<scan>},
                             {collective::exscan, of_all<exscan>}};

}  // namespace
}  // namespace one_shot_scores

constinit const choreography one_shot{
    "one_shot", "one round of direct messages, combined in rank order: smallest latency for small blocks",
    "NCCL LL-A2A (spec 4); flat exchange", one_shot_scores::offered, refuses_nothing};

}  // namespace troupe::choreographies
