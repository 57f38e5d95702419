// SPDX-License-Identifier: Apache-2.0
// Direct full mesh (spec 4, "DirectFullMesh"): every rank exchanges with every other directly, in rounds of C = stage::streams
// peers, nearest first and both sides at once: round 0 is ±1, ±2; round 1 is ±3, ±4; … (C = 4), ⌈(p−1)/C⌉ rounds in all.
//
//   lane 0        the main stream: local copies and folding; it tells the streams to start and notices when a round drains
//   lanes 1 … C   the streams: one exchange a round each, and a stream's next one when its last has ended both ways. A round starts
//                 when the round before the last has drained, so a stream with little to do may be one round ahead of the others.
//
// No stream has two rounds on the wire. HCCL's block has two halves, one to send from and one to receive into, and they swap roles
// every round: the next round's data cannot leave before the last one's have been taken out of the same half, nor arrive before it has
// been sent. What overlaps there is the copy into a half with a transfer; here both ends are the callers' own buffers, and nothing is
// copied. The source's T counts rounds of α + β n accordingly. Who wants more at once raises C.
//
// reduce_scatter has one accumulator, so its messages all run in lane 0: sends nearest first, receives in rank order, left fold
// ((0 ⊕ 1) ⊕ 2) ⊕ … at every rank. Receives that a caller without wishes about order may take as they arrive form a fan.
// all_reduce is that on the block's n parts, and an all_gather of the parts.

#include <algorithm>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace {
using namespace notation;

/// Distance of the k-th exchange: +1, −1, +2, −2, … To send k-th to the rank `shift` ahead is to receive k-th from the rank
/// `shift` behind, so the two ends of a message use the same stream.
int shift(int k) { return k % 2 == 0 ? k / 2 + 1 : -(k / 2 + 1); }

/// Sends outgoing(peer) to every peer and receives incoming(peer) from it, in rounds.
/// @param ready the main stream's step after which the streams may start
template <class Outgoing, class Incoming>
void exchange_in_rounds(score_builder& s, rank_t r, step_ref ready, Outgoing outgoing, Incoming incoming) {
  const int exchanges = s.on().ranks - 1;
  const int streams = std::max(1, std::min(s.on().streams, exchanges));
  auto main = s.lane(r);
  std::vector<step_ref> drained;  // by round
  for (int begin = 0; begin < exchanges; begin += streams) {
    const int end = std::min(begin + streams, exchanges), round = begin / streams;
    const step_ref go = round < 2 ? ready : drained[static_cast<std::size_t>(round) - 2];
    const bool last_two = exchanges - begin <= 2 * streams;  // nobody waits for these but the end of the operation
    step_ref noticed;
    for (int k = begin; k < end; ++k) {
      const rank_t ahead = s.after(r, shift(k)), behind = s.before(r, shift(k));
      auto stream = s.lane(r, 1 + k - begin).to(ahead).from(behind);
      stream.after(go).send(outgoing(ahead));
      const step_ref done = stream.recv(incoming(behind));
      if (!last_two) noticed = main.wait(done);
    }
    drained.push_back(noticed);
  }
}

/// Rank r's own cell of all inputs, folded in rank order into output[r] (in reduce_scatter all indices wrap to output[0]).
step_ref fold(score_builder& s, rank_t r) {
  auto me = s.lane(r);
  for (int k = 0; k < s.on().ranks - 1; ++k) {
    const rank_t peer = s.after(r, shift(k));
    me.to(peer).send(input[peer]);
  }
  cells own = input[r];
  if (s.on().in_place && r >= 2) {  // the output is about to hold 0 ⊕ 1 … where the own contribution lies
    own = s.scratch_like(r, input[r]);
    me.copy(input[r], own);
  }
  step_ref last;
  if (r == 0) me.copy_own(own, output[r]);
  if (r == 1) last = me.from(0).recv_reduce_copy(own, output[r]);
  if (r >= 2) last = me.from(0).recv(output[r]);
  me.fan(1);
  for (rank_t q = 1; q < r; ++q) last = me.from(q).swapped().recv_reduce(output[r]);
  if (r >= 2) last = me.reduce(own, output[r]);
  me.fan(2);
  for (rank_t q = r + 1; q < s.on().ranks; ++q) last = me.from(q).swapped().recv_reduce(output[r]);
  return last;
}

cells into_place(rank_t peer) { return output[peer]; }

void all_to_all(score_builder& s, rank_t r) {
  s.stage_input(r);
  const step_ref staged = s.on().in_place ? step_ref{0, 0} : step_ref{};
  s.lane(r).copy_own(input[r], output[r]);
  exchange_in_rounds(
      s, r, staged, [&](rank_t peer) { return s.staged(r, input[peer]); }, into_place);
}

void all_gather(score_builder& s, rank_t r) {
  s.lane(r).copy_own(input[0], output[r]);
  exchange_in_rounds(
      s, r, {}, [](rank_t) { return input[0]; }, into_place);
}

void reduce_scatter(score_builder& s, rank_t r) { fold(s, r); }

void all_reduce(score_builder& s, rank_t r) {
  exchange_in_rounds(
      s, r, fold(s, r), [&](rank_t) { return output[r]; }, into_place);
}

template <void (*part_of)(score_builder&, rank_t)>
score of_all(const stage& on) {
  score_builder s{on, "direct_full_mesh", block_count(on.what, on.ranks) == 1 ? on.ranks : 1};
  for (rank_t r = 0; r < on.ranks; ++r) part_of(s, r);
  return s.finish();
}

constexpr offer offered[] = {{collective::all_to_all, of_all<all_to_all>},
                             {collective::all_gather, of_all<all_gather>},
                             {collective::reduce_scatter, of_all<reduce_scatter>},
                             {collective::all_reduce, of_all<all_reduce>}};

}  // namespace

constinit const choreography direct_full_mesh{"direct_full_mesh",
                                              "everybody with everybody, in rounds of C streams, nearest first",
                                              "HCCL DirectFullMesh (spec 4)", offered, refuses_nothing};

}  // namespace troupe::choreographies
