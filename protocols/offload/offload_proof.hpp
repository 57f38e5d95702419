// SPDX-License-Identifier: Apache-2.0
#pragma once
// Proves that all ranks' descriptors perform their score: they are run on symbols, an element at a time, and what every output element
// holds in the end is compared with the tree that the verifier has found for its cell (as protocols/perform/program_proof.hpp does it for
// boards).
//
// Every descriptor is well-formed (descriptor_form.hpp). It is performed packet by packet, and what it sends on goes on so.
//
// The run knows nothing of the score but that. A packet is found by its key: node, ports, SeqID; a sequence waits where its next
// descriptor lacks a message, or a credit for the one that it sends. Sequences never choose, so one order of events decides for all. Three
// things are checked for every order, with a vector clock over all sequences:
//   - No memory is written that a message under way refers to, or that another sequence touches at the same time.
//   - Two messages that are under way at once never have the same key.
//   - An end fires only after everybody has taken what its sequence sent; of a barrier, after everybody has begun.

#include <span>
#include <string>

#include "protocols/offload/descriptor.hpp"
#include "protocols/perform/program_proof.hpp"

namespace troupe::offload {

/// The first difference, as a sentence; empty if there is none. @pre programs[r] is rank r's, compiled for the shape, of any content
/// @param packet_elements with which they were compiled
std::string why_not_the_score(const proof_subject& what, std::span<const rank_program> programs,
                              std::size_t packet_elements = 1);
/// The same of the descriptors of all ranks behind one NIC, compiled for blocks of a few elements, some with none where blocks differ in size.
/// @pre why_not_offloaded() is empty with that many credits @param as the score, with `in_place` set where only the root's call is
std::string why_not_performed(const score& notes, const score& as, const verdict& verified, int credits);

}  // namespace troupe::offload
