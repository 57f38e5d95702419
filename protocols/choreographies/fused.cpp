// One address space, one pass: everybody comes in (sync), rank r does share r of the work straight on all ranks' buffers, and
// nobody leaves before all have finished (sync). A reduction reads every rank's share r, folds it in rank order
// ((0 ⊕ 1) ⊕ 2) ⊕ … and writes every output: each buffer is read once and written once, and nothing is sent but the syncs.
//
// The steps "copy, reduce, …, reduce, copy, …, copy" around one cell are compiled into a single pass (program.hpp). In place the
// share r of every rank's buffer is touched by rank r only, so rank 0's contribution is a good place to add up the others;
// the copy of a cell to itself only opens the pass.

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace {
using namespace notation;

constexpr collective offered[] = {collective::all_reduce, collective::reduce_scatter, collective::all_gather,
                                  collective::broadcast,  collective::reduce,         collective::all_to_all};

std::string refuses(const stage& on) {
  if ((on.what == collective::all_to_all || on.what == collective::reduce) && on.in_place)
    return "fused reads inputs while it writes outputs: " + std::string{name(on.what)} + " must be out of place";
  if (on.uniform) return {};
  return "fused writes into other ranks' buffers, where blocks of different sizes have places that only their owner "
         "knows";
}

/// Folds everybody's input[share] in rank order into `sum`.
void fold(lane_writer& me, const stage& on, rank_t share, cells sum) {
  me.copy(input.of(0)[share], sum);
  for (rank_t q = 1; q < on.ranks; ++q) me.reduce(input.of(q)[share], sum);
}

void all_reduce(lane_writer& me, const stage& on, rank_t r) {
  const rank_t home = on.in_place ? 0 : r;
  const cells sum = output.of(home)[r];
  fold(me, on, r, sum);
  for (rank_t q = 0; q < on.ranks; ++q)
    if (q != home) me.copy(sum, output.of(q)[r]);
}

/// In place the output holds a contribution that is needed in its turn; rank 0's is needed first.
void reduce_scatter(score_builder& s, lane_writer& me, rank_t r) {
  const bool apart = s.on().in_place && r > 0;
  const cells sum = apart ? s.scratch_like(r, output[0]) : output[0];
  fold(me, s.on(), r, sum);
  if (apart) me.copy(sum, output[0]);
}

score write(const stage& on) {
  if (on.ranks == 1) return alone(on, "fused");
  const bool one_block =
      on.what == collective::all_reduce || on.what == collective::broadcast || on.what == collective::reduce;
  score_builder s{on, "fused", one_block ? on.ranks : 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    me.sync();
    switch (on.what) {
      case collective::reduce_scatter: reduce_scatter(s, me, r); break;
      case collective::all_gather:
        for (rank_t q = 0; q < on.ranks; ++q) me.copy_own(input[0], output.of(q)[r]);
        break;
      case collective::broadcast:
        for (rank_t q = 0; q < on.ranks; ++q) me.copy_own(input.of(on.root)[r], output.of(q)[r]);
        break;
      case collective::reduce: fold(me, on, r, output.of(on.root)[r]); break;
      case collective::all_to_all:
        for (rank_t q = 0; q < on.ranks; ++q) me.copy(input.of((r + q) % on.ranks)[r], output[(r + q) % on.ranks]);
        break;
      default: all_reduce(me, on, r);
    }
    me.sync();
  }
  return s.finish();
}
}  // namespace

constinit const choreography fused{
    "fused",
    "one address space: each rank does its share straight on everybody's buffers, in one pass",
    "direct all-reduce in shared memory; Li et al., HPDC 2013 (NUMA-aware shared-memory collectives)",
    offered,
    refuses,
    write};

}  // namespace troupe::choreographies
