// SPDX-License-Identifier: Apache-2.0
#pragma once
// Makes a partitioned score of one for whole blocks: an operation that begins before its input is complete, and whose output is complete piece
// by piece (MPI 4 has this between two ranks, chapter 4: Pready, Parrived).
//
// Every block becomes `pieces` pieces, and every lane as many copies, of which copy p does with piece p what the lane did with the
// block. Lanes run beside each other, so pieces travel in whatever order they get ready; within a copy the order is that of the
// choreography, and so are the reduction trees. A copy waits for the announcement of its piece before it first touches input of its rank.
// Lane l of copy p is lane p · (lanes of a copy) + l; part q of a block is, of piece p, part p · parts + q.

#include <string>

#include "protocols/score/score.hpp"

namespace troupe {

/// Why a score cannot be partitioned, as the end of a sentence; empty if it can. A rank that touches another's input or output before it has heard of
/// anybody in that lane knows of no piece that it is ready there. Whether who it has heard of is the right one, verify() shows. Cells of L2 have been
/// written by a step, after which its copy of the lane syncs.
std::string why_not_partitioned(const score& s);

/// Where ranks touch each other's buffers every rank waits for its piece before all else, so that what is heard from it says that its piece is ready.
/// Steps become one-cell steps if there are several pieces, since neighbours in a buffer may be of different blocks, and pieces of those are none.
/// A sync, lowered or not, is one between the lanes of each copy: what copy p reads of L2 after it is what copies p of the other ranks have
/// written before it. verify() shows that nothing is read too early; of a score whose syncs are kept, verify(lower_syncs(…)).
/// @pre pieces ≥ 1; check_references passes, not partitioned, and why_not_partitioned() is empty
score partition(const score& s, int pieces);

}  // namespace troupe
