// SPDX-License-Identifier: Apache-2.0
// Bruck's all-to-all (Bruck, Ho, Kipnis, Upfal, Weathersby 1997): ⌈log2 n⌉ rounds of one message for any n, at the price of
// sending every block up to ⌈log2 n⌉ times. For small blocks.
//
// Slot j of rank r begins with the block for the rank j ahead. In round b every slot whose number has bit b moves 2^b ranks
// ahead; in the end it has moved j ranks, so slot j holds the block from the rank j behind. The first rotation only gives
// names (slot j is input[r + j]); the copies that remain pack a round's slots into one message, and the last rotation.

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace bruck_scores {
namespace {
using namespace notation;

std::string refuses(const setup& on) {
  if (on.uniform) return {};
  return "bruck packs blocks of different ranks into one message and so needs blocks of one size; use pairwise, "
         "direct_full_mesh or staged_pairwise for blocks of different sizes";
}

/// `count` new scratch cells side by side; all blocks have one size, so any block is the model.
std::int32_t scratch_row(score_builder& s, rank_t r, int count) {
  const std::int32_t first = s.scratch_block(r, 0).first;
  for (int i = 1; i < count; ++i) s.scratch_block(r, 0);
  return first;
}

score write(const setup& on) {
  const int n = on.ranks;
  score_builder s{on, "bruck", 1};
  for (rank_t r = 0; r < n; ++r) {
    auto me = s.lane(r);
    std::vector<cells> slot;  // where slot j lies now
    for (int j = 0; j < n; ++j) slot.push_back(input[r + j]);

    for (int reach = 1; reach < n; reach *= 2) {
      std::vector<std::size_t> moving;
      for (int j = 0; j < n; ++j)
        if ((j & reach) != 0) moving.push_back(static_cast<std::size_t>(j));
      const int count = static_cast<int>(moving.size());
      // New cells every round: the peer may still read the last round's.
      const std::int32_t packed = scratch_row(s, r, count), landing = scratch_row(s, r, count);
      for (int i = 0; i < count; ++i) me.copy(slot[moving[static_cast<std::size_t>(i)]], scratch[packed + i]);
      me.to(s.after(r, reach)).send(scratch.cells(packed, count));
      me.from(s.before(r, reach)).recv(scratch.cells(landing, count));
      for (int i = 0; i < count; ++i) slot[moving[static_cast<std::size_t>(i)]] = scratch[landing + i];
    }
    // Every slot but 0 has left the input, so in place nothing is overwritten that is still needed.
    me.copy_own(slot[0], output[r]);
    for (int j = 1; j < n; ++j) me.copy(slot[static_cast<std::size_t>(j)], output[r - j]);
  }
  return s.finish();
}

constexpr offer offered[] = {{collective::all_to_all, write}};

}  // namespace
}  // namespace bruck_scores

constinit const choreography bruck{"bruck", "all-to-all in ⌈log2 n⌉ rounds, for small blocks of one size",
                                   "Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 8(11), 1997", bruck_scores::offered,
                                   bruck_scores::refuses};

}  // namespace troupe::choreographies
