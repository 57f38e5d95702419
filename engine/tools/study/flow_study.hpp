// SPDX-License-Identifier: Apache-2.0
#pragma once
// A flow in a study: operators and collectives joined by streams of tiles, in virtual time (a real one: ../../flow/flow.hpp). Every rank has the
// same nodes. A tensor is in as many shares as there are ranks, and a share in tiles, equally many for each core; a stream holds a rank's share,
// or the whole.
//
//   source      tiles that are in memory from the beginning
//   operator    per tile: loads it, works on a core, stores what it makes. Tiles are dealt to the rank's cores in turn; a core has room for `depth`
//               of them at once, and loads the next ones while it works. One that takes two streams works on a tile of each, in the order of
//               the first
//   collective  all_gather (share → whole) or reduce_scatter (whole → share) by a choreography: whole, or part by part
//   sink        where a stream ends
//
// Where tiles pass between a node and the one before it (`through`):
//   l1   a rank's own memory: the one before stores them, the node loads them, both through the rank's DMA engine
//   l0   the core's memory: nothing moves; both nodes are one kernel, which does one tile after the other
//   l2   the segment that all ranks address (spec 1, CSC), with an `exchange` in it: the one before stores what others want there and its own in
//        l1, and the node loads its own tiles from l1 and others' from l2, in the order rank, rank + 1, …; in a reduce_scatter it sums them in
//        l0. Everybody's tiles are there after a sync of all ranks, one between the kernels or one a tile. No collective is in such a flow
//
// Kernels are launched one after the other, each when the one before it has ended on the rank, or beside it. A launch costs host.launch, a sync
// host.sync, a load or store host.transfer beside its time in DMA engine and ports; a sum in l0 costs nothing (hardware.hpp). What the flow
// becomes is a replay (actors/virtual/virtual_replay.hpp).

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "actors/virtual/virtual_replay.hpp"
#include "engine/config/configuration.hpp"
#include "memory/types/types.hpp"
#include "topology/machine/links.hpp"

namespace troupe {

struct study_scenario;
struct study_result;
struct study_run_options;

/// A [[study.node]]. The members are the keys; docs and defaults are in config_schema().
struct study_node {
  enum class kind : std::uint8_t { source, work, collective, sink };
  enum class tier : std::uint8_t { l0, l1, l2 };
  enum class exchange : std::uint8_t { none, all_gather, reduce_scatter };
  enum class sync : std::uint8_t { kernel, tile };
  /// A stream that it takes.
  struct input {
    int from = -1;  ///< which of the nodes
    tier through = tier::l1;
  };

  kind what = kind::work;
  std::string name;
  std::vector<input> inputs;            ///< of a source none, of an operator one or two, else one
  bool whole = false;                   ///< its stream holds the whole tensor, not a share
  exchange exchanges = exchange::none;  ///< of the input through l2, or what a collective performs
  sync syncs = sync::kernel;            ///< of an exchange through l2
  bool keeps = false;                   ///< stores others' tiles of an all_gather in l1, too, while it goes on
  picoseconds time{0};                  ///< an operator's work on a tile
  std::uint64_t loads = 0;              ///< bytes of other operands a tile, from l1
  int kernel = -1;                      ///< which; −1: none (sources, sinks)
  std::string choreography;
  int channels = 1, parts = 0;  ///< of a collective; parts 0: it begins when its input is complete
  std::map<std::string, std::string, std::less<>> places;  ///< of the keys that it says: "from" → "study.toml:12"
  std::string place;                                       ///< of its table
  /// As messages about a key begin: "study.toml:12: gemm: from: "; of one that it does not say, or of none, with the table's place.
  std::string at(std::string_view key = {}) const;
  /// Null: none comes through l2.
  const input* exchanged() const;
};

/// A [study.flow], and its nodes in the order of the file; empty: the study has none.
struct study_flow {
  std::vector<study_node> nodes;
  std::uint64_t tile_bytes = 16384;  ///< at most
  int cores = 1, depth = 2;
  /// By kernel: it begins beside the one before it.
  std::vector<bool> beside;

  /// Tiles of a share: the fewest that are small enough, and equally many for each core.
  std::uint64_t least_tiles_of(std::uint64_t share_bytes) const;
  /// The tiles that a share is cut into: as least_tiles_of(), and equally many for each part of its collectives, too. @pre none has more parts
  /// than that many tiles
  int tiles_of(std::uint64_t share_bytes) const;

  const study_node& node(int index) const { return nodes[static_cast<std::size_t>(index)]; }
  /// The one node that decides in which order a stream's tiles come: a source, a collective, or an operator that takes them through l2.
  const study_node& maker_of(const study_node& n) const;
  /// Whether all blocks' first tiles come before all second ones.
  bool tile_by_tile(const study_node& n) const;
  bool same_order(const study_node& a, const study_node& b) const;
};

/// Reads it into scenario.flow. @pre the rest of the scenario has been read. Throws error(bad_config).
void read_flow(const configuration& from, study_scenario& scenario);

/// A flow as a replay, and which node each of a rank's operations belongs to.
struct lowered_flow {
  struct owner {
    int node = -1;                       ///< −1: a kernel's launch or end
    std::int32_t block = -1, tile = -1;  ///< −1: of no single tile
  };
  replay_trace trace;
  std::vector<std::vector<owner>> owners;           ///< by rank, by operation
  std::vector<std::shared_ptr<const score>> notes;  ///< of the trace's collectives
};

/// A collective of a flow as it is performed at a size. Partitioned where the node has parts.
struct planned_collective {
  std::shared_ptr<const score> notes;
  virtual_call call;
};

/// @param share_bytes a rank's share, in so many tiles @param planned by node, of the collectives @pre the nodes are as read_flow() leaves them
lowered_flow lower_flow(const study_flow& flow, const hardware& on, std::uint64_t share_bytes, int tiles,
                        const std::vector<planned_collective>& planned);

/// What a node did in one run.
struct study_node_use {
  double begin_us = 0, end_us = 0;  ///< of its first and its last tile, over all ranks
  double busy_us = 0;               ///< tiles were under way, on the rank where that was longest
  double wait_us = 0;               ///< none was, between its first and its last one, on that rank
  double core_us = 0;               ///< a core's work there, on average over the cores
  std::uint64_t moved_bytes = 0;    ///< that it loaded and stored there
};

/// A stretch of a flow's critical path: what the end had to wait for, and when. Neighbours that are alike are one.
struct flow_stretch {
  /// core: a tile waited for its core, which worked on others; queue: what a load or store took longer than it does alone
  enum class part : std::uint8_t { launch, compute, core, memory, queue, collective, sync };
  static constexpr std::size_t parts = 7;
  part spent = part::compute;
  int rank = 0, node = -1, core = -1;  ///< −1: of no single one
  std::int64_t begin_ps = 0, end_ps = 0;
  std::string text;
};
/// "launch", "compute", …
std::string_view name(flow_stretch::part part) noexcept;

/// How a size was performed. Row i of the result is of the same size.
struct study_flow_row {
  int tiles = 0;  ///< of a share
  std::vector<study_node_use> nodes;
  std::vector<flow_stretch> path;               ///< where study_run_options::record asked for it, too
  std::shared_ptr<const lowered_flow> lowered;  ///< where study_run_options::record asked for it …
  replay_outcome outcome;                       ///< … with its spans; else these are empty
};

/// From the begin to the end of what was performed.
std::vector<flow_stretch> flow_path(const study_flow& flow, const hardware& on, const lowered_flow& made,
                                    const replay_outcome& times);

/// scenario.flow → result.rows, result.flow_rows. @pre it has nodes
study_result run_flow(const study_scenario& scenario, const study_run_options& options);

/// The rows, and what each node did at the size that is shown.
void print_flow(std::ostream& to, const study_result& result);
/// Of that size.
void print_flow_path(std::ostream& to, const study_result& result);
std::string flow_csv_heading();
/// A line a size, and one each of its nodes that do something; the last column, why a sweep's value is refused, is empty.
std::string flow_csv(const study_result& result, const std::string& key, const std::string& value);
/// For Perfetto and chrome://tracing, of the size that is shown: a process a rank, a track a core and node, a span a tile's load, work or store.
/// @pre study_run_options::record asked for it
std::string flow_trace(const study_result& result);

/// The rows of a report page: of each rank what its host and its collectives do, what each node loads and stores, and its cores; then
/// the elements of the machine.
class flow_tracks {
public:
  flow_tracks(const study_flow& flow, int ranks)
      : nodes_(static_cast<int>(flow.nodes.size())), cores_(flow.cores), ranks_(ranks) {}
  int of_rank(int rank) const { return rank * (1 + nodes_ + cores_); }
  int of_node(int rank, int node) const { return of_rank(rank) + 1 + node; }
  int of_core(int rank, int core) const { return of_rank(rank) + 1 + nodes_ + core; }
  int of_element(std::size_t element) const { return of_rank(ranks_) + static_cast<int>(element); }

private:
  int nodes_, cores_, ranks_;
};
/// A row each tile's load, work or store: [track, begin, end, kind, −1, −1, bytes, −1, name], as text; of what the row `row` recorded.
/// @param names of spans, which are appended to where they are new @returns whether all are there
bool append_flow_spans(std::string& to, const study_result& result, std::size_t row, std::vector<std::string>& names);

}  // namespace troupe
