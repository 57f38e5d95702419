// SPDX-License-Identifier: Apache-2.0
// PAT, parallel aggregated trees (NCCL since 2.23: PatAGAlgorithm and PatRSAlgorithm of collectives.h, with all steps of a
// distance aggregated, aggFactor = n/2, as NCCL does for blocks that fit its buffer together). ⌈log2 n⌉ rounds and as many messages a rank, for
// any number of ranks, n; the blocks of all ranks travel along binomial trees at once, far ones first:
//
//   all_gather       rank r gives to r − D, for D = 2ᵏ … 2, 1, all blocks r + m·2D that it has as one message: a single block over the
//                    longest distance, half of all over the shortest, as Bruck's turned round. n−1 blocks in all
//   reduce_scatter   the same backwards: near ones first, to r + D, and what comes in is added
//
// The blocks of a message are no neighbours in the buffers. As in NCCL's slots they lie side by side in scratch, in the order in which they
// come, from where they are copied to their place (reduce_scatter: from their place before): that is what makes a message of many blocks, and
// what it costs: n blocks copied. Where n is no power of two a message may be two (nhr has the same trees with every block for itself and no copy).

#include <bit>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace pat_scores {
namespace {

using namespace notation;

/// How the blocks of ranks 0, 1, … ahead of a rank lie in its scratch, and what the rounds of an all_gather give and append.
struct tree_rounds {
  struct round {
    int distance;
    std::vector<run> given;  ///< scratch cells; no more than two runs
    int landing;             ///< the first of as many new cells
  };
  std::vector<int> ahead;  ///< of each scratch cell
  std::vector<round> rounds;

  explicit tree_rounds(int ranks) : ahead{0} {
    for (int distance = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks))) / 2; distance > 0;
         distance /= 2) {
      std::vector<rank_t> given;
      for (std::size_t i = 0; i < ahead.size(); ++i)
        if (ahead[i] + distance < ranks) given.push_back(static_cast<rank_t>(i));
      rounds.push_back({distance, runs_of(given), static_cast<int>(ahead.size())});
      for (const rank_t i : given) ahead.push_back(ahead[static_cast<std::size_t>(i)] + distance);
    }
  }
};

/// A cell for each block in the order of `ahead`; returns the first.
std::int32_t scratch_row(score_builder& s, rank_t r, const tree_rounds& of, int ranks) {
  const std::int32_t first = s.scratch_block(r, r).first;
  for (std::size_t i = 1; i < of.ahead.size(); ++i) s.scratch_block(r, (r + of.ahead[i]) % ranks);
  return first;
}

score all_gather(const setup& on) {
  const tree_rounds tree{on.ranks};
  score_builder s{on, "pat", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    const std::int32_t row = scratch_row(s, r, tree, on.ranks);
    me.copy(input[0], scratch[row]);
    int placed = 1;  // the own block needs no message
    const auto place_until = [&](int end) {
      for (; placed < end; ++placed)
        me.copy(scratch[row + placed], output.block((r + tree.ahead[static_cast<std::size_t>(placed)]) % on.ranks));
    };
    for (const auto& [distance, given, landing] : tree.rounds) {
      std::vector<message> out, in;
      for (const run& each : given) {
        out.push_back({s.before(r, distance), scratch.cells(row + each.first, each.count)});
        in.push_back({s.after(r, distance), scratch.cells(row + landing + each.offset, each.count)});
      }
      interleave(me, out, in);
      place_until(landing);  // what came before, while the next is under way
    }
    place_until(on.ranks);
    me.copy_own(input[0], output.block(r));
  }
  return s.finish();
}

score reduce_scatter(const setup& on) {
  const tree_rounds tree{on.ranks};
  score_builder s{on, "pat", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    const std::int32_t row = scratch_row(s, r, tree, on.ranks);
    int filled = on.ranks;
    const auto fill_from = [&](int begin) {
      for (; filled > begin; --filled)
        me.copy(input.block(r + tree.ahead[static_cast<std::size_t>(filled - 1)]), scratch[row + filled - 1]);
    };
    for (auto round = tree.rounds.rbegin(); round != tree.rounds.rend(); ++round) {
      fill_from(round->landing);
      for (const run& each : round->given) {
        me.to(s.after(r, round->distance)).send(scratch.cells(row + round->landing + each.offset, each.count));
        if (each.offset == 0) fill_from(0);
        me.from(s.before(r, round->distance));
        if (round->landing == 1) me.recv_reduce_copy(scratch[row], output[0]);
        else me.recv_reduce(scratch.cells(row + each.first, each.count));
      }
    }
  }
  return s.finish();
}

constexpr offer offered[] = {{collective::all_gather, all_gather}, {collective::reduce_scatter, reduce_scatter}};

}  // namespace
}  // namespace pat_scores

constinit const choreography pat{
    "pat", "parallel aggregated trees: log2 messages for any number of ranks, one block far, many near",
    "NCCL 2.23 (PAT)", pat_scores::offered, refuses_nothing};

}  // namespace troupe::choreographies
