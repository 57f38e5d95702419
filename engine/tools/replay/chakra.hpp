// SPDX-License-Identifier: Apache-2.0
#pragma once
// Chakra execution traces (MLCommons; Sridharan et al. 2023), as ASTRA-sim takes them: a file a rank, NAME.RANK.et, in which a
// GlobalMetadata and then Nodes follow one another, each behind its length (schema: et_def.proto); or NAME.RANK.json, the same
// as JSON objects one after the other, which Chakra's jsonizer writes.
//
//   COMP_NODE        duration_micros, or num_ops at --flops, or tensor_size at --memory-rate, whatever takes longer
//   MEM_LOAD, STORE  the same
//   COMM_COLL_NODE   comm_type, comm_size (what a rank puts in, in bytes), pg_name (none, "": all), root
//   COMM_SEND, RECV  comm_size, comm_src, comm_dst, comm_tag
//   METADATA, INVALID  take no time; "process_group:init" says the ranks of pg_names
// Nodes begin when all that their data_deps and ctrl_deps name have ended. A rank has three units that do one after the other:
// computations (cpu 0), those marked is_cpu_op (cpu 1), and the work of sends and receives (cpu 2).
// Sizes that are no whole blocks are rounded up. `data_type` and `reduce_op` are our own attributes: what write_chakra() says of a
// collective's elements; without them sums are of f32 where the size allows, else of u8.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tools/replay/application.hpp"

namespace troupe {

/// "….et", "….json".
bool names_chakra(std::string_view file) noexcept;

/// One file a rank, in any order; `groups`: the text of trace_reading::groups.
/// @throws error(bad_config) that names the file and its node, what is wrong, and what would be right
application read_chakra(const std::vector<trace_text>& files, const trace_text& groups, const trace_reading& how);

/// The binary form of each rank. Times are rounded to whole microseconds, which is what Chakra has.
/// @throws error(unsupported) for what a Chakra trace cannot say: v-forms, scans, receives from any rank or with any tag, `irequires`
std::vector<std::string> write_chakra(const application& what);

/// {"1": [ranks of the first communicator but the world], …}; empty: there are no others.
std::string chakra_groups(const application& what);

}  // namespace troupe
