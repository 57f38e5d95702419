// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/nccl_loops.hpp"

#include <algorithm>
#include <bit>

#include "engine/config/configuration.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

// Data bytes of a slot: an eighth of DEFAULT_BUFFSIZE; of DEFAULT_LL_BUFFSIZE, half of it flags; of DEFAULT_LL128_BUFFSIZE, a
// 16th of it flags.
constexpr std::uint64_t simple_slot = 512u << 10, ll_slot = 32u << 10, ll128_slot_with_flags = 600u << 10;
constexpr std::uint64_t least_traffic = 16u << 10;  ///< MinTrafficPerChannel of 2.23

std::uint64_t ceiling(std::uint64_t n, std::uint64_t by) { return n / by + (n % by != 0); }
std::uint64_t data_of_ll128(std::uint64_t with_flags) { return with_flags / 16 * 15; }

/// What a channel, or all of them together, has to go through, and the rules.
struct nccl_cutting {
  const nccl_case& of;
  const nccl_row& row;
  std::uint64_t channels, bytes;

  std::uint64_t ranks() const { return static_cast<std::uint64_t>(of.places.size()); }
  int servers() const { return std::max(1, of.places.server_count()); }
  bool newer() const { return of.machine.version == nccl_version::v2_23; }
  bool is(nccl_algorithm a, message_protocol how) const { return row.algorithm == a && row.how == how; }
  int log2_of_servers() const { return static_cast<int>(std::bit_width(static_cast<unsigned>(servers()))) - 1; }

  /// A chunk is halved while there are fewer than so many of it for each channel, but not below.
  void halve(std::uint64_t& chunk, double wanted, std::uint64_t least) const {
    while (static_cast<double>(bytes / (channels * chunk)) < wanted && chunk > least) chunk /= 2;
  }

  std::uint64_t tree_by_simple() const {
    std::uint64_t chunk = simple_slot;
    if (newer()) return chunk;
    const int depth = of.places.size() / servers() - 1 + log2_of_servers();
    halve(chunk, depth * 8, 128u << 10);
    halve(chunk, depth * 4, 64u << 10);
    halve(chunk, depth, 32u << 10);
    return chunk;
  }

  std::uint64_t tree_by_ll128() const {
    const double a_server = static_cast<double>(of.places.size()) / servers();
    const double steps = 1 + log2_of_servers() + 0.1 * a_server;
    std::uint64_t chunk = newer() ? data_of_ll128(ll128_slot_with_flags) : ll128_slot_with_flags;
    halve(chunk, steps * 64 / a_server, 128u << 10);
    halve(chunk, steps * 16 / a_server, 32u << 10);
    return newer() ? chunk : data_of_ll128(chunk);
  }

  std::uint64_t pat() const {
    std::uint64_t chunk = simple_slot;
    const std::uint64_t many = of.what == collective::all_gather ? 32 : 16;
    while (chunk * channels * many > bytes && chunk > 64u << 10) chunk /= 2;
    return chunk;
  }

  std::uint64_t chunk() const {
    const bool by_pat = row.algorithm == nccl_algorithm::pat;
    std::uint64_t found = simple_slot * static_cast<std::uint64_t>(row.slices * row.slots);
    if (row.how == message_protocol::ll) found = ll_slot;
    if (row.how == message_protocol::ll128) found = data_of_ll128(ll128_slot_with_flags);
    if (is(nccl_algorithm::tree, message_protocol::simple)) found = tree_by_simple();
    if (is(nccl_algorithm::tree, message_protocol::ll128)) found = tree_by_ll128();
    if (by_pat) found = pat();
    if (!newer()) return found;
    const std::uint64_t grain = row.how == message_protocol::ll ? 16 : row.how == message_protocol::ll128 ? 1920 : 512;
    return found / grain * grain;
  }
};

struct channel_parts {
  std::uint64_t channels, bytes;  ///< that have a part; of a part, of all ranks' blocks together
};
/// 2.23: cells are dealt out to channels, each as many as its share of the traffic.
channel_parts parts_of_channels(const nccl_case& of, std::uint64_t channels) {
  const auto ranks = static_cast<std::uint64_t>(of.places.size());
  const bool blocks = block_count(of.what, of.places.size()) > 1;
  const std::uint64_t count = blocks ? ceiling(of.bytes, ranks) : of.bytes;
  const std::uint64_t traffic = blocks ? ranks : of.what == collective::all_reduce ? 2 : 1;
  const std::uint64_t cell = ceiling(ceiling(least_traffic, traffic), 16) * 16;
  const std::uint64_t of_channel = std::max(least_traffic, count * traffic / channels);
  const std::uint64_t cells = ceiling(count, cell), of_one = std::min(cells, ceiling(of_channel, cell * traffic));
  return {std::min(channels, ceiling(cells, of_one)), std::min(of_one * cell, count) * (blocks ? ranks : 1)};
}

}  // namespace

std::optional<nccl_loops> loops_of(const nccl_case& of, const nccl_row& row) {
  if (!row.why_not.empty() || row.channels < 1 || of.bytes == 0) return std::nullopt;
  const auto channels = static_cast<std::uint64_t>(row.channels);
  const bool apart = of.machine.version == nccl_version::v2_23;
  const channel_parts parts = apart ? parts_of_channels(of, channels) : channel_parts{channels, of.bytes};
  const nccl_cutting cut{of, row, apart ? 1 : channels, parts.bytes};
  const bool rooted = has_root(of.what);
  const bool ring = row.algorithm == nccl_algorithm::ring && !rooted;
  nccl_loops made;
  made.channels = static_cast<int>(parts.channels);
  made.chunks = ring ? of.places.size() : 1;
  made.chunk = cut.chunk();
  made.slices = row.slices;
  const std::uint64_t at_once = cut.channels * static_cast<std::uint64_t>(made.chunks);
  made.loops = ceiling(cut.bytes, at_once * made.chunk);
  made.last_chunk = ceiling(cut.bytes - (made.loops - 1) * at_once * made.chunk, at_once);
  const std::uint64_t a_loop = !ring ? 1 : (cut.ranks() - 1) * (of.what == collective::all_reduce ? 2 : 1);
  made.steps = a_loop * made.loops;
  return made;
}

namespace {
/// "64K"; "43691 bytes".
std::string told(std::uint64_t bytes) { return bytes_text(bytes) + (bytes % 1024 == 0 ? "" : " bytes"); }
}  // namespace

std::string loops_text(const nccl_loops& l) {
  const auto chunks = [&](std::uint64_t bytes) {
    return (l.chunks > 1 ? std::to_string(l.chunks) + " chunks" : std::string{"a chunk"}) + " of " + told(bytes);
  };
  std::string text = plural(l.loops, "loop") + " of " + plural(static_cast<std::size_t>(l.channels), "channel") +
                     " x " + chunks(l.loops > 1 ? l.chunk : l.last_chunk);
  if (l.slices > 1) text += ", each of " + std::to_string(l.slices) + " slices";
  if (l.loops > 1 && l.last_chunk < l.chunk) text += "; in the last loop of " + told(l.last_chunk);
  if (l.loops == 1 && l.last_chunk < l.chunk) text += "; a chunk has at most " + told(l.chunk);
  return text;
}

nccl_p2p p2p_of(const nccl_case& of, std::uint64_t bytes) {
  const bool several = of.places.server_count() > 1;
  const bool nvlink = of.machine.nvlink && !several;
  const auto all = std::bit_ceil(static_cast<unsigned>(most_channels_of(of.machine)));
  const auto ranks = static_cast<unsigned>(of.places.size());
  unsigned most = nvlink ? all : std::min(2u, all), least = most;
  if (!several) {
    while (least * ranks > all && least > 1) least /= 2;
    while (most * ranks > all * 4 && most > 1) most /= 2;
  }
  nccl_p2p made;
  made.step = nvlink ? 512u << 10 : 128u << 10;
  const std::uint64_t smallest = made.step / 8, largest = several ? made.step : made.step * 32;
  std::uint64_t piece = std::max(smallest, ceiling(bytes, least));
  for (unsigned n = least; piece > largest && n <= most / 2;) piece = ceiling(bytes, n *= 2);
  made.channels = static_cast<int>(std::max(most, least));
  made.piece = ceiling(piece, smallest) * smallest;
  made.pieces = std::max<std::uint64_t>(1, ceiling(bytes, made.piece));
  made.piece = std::min(made.piece, bytes);
  return made;
}

std::string p2p_text(const nccl_p2p& sent) {
  return plural(sent.pieces, "piece") + " of " + told(sent.piece) + " a message, over up to " +
         plural(static_cast<std::size_t>(sent.channels), "channel") + " of a pair, in steps of " + told(sent.step);
}

}  // namespace troupe
