// SPDX-License-Identifier: Apache-2.0
#pragma once
// When pieces of the output have arrived: once every lane has performed its last step that writes something of the piece. What no step
// writes, as it lies in the output already (the own block of a call in place), is there when the caller says that it is ready.
//
// The output of k pieces a block has blocks · k pieces; piece p of the b-th block in the rank's output buffer is number b · k + p.

#include "protocols/program/program.hpp"
#include "protocols/score/score.hpp"

namespace troupe {

/// Sets what a program has of arrivals. @pre compiled of this score and rank, without cuts; the score is partitioned and verified
void mark_arrivals(program& code, const score& s, rank_t rank);

}  // namespace troupe
