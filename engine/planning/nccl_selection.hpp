// SPDX-License-Identifier: Apache-2.0
#pragma once
// What NCCL performs: its tuning model (spec 5, "Tuning model") as pure functions. An engine whose planner is "nccl" asks them for every call,
// a study whose choreography is "nccl" at every size.
//
//   nccl_choice c = select_as_nccl({.places = layout::grid(2, 8), .what = collective::all_reduce, .bytes = 1 << 20});
//   c.taken->algorithm == nccl_algorithm::tree; c.taken->how == message_protocol::ll128; c.taken->choreography == "chained_double_tree"
//
// For every algorithm and protocol a latency and a bandwidth, from constants of its own, the number of ranks and servers, and the graphs that a
// search through the machine has found; time = latency + bytes / bandwidth; the least is taken. Tables and formulas are those of the published
// sources (tuning.cc: ncclTopoTuneModel, ncclTopoGetAlgoTime; enqueue.cc: topoGetAlgoInfo), of version 2.19.4, which spec 5 analyses, and of
// 2.23.4, which has PAT. The search itself is not here: what it found is given. Left out: operations that are merged in a group, and how
// broadcast is priced where rings differ from channel to channel.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/options.hpp"
#include "memory/types/types.hpp"
#include "protocols/call.hpp"
#include "protocols/collective.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

/// "2.19", "2.23".
std::string_view name(nccl_version version) noexcept;
std::optional<nccl_version> parse_nccl_version(std::string_view text) noexcept;
/// "volta", "ampere", "hopper".
std::string_view name(nccl_device device) noexcept;
std::optional<nccl_device> parse_nccl_device(std::string_view text) noexcept;
/// "intel", "amd", "power".
std::string_view name(nccl_host host) noexcept;
std::optional<nccl_host> parse_nccl_host(std::string_view text) noexcept;

/// In NCCL's order: of those that take as long as each other, the first.
enum class nccl_algorithm : std::uint8_t { tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat };
inline constexpr int nccl_algorithm_count = 7;
/// "Tree", "Ring", "CollNetDirect", …
std::string_view name(nccl_algorithm algorithm) noexcept;

inline constexpr int most_nccl_channels = 32;  ///< MAXCHANNELS
/// That a communicator of NCCL's may have: each that its search has found, twice.
constexpr int most_channels_of(const nccl_options& machine) {
  return std::min(most_nccl_channels, 2 * machine.channels);
}

/// What NCCL's search found for an algorithm, as its log prints it ("nChannels 12, bw 30.0/30.0").
struct nccl_graph {
  int channels = 0;
  double inside = 0, between = 0;  ///< GB/s (10⁹) a channel
  bool one_card = false;           ///< of trees: one card of a server has all connections to others (pattern TREE)
};

/// What the model asks about.
struct nccl_case {
  layout places;  ///< servers × cards of the ranks
  collective what = collective::all_reduce;
  std::uint64_t bytes = 0;  ///< of all blocks together
  datatype type = datatype::f32;
  op_kind op = op_kind::sum;
  nccl_options machine;
  std::optional<nccl_graph> tree;  ///< where it is another one than the rings', which `machine` describes
};

/// A chunk of no more bytes is not cut: prims_simple.h, genericOp: a slice has at least a 32nd of what its two slots of 512 KiB hold.
inline constexpr std::uint64_t least_nccl_slice = 32u << 10;

/// One algorithm with one protocol.
struct nccl_row {
  nccl_algorithm algorithm = nccl_algorithm::ring;
  message_protocol how = message_protocol::simple;  ///< ll, ll128 or simple
  double latency_us = 0;
  double bandwidth = 0;      ///< GB/s of the algorithm (not the bus), before the corrections by size
  double us = 0;             ///< predicted; meaningless if `why_not`
  int channels = 0;          ///< that NCCL uses for so many bytes; 0: of what a switch reduces, not modelled
  std::string why_channels;  ///< so many, as the end of a sentence
  int slices = 1;  ///< of a chunk, which a step of its primitives takes one after the other (CHUNKSTEPS / SLICESTEPS)
  int slots = 1;   ///< of the channel's buffer, that a slice takes (SLICESTEPS)
  std::string why_not;       ///< NCCL would not take it; empty: it may
  std::string choreography;  ///< of `troupe list` that performs it; empty: none does
};

struct nccl_choice {
  int channels = 0;                ///< that the communicator has
  std::vector<nccl_row> rows;      ///< of the collective, in NCCL's order; none: NCCL does not choose for it
  std::vector<std::size_t> order;  ///< of those that NCCL may take, fastest first
  const nccl_row* taken() const { return order.empty() ? nullptr : &rows[order.front()]; }
  /// nullptr: NCCL does not have it.
  const nccl_row* find(nccl_algorithm algorithm, message_protocol how) const;
};

/// Who performs it, and over how many of our channels.
struct nccl_performance {
  std::string choreography;
  int nics = 0;      ///< of a server, as setup::nics; 0: its rings or trees go the same ways
  int channels = 0;  ///< for each of them; 0: not modelled
};
/// NCCL has a NIC of a server for each of its channels, in turn: rings and pairs of trees that enter and leave servers there. Where servers have several,
/// another choreography has as many rings or pairs, and NCCL's further channels are channels of these. A pair of trees is two of NCCL's channels.
/// That is for studies, of machines whose ranks have NICs; an engine's routes take the channels of one ring to all NIC ports (topology/machine/routes.hpp).
/// @param nics of a server
nccl_performance performance_of(const nccl_row& row, const layout& places, int nics);

/// NCCL's model chooses for it.
bool has_nccl_selection(collective what) noexcept;
nccl_choice select_as_nccl(const nccl_case& of);

/// A line a row, under a line of headings: what may be taken, fastest first; then the others, each with the reason.
std::vector<std::string> table_of(const nccl_choice& choice);

}  // namespace troupe
