// SPDX-License-Identifier: Apache-2.0
// One address space, one pass: everybody comes in (sync), rank r does share r of the work straight on all ranks' buffers, and
// nobody leaves before all have finished (sync). A block is cut into as many shares as there are ranks, 16 at most: with a share a rank, n
// ranks take n² steps, though the direct port (direct_program.hpp) cuts long shares itself, for whoever has a core. A reduction reads every rank's share r, folds it in rank order
// ((0 ⊕ 1) ⊕ 2) ⊕ … and writes every output: each buffer is read once and written once, and nothing is sent but the syncs.
//
// The steps "copy, reduce, …, reduce, copy, …, copy" around one cell are compiled into a single pass (program.hpp). In place the
// share r of every rank's buffer is touched by rank r only, so rank 0's contribution is a good place to add up the others;
// the copy of a cell to itself only opens the pass.

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace fused_scores {
namespace {
using namespace notation;

std::string refuses(const setup& on) {
  if (on.in_place && (traits_of(on.what).v == v_counts::every_pair || traits_of(on.what).root == root_role::sink))
    return "fused reads inputs while it writes outputs: " + std::string{name(on.what)} + " must be out of place";
  return refuses_far(on);
}

/// Folds everybody's input[share] in rank order into `sum`.
void fold(lane_writer& me, const setup& on, rank_t share, cells sum) {
  me.copy(input.of(0)[share], sum);
  for (rank_t q = 1; q < on.ranks; ++q) me.reduce(input.of(q)[share], sum);
}

void all_reduce(score_builder& s, lane_writer& me, rank_t r) {
  const rank_t home = s.on().in_place ? 0 : r;
  const cells sum = output.of(home)[r];
  fold(me, s.on(), r, sum);
  for (rank_t q = 0; q < s.on().ranks; ++q)
    if (q != home) me.copy(sum, output.of(q)[r]);
}

/// In place the output holds a contribution that is needed in its turn; rank 0's is needed first.
void reduce_scatter(score_builder& s, lane_writer& me, rank_t r) {
  const bool apart = s.on().in_place && r > 0;
  const cells sum = apart ? s.scratch_like(r, output[0]) : output[0];
  fold(me, s.on(), r, sum);
  if (apart) me.copy(sum, output[0]);
}

void all_gather(score_builder& s, lane_writer& me, rank_t r) {
  for (rank_t q = 0; q < s.on().ranks; ++q) me.copy_own(input[0], output.of(q)[r]);
}

void broadcast(score_builder& s, lane_writer& me, rank_t r) {
  for (rank_t q = 0; q < s.on().ranks; ++q) me.copy_own(input.of(s.on().root)[r], output.of(q)[r]);
}

void gather(score_builder& s, lane_writer& me, rank_t r) { me.copy_own(input[0], output.of(s.on().root)[r]); }

void scatter(score_builder& s, lane_writer& me, rank_t r) { me.copy_own(input.of(s.on().root)[r], output[0]); }

void reduce(score_builder& s, lane_writer& me, rank_t r) { fold(me, s.on(), r, output.of(s.on().root)[r]); }

void all_to_all(score_builder& s, lane_writer& me, rank_t r) {
  const int n = s.on().ranks;
  for (rank_t q = 0; q < n; ++q) me.copy(input.of((r + q) % n)[r], output[(r + q) % n]);
}

template <share_writer share_of>
score of_all(const setup& on) {
  return write_shares(on, "fused", share_of);
}

constexpr offer offered[] = {
    {collective::all_reduce, of_all<all_reduce>}, {collective::reduce_scatter, of_all<reduce_scatter>},
    {collective::all_gather, of_all<all_gather>}, {collective::broadcast, of_all<broadcast>},
    {collective::reduce, of_all<reduce>},         {collective::gather, of_all<gather>},
    {collective::scatter, of_all<scatter>},       {collective::all_to_all, of_all<all_to_all>}};

}  // namespace
}  // namespace fused_scores

constinit const choreography fused{
    "fused", "one address space: each rank does its share straight on everybody's buffers, in one pass",
    "direct all-reduce in shared memory; Li et al., HPDC 2013 (NUMA-aware shared-memory collectives)",
    fused_scores::offered, fused_scores::refuses};

}  // namespace troupe::choreographies
