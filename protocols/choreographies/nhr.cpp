// SPDX-License-Identifier: Apache-2.0
// NHR, nonuniform hierarchical ring (HCCL: reduce_scatter_nhr.cc, all_gather_nhr.cc, scatter_nhr.cc, all_reduce_nhr.cc,
// broadcast_nhr.cc, nonuniform_hierarchical_ring_base.cc of the published CANN sources). ⌈log2 n⌉ rounds for any number of ranks, n,
// in which everybody gives to one neighbour and takes from the other, at a distance of 1, 2, 4, …: half of the data to the next rank,
// a quarter to the one after it, and a single slice to the farthest. So where ranks that are far from each other by number
// are joined by slow links, little crosses them.
//
//   reduce_scatter   ⌈log2 n⌉ rounds, near ones first; a rank sends n−1 blocks, each as a message
//   all_gather       the same backwards, far ones first; every block straight to its place
//   all_reduce       both, 2·⌈log2 n⌉ rounds and 2·(n−1)/n of the data. Which rank reduces which slice is free here, and HCCL chooses it
//                    so that what a round gives lies side by side (nhr_slice_map): for a power of two one message a round
//   broadcast        a scatter and the all_gather, with the same map; the root receives its data back, as it does at HCCL
//
// Two differences: sums are added up in the output, where HCCL overwrites its input buffer; and where n is no power of two, HCCL's
// scatter also sends slices that the sender does not have, over which the all_gather writes: here they are left out.

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"
#include "protocols/choreographies/strided.hpp"

namespace troupe::choreographies {

constinit const choreography nhr{
    "nhr", "nonuniform hierarchical ring: log2 rounds for any number of ranks, half the data to the next, little far",
    "HCCL (CANN), NHR", strided_scores<nhr_kind>::offered, refuses_nothing};

}  // namespace troupe::choreographies
