// SPDX-License-Identifier: Apache-2.0
#pragma once
// Makes nobody's part of a score end before it has heard of everybody's beginning, directly or through others.
//
// Nothing but the messages tells a rank what the others call: each message carries its sender's fingerprint, a rank
// that meets another one stops and sends nothing more, and so a rank that has performed a part that hears of everybody knows that all
// ranks call the same. Data make all_reduce or a barrier so by themselves. A leaf of a broadcast hears of its parent, and the root
// of nobody; with_agreement() adds tokens (empty messages) for the rest.
//
//   direct    a token from everybody to everybody who gets no message of it and does not hear of it with the data. One message of
//             latency, beside the data: a rank sends its tokens before it first waits, and looks for the others' at its end. Up to
//             n (n − 1) messages.
//   mirrored  the data's way, backwards: up the tree first and then down with the data (broadcast, scatter), or down once the data
//             have come up (reduce, gather, a chain of prefixes). As many tokens as data messages, and twice the latency.
//   rounds    dissemination (Hensgen, Finkel, Manber 1988) in a lane of its own beside the data: n ⌈log2 n⌉ tokens, ⌈log2 n⌉ messages
//             of latency.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "protocols/score/score.hpp"

namespace troupe {

enum class agreement_form : std::uint8_t { none, direct, mirrored, rounds };
inline constexpr std::array agreement_forms = {agreement_form::direct, agreement_form::mirrored,
                                               agreement_form::rounds};
std::string_view name(agreement_form form);

/// Whether every part ends after the beginning of every other, as the score's messages and `after`s order them under every
/// interleaving and with any credits. False for a score that gets stuck.
/// Cost: O(steps · ranks / 64) time and memory. @pre check_references passes, no sync
bool everybody_hears_of_everybody(const score& s);

/// `s` with tokens in that form; what it computes and its reduction trees stay the same. Nothing if the form does not fit it:
/// `mirrored` needs data that go to or from one rank in one lane.
/// @pre as above, and `s` passes the verifier
std::optional<score> with_agreement(const score& s, agreement_form form);

}  // namespace troupe
