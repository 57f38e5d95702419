// SPDX-License-Identifier: Apache-2.0
#pragma once
// From a score to descriptors: what a rank posts so that NICs perform its part.
//
// A lane becomes the sequence of a port, a step a descriptor. Two things differ:
//   - Neighbouring steps that combine messages of several ranks into one sum, and the send of that sum, are one descriptor: a tree's node
//     is one trigger that gathers its children. Not where ranks would wait for each other then: such a descriptor takes nothing before it may send.
//   - Steps wait for nothing but packets, so a step that comes after one of another lane waits for a token of that lane's port.
// A result that is only passed on (recv_reduce_send) has a place in the rank's scratch, one for each message that the channel may have
// under way. So sending never stops a sequence for longer than the score lets it wait for a credit, whatever the size.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "protocols/offload/descriptor.hpp"
#include "protocols/program/cells.hpp"
#include "protocols/score/score.hpp"

namespace troupe::offload {

struct compile_options {
  int credits = 8;  ///< messages under way in a channel, 1 … 31; with which the score was verified
  /// By rank; empty: rank r has node r to itself, with ports from 0.
  std::span<const endpoint> places{};
  std::size_t packet_elements = 1;  ///< longer messages are several packets, which say where they belong
};

/// Places of ranks that share node 0 and its ports.
std::vector<endpoint> behind_one_nic(const score& s);

/// Why no NIC can perform the score, as a sentence; empty if one can.
/// @pre the score is lowered, and every reference in it is good (check_references)
std::string why_not_offloaded(const score& s, const compile_options& how);

/// All ranks' programs for the sizes of a call. Throws error(unsupported) with why_not_offloaded(), error(size_overflow).
/// @pre as above, and the score is verified with that many credits; steps have one cell each (one_cell_per_step) unless all blocks are equal
std::vector<rank_program> compile(const score& s, const call_shape& shape, const compile_options& how);

}  // namespace troupe::offload
