// SPDX-License-Identifier: Apache-2.0
#pragma once
// The totals of a score, counted without writing it: a step costs some nanoseconds and no memory. For callers that want to know whether
// a choreography is worth writing for so many ranks.

#include <cstdint>
#include <vector>

#include "memory/export.hpp"
#include "protocols/score/score.hpp"

namespace troupe {

struct setup;
struct choreography;

/// Syncs count as the tokens they are lowered to. Passes that change scores only add steps and messages, and leave the other numbers as
/// they are; so whatever is made of the score does no less than this.
struct score_tally {
  struct of_rank {
    std::int64_t steps = 0;  ///< that receive, send, wait or are for the DMA engine
    std::int64_t locals =
        0;  ///< copies and reductions, which may become one pass with their neighbours (program.hpp: fold)
    std::int64_t messages = 0;  ///< sent
    std::int64_t copied = 0;    ///< cells, by `steps` …
    std::int64_t reduced = 0;
    std::int64_t local_copied = 0;  ///< … and by `locals`, without copies from a place to itself
    std::int64_t local_reduced = 0;
    std::int64_t sent = 0;  ///< cells in messages
    std::int64_t received = 0;
    bool operator==(const of_rank&) const = default;
  };
  /// Ranks that do as much as each other.
  struct kind {
    of_rank each;
    int ranks = 0;
  };
  std::vector<kind> kinds;
  std::int64_t lanes = 0;  ///< of all ranks
  std::int64_t cells = 0;  ///< of all buffers of all ranks, and of L2
  std::int64_t hops = 0;   ///< messages at least that follow one another
  int parts = 1;
  bool touches_other_ranks = false;  ///< reads or writes their buffers

  std::int64_t steps() const {
    std::int64_t total = 0;
    for (const kind& k : kinds) total += k.ranks * (k.each.steps + k.each.locals);
    return total;
  }
};

/// @pre the choreography is built in (others may do more with the builder than name steps) and does not refuse
TROUPE_API score_tally tally_of(const choreography& which, const setup& on);

}  // namespace troupe
