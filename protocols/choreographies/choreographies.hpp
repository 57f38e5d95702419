// SPDX-License-Identifier: Apache-2.0
#pragma once
// The built-in choreographies, one file each beside this one.

#include "protocols/choreographies/choreography.hpp"

namespace troupe::choreographies {

extern const choreography ring;
extern const choreography double_binary_tree;
extern const choreography binomial;
extern const choreography recursive_doubling;
extern const choreography halving_doubling;
extern const choreography pairwise;
extern const choreography direct_full_mesh;
extern const choreography staged_pairwise;
extern const choreography bruck;
extern const choreography hierarchical;
extern const choreography hierarchical_pipeline;
extern const choreography hierarchical_hd;
extern const choreography hierarchical_nhr;
extern const choreography hierarchical_nb;
extern const choreography csc;
extern const choreography fused;
extern const choreography one_shot;
extern const choreography pat;
extern const choreography nhr;
extern const choreography nb;
extern const choreography chained_double_tree;
extern const choreography nvls;
extern const choreography nvls_tree;
extern const choreography collnet_direct;
extern const choreography collnet_chain;
extern const choreography grouped;
extern const choreography ring_per_nic;
extern const choreography tree_per_nic;
extern const choreography one_copy;
extern const choreography each_a_copy;

}  // namespace troupe::choreographies
