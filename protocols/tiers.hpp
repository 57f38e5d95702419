// SPDX-License-Identifier: Apache-2.0
#pragma once
// A collective of several hosts, with several ranks each, as three collectives of fewer ranks: *collect* brings what a host's ranks give to its
// first rank, *across* is the collective itself among the hosts' first ranks, and *spread* hands what came out to the host's ranks. The first
// and the last go over memory that the host's ranks share, so only one rank a host waits for messages.
//
// Why it is right: ranks follow each other by hosts, hosts are alike, and each stage is a verified collective. That the three are together the
// collective, tests/protocols/tiers_test.cpp proves on symbols. Reductions are associative
// and keep the order of the ranks; blocks of a host lie together. Nobody ends before it has heard of everybody, since *spread* begins
// when the first rank has heard of its host and, across, of all others.

#include <cstddef>
#include <string>

#include "protocols/call.hpp"

namespace troupe {

/// As `tier_stages` has them.
enum class tier : std::uint8_t { collect, across, spread };

/// Why a call has no such stages, as the end of a sentence; empty: it has.
std::string why_no_tiers(const call& whole);

/// @pre the collective is performed in tiers
const tier_stage& stage_of(collective what, tier which);

/// The call that a stage is. @pre why_no_tiers(whole).empty() @param hosts of `of_host` ranks each
call call_of_tier(const call& whole, tier which, int hosts, int of_host);

/// Elements of the first rank's memory between the stages, beside its input and output: what it has collected, and then its host's share.
struct tier_memory {
  std::size_t collected = 0, share = 0;
};
tier_memory memory_of_tiers(const call& whole, int hosts, int of_host);

/// A rank's memory in a call in tiers; what is beside input and output is null but at a first rank.
struct tier_room {
  const void* input = nullptr;
  void* output = nullptr;
  void* collected = nullptr;
  void* share = nullptr;
};
struct tier_buffers {
  const void* input = nullptr;
  void* output = nullptr;
};
/// The buffers that a stage reads and writes at the rank, which has its number among all ranks. Only first ranks are in `across`.
tier_buffers buffers_of_tier(const call& whole, tier which, int of_host, rank_t rank, const tier_room& room);

}  // namespace troupe
