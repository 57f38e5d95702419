#pragma once
// From the score as written to the score as performed: every pass takes a score and returns one, so the verifier sees
// exactly what will run.

#include "protocols/score.hpp"

namespace troupe {

/// Replaces every `sync` by dissemination rounds of tokens (⌈log2 n⌉ rounds; Hensgen, Finkel, Manber 1988).
score lower_syncs(score s);

/// Splits every step on several cells into one step a cell, so that cells can be cut (slices, channels, v-blocks).
score one_cell_per_step(const score& s);

/// Carries partial sums unreduced, as their contributions, until all are together, and then folds them in rank order
/// ((0 ⊕ 1) ⊕ 2) ⊕ …: bits no longer depend on the choreography, and ⊕ need not be commutative. A partial sum that is a prefix
/// {0 … k} is folded at once, so a chain in rank order costs nothing more. Steps become one-cell steps.
/// @pre `s` passes the verifier and has no sync.
score fold_in_rank_order(const score& s);

}  // namespace troupe
