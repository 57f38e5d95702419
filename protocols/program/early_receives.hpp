// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which receives may be received before it is their turn. Between hosts a lane that receives from one peer after the other would let each wait
// until those before it have sent everything, whoever has time and whoever has much; so their order would decide how long it takes. A port that
// receives chunks into their places can take those of several peers at once.
//
// A receive is early if it stands behind receives alone that are of other peers, and nobody but its lane touches its place: before those receives
// nothing sends from there, and among them nothing touches it. Then the place is free as soon as the lane has come to the first of them, and
// mailbox_proof.cpp proves that it is. Steps of other ranks touch it only in scores for ranks that share memory, whose chunks are not received into places.

#include <vector>

#include "protocols/score/score.hpp"

namespace troupe {

/// By lane and step; empty: there is none. Cost: a look at every cell of every step. @pre the score is verified
std::vector<std::vector<bool>> early_receives(const score& s, rank_t rank);

}  // namespace troupe
