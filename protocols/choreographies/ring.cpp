// SPDX-License-Identifier: Apache-2.0
// Ring and chain (spec 5, step tables; Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
// clusters of workstations", 2009). Everybody talks to two neighbours only; every link is busy all the time;
// the latency grows with the number of ranks, k. The chain is the ring cut open at the root; what pipelines
// it is cutting its cells into slices.
//
// Sums go round the ring from where they start, so only the chain that ends at the last rank combines in rank
// order.
//
// The ring (not the chain) needs two credits as it is written: with one, every rank has a message under way
// and each step that receives and sends waits for the next rank to take it, all the way round.
// pace_sends(score, 1) (rewriting.hpp) takes those steps apart and stores what cannot be sent yet.

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace ring_scores {
namespace {

using namespace notation;

/// 2k−1 steps: k−1 of reduce-scatter, k−1 of all-gather, joined in one. Part c sets out at position c and is
/// complete at position c−1, after one trip round the ring.
score all_reduce(const setup& on) {
  const ring_order ring{on};
  const int k = on.ranks;
  score_builder s{on, "ring", k};
  for (int p = 0; p < k; ++p) {
    auto me = s.lane(ring[p]).from(ring[p - 1]).to(ring[p + 1]);
    me.send(input[p]);
    for (int step = 1; step < k - 1; ++step) me.recv_reduce_send(input[p - step]);
    me.recv_reduce_copy_send(input[p + 1], output[p + 1]);
    for (int step = 0; step < k - 2; ++step) me.recv_copy_send(output[p - step]);
    me.recv(output[p + 2]);
  }
  return s.finish();
}

/// k steps, and out of place a copy of the own block. Blocks keep their place in the output however large
/// they are.
score all_gather(const setup& on) {
  const ring_order ring{on};
  const int k = on.ranks;
  score_builder s{on, "ring", 1};
  for (int p = 0; p < k; ++p) {
    auto me = s.lane(ring[p]).from(ring[p - 1]).to(ring[p + 1]);
    me.send(input[0]);
    me.copy_own(input[0], output.block(ring[p]));
    for (int step = 1; step < k - 1; ++step) me.recv_copy_send(output.block(ring[p - step]));
    me.recv(output.block(ring[p + 1]));
  }
  return s.finish();
}

/// k steps. The block of position p sets out at position p+1, so that it comes home complete.
score reduce_scatter(const setup& on) {
  const ring_order ring{on};
  const int k = on.ranks;
  score_builder s{on, "ring", 1};
  for (int p = 0; p < k; ++p) {
    auto me = s.lane(ring[p]).from(ring[p - 1]).to(ring[p + 1]);
    me.send(input.block(ring[p - 1]));
    for (int step = 1; step < k - 1; ++step) me.recv_reduce_send(input.block(ring[p - 1 - step]));
    me.recv_reduce_copy(input.block(ring[p]), output[0]);
  }
  return s.finish();
}

/// The chain leads from the root round the ring to the root's predecessor.
score broadcast(const setup& on) {
  const ring_order ring{on};
  const int first = ring.position_of(on.root), last = first + on.ranks - 1;
  score_builder s{on, "ring", 1};
  for (int p = first; p <= last; ++p) {
    auto me = s.lane(ring[p]).from(ring[p - 1]).to(ring[p + 1]);
    if (p == first) {
      me.send(input[0]);
      me.copy_own(input[0], output[0]);
    } else if (p < last) {
      me.recv_copy_send(output[0]);
    } else {
      me.recv(output[0]);
    }
  }
  return s.finish();
}

/// The chain leads from the root's successor round the ring to the root.
score reduce(const setup& on) {
  const ring_order ring{on};
  const int last = ring.position_of(on.root), first = last - on.ranks + 1;
  score_builder s{on, "ring", 1};
  for (int p = first; p <= last; ++p) {
    auto me = s.lane(ring[p]).from(ring[p - 1]).to(ring[p + 1]);
    if (p == first) me.send(input[0]);
    else if (p < last) me.recv_reduce_send(input[0]);
    else me.recv_reduce_copy(input[0], output[0]);
  }
  return s.finish();
}

/// The chain leads from rank 0 to the last: a prefix is a left fold in rank order, whatever the layout.
score scan(const setup& on) {
  const int last = on.ranks - 1;
  score_builder s{on, "ring", 1};
  for (rank_t r = 0; r <= last; ++r) {
    auto me = s.lane(r).from(r - 1).to(r + 1);
    if (r == 0) {
      me.send(input[0]);
      me.copy_own(input[0], output[0]);
    } else if (r < last) {
      me.recv_reduce_copy_send(input[0], output[0]);
    } else {
      me.recv_reduce_copy(input[0], output[0]);
    }
  }
  return s.finish();
}

/// The same chain; what comes in is the result, and what goes on has the own contribution in it.
score exscan(const setup& on) {
  const int last = on.ranks - 1;
  score_builder s{on, "ring", 1};
  for (rank_t r = 0; r <= last; ++r) {
    auto me = s.lane(r).from(r - 1).to(r + 1);
    if (r > 0 && r < last) s.stage_input(r);  // in place, what comes in is written over it
    if (r > 0) me.recv(output[0]);
    if (r == 0) me.send(input[0]);
    if (r == 0 || r == last) continue;
    const cells onwards = s.scratch_like(r, input[0]);
    me.copy(output[0], onwards);
    me.reduce(s.staged(r, input[0]), onwards);
    me.send(onwards);
  }
  return s.finish();
}

constexpr offer offered[] = {{collective::all_reduce, all_reduce},
                             {collective::all_gather, all_gather},
                             {collective::reduce_scatter, reduce_scatter},
                             {collective::broadcast, broadcast},
                             {collective::reduce, reduce},
                             {collective::scan, scan},
                             {collective::exscan, exscan}};

}  // namespace
}  // namespace ring_scores

constinit const choreography ring{
    "ring", "round a ring, or along a chain: best bandwidth, latency grows with the ranks",
    "NCCL 2.19 (arXiv 2507.04786); Patarasuk and Yuan 2009", ring_scores::offered, refuses_nothing};

}  // namespace troupe::choreographies
