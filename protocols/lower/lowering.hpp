// SPDX-License-Identifier: Apache-2.0
#pragma once
// From the score as written to the score as performed: every pass takes a score and returns one, so the verifier sees
// exactly what will run.

#include "memory/export.hpp"
#include "protocols/score/score.hpp"

namespace troupe {

/// Replaces every `sync` by dissemination rounds of tokens (⌈log2 n⌉ rounds; Hensgen, Finkel, Manber 1988).
TROUPE_API score lower_syncs(score s);

/// Splits every step on several cells into one step a cell, so that cells can be cut (slices, channels, v-blocks).
TROUPE_API score one_cell_per_step(const score& s);
TROUPE_API score one_cell_per_step(score&& s);  ///< returns the same if no step is on several

/// Carries partial sums unreduced, as their contributions, until all are together, and then folds them in rank order
/// ((0 ⊕ 1) ⊕ 2) ⊕ …: bits no longer depend on the choreography, and ⊕ need not be commutative. A partial sum that is a prefix
/// {0 … k} is folded at once, so a chain in rank order costs nothing more. Steps become one-cell steps.
/// @pre `s` passes the verifier and has no sync. @throws error(unsupported) where switches reduce (score.hpp): they fold nothing
TROUPE_API score fold_in_rank_order(const score& s);

/// Moves sends behind later receives of the same lane where lanes would otherwise wait for each other's credits: the result
/// can be performed with `credits` per (source, destination, lane), also with one. Cutting one message into many needs
/// this: two ranks that exchange one message each cannot send twenty each before they receive. With one credit a ring of
/// fused steps has to be taken apart (nobody can receive and send at once); two leave it as it is, so the passes here pace
/// for two.
///
/// Method: the score is run in rounds with that many credits, every lane keeping its order. When nothing can move any more, sends
/// (or the sending half of a fused step) that lack only a credit are put aside and sent as soon as they can; the lane goes
/// on. The order in which the steps ran is the order of the new lanes. As no lane ever waits for a credit for good, this ends
/// whenever the score ends with unlimited credits; and as lanes never choose, an order that ran once runs always.
/// Only sends move, and only backwards past steps that cannot depend on them: what a send reads may not change before the
/// receiver has it, and every way by which the sender can learn that still goes through the message itself.
/// A score that cannot be run to its end is returned as it is, for the verifier to find out why.
/// Cost: O(rounds · lanes).
/// @pre credits ≥ 1
TROUPE_API score pace_sends(const score& s, int credits = 2);

/// A rooted score for separate buffers as a root performs it whose call is in place: its input and output are one memory, and copies from a
/// place to itself, which the kernels leave undone, wait only. Not for performing: for the verifier.
score root_in_place(score s);

}  // namespace troupe
