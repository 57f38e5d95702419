// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether descriptors are what a NIC can perform at all, whatever they are for: every flag says what the descriptor does, every name is one, and every
// operand is there. The proof (offload_proof.hpp) begins with it, and so does every NIC that is given a sequence, since one that serves several
// programs must not be ended by the mistake of one.
//
// A flag that follows from the rest of a descriptor has to be as that demands, so a contradiction is found: all ten but one. ReduceFlag of a local step
// is the only thing that tells a sum from a copy, so what is wrong there only the proof sees.

#include <cstddef>
#include <span>
#include <string>

#include "protocols/offload/descriptor.hpp"

namespace troupe::offload {

/// Why no NIC can perform the sequence, as a sentence; empty if one can. Cost: a pass over its descriptors.
/// @param packet_elements with which it was compiled: of a packet of the NIC's
std::string why_not_well_formed(const rank_program& who, const sequence& s, std::size_t packet_elements);

/// The same of all that a rank posts: it has a sequence, and no two have one port.
std::string why_not_well_formed(const rank_program& who, std::size_t packet_elements);

/// Why those are not the ranks behind one NIC, who have it to themselves: they are on one node, no two have a port in common, and their packets go to, and
/// are waited for from, ports that one of them has. @pre each is well-formed
std::string why_not_among_themselves(std::span<const rank_program> all);

}  // namespace troupe::offload
