// SPDX-License-Identifier: Apache-2.0
#pragma once
// Why a call is performed as it is: the planner's candidates, for people and for programs.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/planning/planner.hpp"
#include "protocols/call.hpp"
#include "topology/layout/layout.hpp"
#include "topology/reach.hpp"

namespace troupe {

/// Of a call that processes of a host perform on each other's buffers: what becomes of those that others do not map.
struct unmapped_buffers {
  std::size_t input = 0;       ///< bytes of the longest input that others read
  std::size_t output = 0;      ///< bytes of the longest output that others write
  std::size_t most_input = 0;  ///< longer ones are not staged, …
  std::size_t most_output = 0;
  bool alone = false;  ///< each rank writes its own output
};

/// How the one that performs a call by mailbox cuts its blocks.
struct cut_cells {
  std::size_t cell = 0;  ///< bytes of a choreography's longest cell, …
  int channels = 1;      ///< … which is divided among these …
  int slices = 1;        ///< … and in each of these into so many
  int slices_per_step = 1;
  std::size_t slice = 0;  ///< bytes of the longest
};

struct explanation {
  call what;
  layout placement;
  std::size_t bytes = 0;              ///< of the call as nccl-tests count them: bus_bytes()
  std::vector<candidate> candidates;  ///< as planner::candidates orders them
  std::vector<std::string> path;      ///< of another planner than the cost model: planner::path
  std::string asked;                  ///< whose path that is
  std::string costs;                  ///< by which times are predicted: measured when, or assumed; a sentence's end
  offload_prospect offload;           ///< by the process's NIC
  /// Of several hosts with several ranks each; it is performed so where that is chosen(), whatever the candidates say.
  std::optional<tiers_prospect> tiers;
  std::optional<unmapped_buffers> unmapped;  ///< by the direct port between processes
  std::optional<cut_cells> cells;            ///< by mailbox, where there is anything to cut
  bool measured = false;                     ///< show what was measured, too
  std::string stages = "measured";    ///< engine.stages: how data that others do not map gets to them within a host
  std::string transport = "sockets";  ///< what carries data between hosts, as name_of_transport() says
};

/// "sockets", "UCX 1.13", "UCX, which this Troupe was built without". @param wanted engine.transport
std::string name_of_transport(const std::string& wanted);

/// Throws what planner::candidates throws. For blocks of different sizes what.count is the mean block, which `bytes` is counted from.
/// @param counts as planner::candidates has it
explanation explain(planner& by, const call& what, const layout& placement,
                    const std::vector<std::size_t>* counts = nullptr);

/// Which ranks reach each other how, nearest way first. Every way's groups are of ranks that are at most so far from each other.
struct reach_groups {
  reach how;
  int borders = 0;                       ///< of the network: levels of groups of hosts that are between
  std::vector<std::vector<int>> groups;  ///< of two ranks or more
};
/// Empty where all ranks are in one process.
std::vector<reach_groups> ways_between(const layout& placement);

/// The fastest of those that were measured; nullptr if none was.
const candidate* best_measured(const explanation& e);

/// The ways between processes, if there are several; and a table: choreography, protocol, channels, slices, predicted time, bus bandwidth, measured time if there is one; then who is rejected, and why.
std::string to_text(const explanation& e);
/// {"collective", "ranks", "layout", "ways" of processes: [{"reach": "process", "segment" or "network", "groups": [[ranks]]}], "unmapped" (within hosts, what others do not map: "stages", "system", "measured" or "frames"), "buffers" (by the direct port between processes: {"input", "output": {"bytes" that others read or write, "longest_staged", "form": "bcopy", "zcopy", "measured", or of an output "own"}}), "between_hosts": name_of_transport(), "count" (v-forms: "counts"), "type", "op", "determinism", "in_place", "bytes", "path" (of another planner than the cost model), "costs", "chosen": name or null, "protocol",
/// "candidates": [{"choreography", "protocol", "eligible", "chosen", "channels", "slices", "slices_per_step", "predicted_us", "algbw", "busbw", "measured_us" if
/// measured, "rank_order_fold", "why_rejected"}], "tiers" of several hosts: {"chosen", "predicted_us", "stages": [{"stage", "choreography", "protocol",
/// "predicted_us"}], "why_not"}, "cells" (by mailbox: {"bytes" of the longest, "channels", "slices", "slices_per_step", "slice_bytes" at most}), "best_measured": {"choreography", "protocol"} if measured}.
/// Bandwidths in GB/s (10⁹); numbers of rejected candidates and bandwidths of calls without bytes are null.
std::string to_json(const explanation& e, int indent = 2);

/// nccl-tests' size of a call: the larger of a rank's two buffers (of the root's, where there is one).
std::size_t bus_bytes(collective what, int ranks, std::size_t block_bytes);

}  // namespace troupe
