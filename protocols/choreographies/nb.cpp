// SPDX-License-Identifier: Apache-2.0
// NB, nonuniform bruck (HCCL: reduce_scatter_nb.cc, all_gather_nb.cc, scatter_nb.cc, all_reduce_nb.cc, broadcast_nb.cc of the
// published CANN sources). ⌈log2 n⌉ rounds for any number of ranks, n; everybody always gives to the rank 1, 2, 4, … above and takes
// from the one below.
//
//   reduce_scatter   ⌈log2 n⌉ rounds; in the round of distance D the blocks of the rank D above and of every 2·D-th one above that, each as a
//                    message; n−1 blocks in all
//   all_gather       ⌈log2 n⌉ rounds, near ones first: what a rank has, the blocks of the last D ranks up to its own, doubles (Bruck). They
//                    are neighbours: one message a round, or two where they wrap round. For ranks that are no power of two this is
//                    the mirror image of recursive_doubling's
//   all_reduce       one after the other on n slices: 2·⌈log2 n⌉ rounds, 2·(n−1)/n of the data
//   broadcast        a scatter in the reduce_scatter's rounds, then the all_gather; the root receives its data back, as it does at HCCL
//
// So unlike in nhr half of the data crosses the longest distance in the all_gather, and slices stay in the order of ranks.

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"
#include "protocols/choreographies/strided.hpp"

namespace troupe::choreographies {

constinit const choreography nb{
    "nb", "nonuniform bruck: log2 rounds for any number of ranks, always to a rank above, gathering near ones first",
    "HCCL (CANN), NB; Bruck et al. 1997", strided_scores<nb_kind>::offered, refuses_nothing};

}  // namespace troupe::choreographies
