// SPDX-License-Identifier: Apache-2.0
#pragma once
// Proves that what the ports perform is what was verified: the compiled programs of all ranks are performed on symbols, an element at a
// time, and what every output element holds in the end is compared with the tree that the verifier has found for its cell.
//
// The verifier works on a score: on cells, before they have a size. What compile(), compile_slots(), compile_direct() and fit() make of
// it – byte ranges, single passes over several steps, forwarded copies, dropped waits, places in slots, units that anybody may perform –
// is checked here, for the sizes of one call.
//
//   slots    A message is found by its line, size and salt, as slot_performer finds it; what it carries was copied when it was sent. Steps
//            of different lanes that touch the same element are ordered by messages or `after`. Nobody ends before it has heard of
//            everybody, as plans for slots promise.
//   direct   No unit touches an element that another unit, of the same rank's body or of another's, writes. So any order of units, by
//            any threads, gives the result of the one that is performed here. Every rank comes to the same places from what it knows:
//            its own lists of blocks, and those that the others publish.
//   mailbox  Channels, slices and all, also between processes. A chunk names its sender's memory until it is taken, and lies behind those that were
//            sent before it from that lane; so many are under way as there are credits. Every lane comes to its end and every chunk is taken;
//            none has another size than its receiver expects, or a larger one than a slot. Steps of different lanes that touch the same element
//            are ordered by chunks or `after`, and by no credit, since a chunk that is settled on its way needs none; steps of different
//            channels touch nothing in common. Input of a partitioned call is touched after its piece was waited for, and a piece of its output is told
//            to have arrived when it is all written. An early receive (early_receives.hpp) finds its place free when its lane has come to the first of
//            those before it. Members of a fan come in their written order: the verifier has seen that others do as well.

#include <memory>
#include <span>
#include <string>

#include "protocols/program/direct_program.hpp"
#include "protocols/program/program.hpp"
#include "protocols/program/slot_program.hpp"
#include "protocols/score/score.hpp"
#include "protocols/verify/verifier.hpp"

namespace troupe {

struct proof_subject {
  /// The compiled call. With `in_place` set where only the root's call is (root_in_place() says when that is allowed).
  const score& notes;
  const verdict& verified;  ///< of it, without a fault
  call_shape shape;         ///< packed; `counts` are those of all blocks
};

/// The first difference, as a sentence; empty if there is none. @pre programs[r] is rank r's, fitted to the shape, of any content
std::string why_not_the_score(const proof_subject& what, std::span<const slot_program> programs);
/// @pre program of any content
std::string why_not_the_score(const proof_subject& what, const direct_program& program);
/// By mailbox, with so many credits a link. @pre as for slots; credits ≥ 1
std::string why_not_the_score(const proof_subject& what, std::span<const std::shared_ptr<const program>> programs,
                              int credits);

}  // namespace troupe
