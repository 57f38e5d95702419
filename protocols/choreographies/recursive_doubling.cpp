// SPDX-License-Identifier: Apache-2.0
// Recursive doubling and dissemination (Hensgen, Finkel, Manber 1988; Bruck et al. 1997; Thakur,
// Rabenseifner, Gropp 2005): ⌈log2 n⌉ rounds in which everybody talks, and what a rank knows doubles. Few
// rounds, much traffic: for small messages.

#include <algorithm>
#include <bit>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace recursive_doubling_scores {
namespace {

using namespace notation;

/// log2 rounds of exchanging the sum so far with the neighbour in the next dimension of the hypercube. The
/// lower rank is always the left operand, so every rank computes the very same tree, in rank order.
///
/// A partner reads our sum at its own pace, and no later message to us says that it has. So a sum is never
/// overwritten: every round has its own scratch cell, and the last one writes the output. Cheap, as messages
/// are small.
score all_reduce(const setup& on) {
  const folded_cube cube{on.ranks};
  score_builder s{on, "recursive_doubling", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    const rank_t partner = cube.partner(r);
    if (cube.is_extra(r)) {
      me.to(partner).send(input[0]);
      me.from(partner).recv(output[0]);
      continue;
    }
    cells sum = input[0];
    if (partner >= 0) {
      sum = s.scratch_like(r, input[0]);
      me.from(partner).swapped(partner > r).recv_reduce_copy(input[0], sum);
    } else {
      s.stage_input(r);  // in place, the output must not be written while a partner reads the input
      sum = s.staged(r, sum);
    }
    for (int distance = 1; distance < cube.corners(); distance *= 2) {
      const rank_t peer = cube.rank_of(cube.corner_of(r) ^ distance);
      const cells next = 2 * distance < cube.corners() ? s.scratch_like(r, input[0]) : output[0];
      me.to(peer).send(sum);
      me.from(peer).swapped(peer > r).recv_reduce_copy(sum, next);
      sum = next;
    }
    if (partner >= 0) me.to(partner).send(output[0]);
  }
  return s.finish();
}

/// `count` blocks from `first` on; where they wrap round behind the last rank's they are two pieces.
template <class Piece>
void pieces(int ranks, rank_t first, int count, Piece piece) {
  const rank_t start = first % ranks;
  const int until_end = std::min(count, ranks - start);
  piece(output.blocks(start, until_end));
  if (until_end < count) piece(output.blocks(0, count - until_end));
}

/// A power of two: in each round the pair at `distance` exchanges the aligned `distance` blocks that each
/// has. Otherwise dissemination, as Bruck's: rank r has the blocks from r on, gives them to r − distance and
/// gets as many from r + distance, but straight to their place, so nothing is rotated at the end.
score all_gather(const setup& on) {
  const int n = on.ranks;
  const bool pairs = std::has_single_bit(static_cast<unsigned>(n));
  score_builder s{on, "recursive_doubling", 1};
  for (rank_t r = 0; r < n; ++r) {
    auto me = s.lane(r);
    me.copy_own(input[0], output.block(r));
    for (int distance = 1; distance < n; distance *= 2) {
      const int count = std::min(distance, n - distance);
      const rank_t to = pairs ? r ^ distance : s.before(r, distance), from = pairs ? to : s.after(r, distance);
      const rank_t mine = pairs ? r & -distance : r, theirs = pairs ? mine ^ distance : from;
      pieces(n, mine, count, [&](cells piece) { me.to(to).send(piece); });
      pieces(n, theirs, count, [&](cells piece) { me.from(from).recv(piece); });
    }
  }
  return s.finish();
}

/// Everybody gives the sum of the ranks that it knows, itself the last of them, to the rank at `distance` above, and puts what comes
/// from below to the left of it: the reach doubles until it ends at rank 0 (Hillis and Steele, "Data parallel algorithms",
/// CACM 29(12), 1986). One way only, so any number of ranks will do.
///
/// As in all_reduce, a sum that was sent is not written again: one scratch cell a round, the last one writes the output.
score scan(const setup& on) {
  score_builder s{on, "recursive_doubling", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    if (r == 0) me.copy_own(input[0], output[0]);
    else if (r + 1 < on.ranks) s.stage_input(r);
    cells sum = s.staged(r, input[0]);
    for (int distance = 1; distance < on.ranks; distance *= 2) {
      if (r + distance < on.ranks) me.to(r + distance).send(sum);
      if (distance > r) continue;
      const cells next = 2 * distance <= r ? s.scratch_like(r, input[0]) : output[0];
      me.from(r - distance).recv_reduce_copy(sum, next);
      sum = next;
    }
  }
  return s.finish();
}

/// The same rounds. Arriving sums are put to the left of the output; a rank sends on the output with its own contribution behind
/// it, as long as there is somebody above.
score exscan(const setup& on) {
  score_builder s{on, "recursive_doubling", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    if (r > 0 && r + 1 < on.ranks) s.stage_input(r);
    const cells own = s.staged(r, input[0]);
    cells sum = own;
    for (int distance = 1; distance < on.ranks; distance *= 2) {
      if (r + distance < on.ranks) me.to(r + distance).send(sum);
      if (distance > r) continue;
      me.from(r - distance);
      if (distance == 1) me.recv(output[0]);
      else me.recv_reduce(output[0]);
      if (r + 2 * distance >= on.ranks) continue;
      sum = s.scratch_like(r, input[0]);
      me.copy(output[0], sum);
      me.reduce(own, sum);
    }
  }
  return s.finish();
}

/// Dissemination: after the round with `distance` a rank has heard, directly or not, of the 2 · distance
/// ranks before it.
score barrier(const setup& on) {
  score_builder s{on, "recursive_doubling", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    for (int distance = 1; distance < on.ranks; distance *= 2) {
      me.signal(s.after(r, distance));
      me.await(s.before(r, distance));
    }
  }
  return s.finish();
}

constexpr offer offered[] = {{collective::all_reduce, all_reduce},
                             {collective::all_gather, all_gather},
                             {collective::barrier, barrier},
                             {collective::scan, scan},
                             {collective::exscan, exscan}};

}  // namespace
}  // namespace recursive_doubling_scores

constinit const choreography recursive_doubling{
    "recursive_doubling", "pairs exchange all they have, at doubling distance: fewest rounds; combines in rank order",
    "Hensgen, Finkel, Manber 1988; Bruck et al. 1997; Thakur, Rabenseifner, Gropp 2005",
    recursive_doubling_scores::offered, refuses_nothing};

}  // namespace troupe::choreographies
