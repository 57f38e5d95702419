// SPDX-License-Identifier: Apache-2.0
#pragma once
// How NCCL cuts a call (spec 5, "Primitives and loops"), as pure functions: a channel goes through its part in loops, a
// loop is some chunks, which fit the slots of the channel's buffer, and a chunk is one or two slices. Rules and constants
// are those of the published sources: of 2.19.4 (enqueue.cc: getLoopInfo, computeColl, calcP2pChunkSize; init.cc:
// computeBuffSizes) and of 2.23.4 (scheduleCollTasksToPlan, calcCollChunking), which gives each channel a part of its own
// first, and then cuts that.

#include <cstdint>
#include <optional>
#include <string>

#include "engine/planning/nccl_selection.hpp"

namespace troupe {

struct nccl_loops {
  std::uint64_t loops = 0;
  int channels = 1;              ///< that have a part: of a short call of 2.23 fewer than there are
  int chunks = 1;                ///< of a loop, in each channel: of rings one for every rank (nchunksPerLoop)
  std::uint64_t chunk = 0;       ///< bytes, of all loops but the last …
  std::uint64_t last_chunk = 0;  ///< … and of that, before it is rounded up to whole threads
  int slices = 1;                ///< of a chunk
  std::uint64_t steps = 0;       ///< chunks that a rank sends in all loops, in each channel (nstepsPerLoop × loops)
};
/// nullopt: NCCL would not take it, or how many channels it has is not modelled (row.channels is 0).
std::optional<nccl_loops> loops_of(const nccl_case& of, const nccl_row& row);
/// "1 loop of 24 channels x 16 chunks of 43.7K, each of 2 slices".
std::string loops_text(const nccl_loops& loops);

/// Of a send, or receive, in a group: pieces, each by another of the channels that a pair of ranks has.
struct nccl_p2p {
  int channels = 1;         ///< of a pair, at most
  std::uint64_t piece = 0;  ///< bytes of one channel's
  std::uint64_t pieces = 0;
  std::uint64_t step = 0;  ///< of those that a slot takes at once
};
/// Of 2.19.4. NCCL counts a pair's channels by the links between two cards, of which only that they are NVLink is known
/// here: so it has all.
nccl_p2p p2p_of(const nccl_case& of, std::uint64_t bytes);
/// "1 piece of 64K a message, over up to 2 channels, in steps of 128K".
std::string p2p_text(const nccl_p2p& sent);

}  // namespace troupe
