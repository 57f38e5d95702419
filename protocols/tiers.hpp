// SPDX-License-Identifier: Apache-2.0
#pragma once
// A collective of several hosts, with several ranks each, as three collectives of fewer ranks: *collect* brings what a host's ranks give to its
// first rank, *across* is the collective itself among the hosts' first ranks, and *spread* hands what came out to the host's ranks. The first
// and the last go over memory that the host's ranks share, so only one rank a host waits for messages.
//
// Why it is right: ranks follow each other by hosts, hosts are alike, and each stage is a verified collective. Reductions are associative
// and keep the order of the ranks; blocks of a host lie together. Nobody ends before it has heard of everybody, since *spread* begins
// when the first rank has heard of its host and, across, of all others.

#include <cstddef>
#include <string>

#include "protocols/call.hpp"

namespace troupe {

enum class tier : std::uint8_t { collect, across, spread };

/// Why a call has no such stages, as the end of a sentence; empty: it has.
std::string why_no_tiers(const call& whole);

/// The call that a stage is. @pre why_no_tiers(whole).empty() @param hosts of `of_host` ranks each
call call_of_tier(const call& whole, tier stage, int hosts, int of_host);

/// Elements of the first rank's memory between the stages, beside its input and output: what it has collected, and then its host's share.
struct tier_memory {
  std::size_t collected = 0, share = 0;
};
tier_memory memory_of_tiers(const call& whole, int hosts, int of_host);

}  // namespace troupe
