// SPDX-License-Identifier: Apache-2.0
// Halving and doubling (Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; spec 3's
// "vector halving + distance doubling + binomial"). Pairs exchange halves of what they still work on, then
// quarters, eighths …: log2 rounds and about one block of traffic for a reduce-scatter; the way back is an
// all-gather, or a gather to the root.
//
// A half that was sent away is written again only by what comes back from the same peer, which has read it by
// then. So sums need one block of memory (the output, where there is one), also in place.
//
// all_reduce and reduce double the distance, so sums are of neighbouring ranks: in rank order, the same tree
// everywhere. Which part a rank then holds (the one of its bit-reversed number) does not matter to them.
// reduce_scatter has to end with the own block, so it halves the distance, which keeps blocks together but
// does not combine in rank order.

#include <vector>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace halving_doubling_scores {
namespace {

using namespace notation;

/// `count` cells of a buffer from `first` on, given that cell 0 of the block is `base`.
cells within(cells base, int first, int count) { return {base.buffer, base.owner, base.first + first, count, false}; }

/// The parts [first, first + count) of the block that a rank still works on.
struct range {
  int first, count;
  range half(bool upper) const { return {first + (upper ? count / 2 : 0), count / 2}; }
  cells of(cells block) const { return within(block, first, count); }
};

/// Reduce-scatter of one block of `corners` parts into `sum`, which is the same memory for all rounds.
/// Returns, for the way back, the range before each round, and at last the one part that is complete.
std::vector<range> halve(lane_writer& me, const folded_cube& cube, rank_t r, cells sum) {
  cells current = input[0];
  if (const rank_t partner = cube.partner(r); partner >= 0) {
    me.from(partner).swapped(partner > r).recv_reduce_copy(input.all(), within(sum, 0, cube.corners()));
    current = sum;
  }
  const int corner = cube.corner_of(r);
  std::vector<range> trail{{0, cube.corners()}};
  for (int distance = 1; distance < cube.corners(); distance *= 2) {
    const rank_t peer = cube.rank_of(corner ^ distance);
    const bool upper = (corner & distance) != 0;
    const range mine = trail.back().half(upper), theirs = trail.back().half(!upper);
    me.to(peer).send(theirs.of(current));
    me.from(peer).swapped(peer > r).recv_reduce_copy(mine.of(current), mine.of(sum));
    current = sum;
    trail.push_back(mine);
  }
  return trail;
}

score all_reduce(const setup& on) {
  const folded_cube cube{on.ranks};
  score_builder s{on, "halving_doubling", cube.corners()};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    const rank_t partner = cube.partner(r);
    if (cube.is_extra(r)) {
      me.to(partner).send(input.all());
      me.from(partner).recv(output.all());
      continue;
    }
    auto trail = halve(me, cube, r, output[0]);
    for (int distance = cube.corners() / 2; distance > 0; distance /= 2) {
      const int corner = cube.corner_of(r);
      const rank_t peer = cube.rank_of(corner ^ distance);
      me.to(peer).send(trail.back().of(output[0]));
      trail.pop_back();
      me.from(peer).recv(trail.back().half((corner & distance) == 0).of(output[0]));
    }
    if (partner >= 0) me.to(partner).send(output.all());
  }
  return s.finish();
}

/// As all_reduce, but on the way back only the one of a pair that is nearer to the root receives: a binomial
/// gather.
score reduce(const setup& on) {
  const folded_cube cube{on.ranks, on.root};
  score_builder s{on, "halving_doubling", cube.corners()};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    if (cube.is_extra(r)) {
      me.to(cube.partner(r)).send(input.all());
      continue;
    }
    const cells sum = r == on.root ? output[0] : s.scratch_like(r, input.all());
    auto trail = halve(me, cube, r, sum);
    const int corner = cube.corner_of(r), away = corner ^ cube.corner_of(on.root);
    for (int distance = cube.corners() / 2; distance > 0; distance /= 2) {
      const rank_t peer = cube.rank_of(corner ^ distance);
      if ((away & distance) != 0) {
        me.to(peer).send(trail.back().of(sum));
        break;
      }
      trail.pop_back();
      me.from(peer).recv(trail.back().half((corner & distance) == 0).of(sum));
    }
  }
  return s.finish();
}

/// The blocks of all ranks that the corners [first, first + count) stand for.
range blocks_of(const folded_cube& cube, int first, int count) {
  const rank_t begin = cube.first_rank(first);
  return {begin, cube.first_rank(first + count) - begin};
}

/// Distance halving: a rank works on the blocks of an ever smaller aligned sub-cube that it lies in. The
/// caller's input is not written, not even in place, but for the own block: sums of several blocks are in
/// scratch.
score reduce_scatter(const setup& on) {
  const folded_cube cube{on.ranks};
  score_builder s{on, "halving_doubling", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    const rank_t partner = cube.partner(r);
    if (cube.is_extra(r)) {
      me.to(partner).send(input.all());
      me.from(partner).recv(output[0]);
      continue;
    }
    const int corner = cube.corner_of(r), half = cube.corners() / 2;
    const range all{0, on.ranks}, kept = partner >= 0 ? all : blocks_of(cube, corner & -half, half);
    const bool keeps_sums = kept.count > 1;
    const cells sum = keeps_sums ? within(s.scratch_like(r, kept.of(input[0])), -kept.first, 1) : output[0];
    cells current = input[0];
    if (partner >= 0) {
      me.from(partner).swapped(partner > r).recv_reduce_copy(input.all(), all.of(sum));
      current = sum;
    }
    for (int distance = half; distance > 0; distance /= 2) {
      const rank_t peer = cube.rank_of(corner ^ distance);
      const range mine = blocks_of(cube, corner & -distance, distance);
      me.to(peer).send(blocks_of(cube, (corner ^ distance) & -distance, distance).of(current));
      me.from(peer).swapped(peer > r).recv_reduce_copy(mine.of(current), mine.count > 1 ? mine.of(sum) : output[0]);
      current = sum;
    }
    if (partner >= 0) {
      me.to(partner).send(within(sum, partner, 1));
      me.copy_own(within(sum, r, 1), output[0]);
    }
  }
  return s.finish();
}

/// The way back alone, with doubling distance: pairs exchange all the blocks they have.
score all_gather(const setup& on) {
  const folded_cube cube{on.ranks};
  score_builder s{on, "halving_doubling", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    const rank_t partner = cube.partner(r);
    if (cube.is_extra(r)) {
      me.to(partner).send(input[0]);
      me.from(partner).recv(output.all());
      continue;
    }
    me.copy_own(input[0], output.block(r));
    if (partner >= 0) me.from(partner).recv(output.block(partner));
    const int corner = cube.corner_of(r);
    for (int distance = 1; distance < cube.corners(); distance *= 2) {
      const rank_t peer = cube.rank_of(corner ^ distance);
      me.to(peer).send(blocks_of(cube, corner & -distance, distance).of(output[0]));
      me.from(peer).recv(blocks_of(cube, (corner ^ distance) & -distance, distance).of(output[0]));
    }
    if (partner >= 0) me.to(partner).send(output.all());
  }
  return s.finish();
}

constexpr offer offered[] = {{collective::all_reduce, all_reduce},
                             {collective::reduce_scatter, reduce_scatter},
                             {collective::all_gather, all_gather},
                             {collective::reduce, reduce}};

}  // namespace
}  // namespace halving_doubling_scores

constinit const choreography halving_doubling{
    "halving_doubling", "pairs exchange halves, then gather them: logarithmic latency, about the ring's bandwidth",
    "Rabenseifner 2004", halving_doubling_scores::offered, refuses_nothing};

}  // namespace troupe::choreographies
