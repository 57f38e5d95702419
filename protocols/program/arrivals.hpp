// SPDX-License-Identifier: Apache-2.0
#pragma once
// When pieces of the output have arrived: once every lane has performed its last step that writes something of the piece, and, of what other ranks write, its last
// step of all, which hears of them (mailbox_proof.cpp proves that it does). What no step writes, as it lies in the output already (the own block of a call in place), is there when the caller says that it is ready.
//
// The output of k pieces a block has blocks · k pieces; piece p of the b-th block in the rank's output buffer is number b · k + p.

#include <vector>

#include "protocols/program/program.hpp"
#include "protocols/score/score.hpp"

namespace troupe {

/// The lanes' last steps that bring something of a piece, or that hear of those who do, each with its position in its lane, by lane and position.
/// @pre the score is partitioned and verified
std::vector<arrival> arrivals_of(const score& s, rank_t rank);

/// Sets what a program has of arrivals. @pre compiled of this score and rank, without cuts; the score is partitioned and verified
void mark_arrivals(program& code, const score& s, rank_t rank);

}  // namespace troupe
