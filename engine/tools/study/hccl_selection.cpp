// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/hccl_selection.hpp"

#include <algorithm>
#include <array>

#include "engine/config/configuration.hpp"

namespace troupe {

namespace {

/// A level of links between servers and one inside, with partners of the same index everywhere.
bool two_levels(const hccl_case& of) {
  return of.places.server_count() > 1 && of.places.uniform() && of.places.size() > of.places.server_count();
}

bool aiv_conditions(const hccl_case& of) {
  return of.aiv && of.device != hccl_device::ascend_310p && of.places.server_count() > 1 && of.bytes < hccl_small;
}

bool supports_direct_full_mesh(const hccl_case& of) {
  return of.places.server_count() == 1 && of.ccl_buffer >= of.bytes && !of.aicpu_unfolded &&
         of.device != hccl_device::ascend_310p;
}

/// Why rule 7 matches; empty: it does not.
std::string why_single_level(const hccl_case& of) {
  if (of.super_pod) return "inside a super-pod";
  if (of.one_level) return "a single level is forced";
  if (of.places.server_count() == 1) return "all ranks are on one plane";
  if (!of.places.uniform()) return "the servers have different numbers of cards";
  return {};
}

hccl_choice chosen(hccl_algorithm algorithm, int rule, std::string why, const char* choreography) {
  hccl_choice c;
  c.algorithm = algorithm;
  c.rule = rule;
  c.why = std::move(why);
  c.choreography = choreography;
  return c;
}

hccl_choice first_match(const hccl_case& of) {
  using enum hccl_algorithm;
  if (aiv_conditions(of)) {
    const std::string why = "vector cores, several servers, less than " + bytes_text(hccl_small);
    if (of.device == hccl_device::ascend_910b) return chosen(aiv_staged, 1, why, "staged_pairwise");
    return chosen(aiv_mesh, 1, why, "one_shot");
  }
  if (of.places.size() == 1) return chosen(single, 2, "one rank", "pairwise");
  if (of.device == hccl_device::ascend_310p) return chosen(for_310p, 3, "310P3 duo", "pairwise");
  const bool large = of.bytes >= hccl_pipeline_least && two_levels(of);
  const std::string least = bytes_text(hccl_pipeline_least) + " or more";
  if (large && of.device == hccl_device::ascend_910_93 && of.super_pod)
    return chosen(two_level_pipeline, 4, "910_93 in a super-pod, " + least, "hierarchical_pipeline");
  if (supports_direct_full_mesh(of))
    return chosen(direct_full_mesh, 5, "a full mesh, and the data fits in the CCL buffer", "direct_full_mesh");
  if (large && of.ccl_buffer >= hccl_pipeline_least)
    return chosen(two_level_pipeline, 6, "two levels, data and CCL buffer of " + least, "hierarchical_pipeline");
  if (std::string why = why_single_level(of); !why.empty()) return chosen(full_mesh, 7, std::move(why), "pairwise");
  return chosen(staged, 8, "several servers, and no rule before", "staged_pairwise");
}

}  // namespace

std::string_view name(hccl_device device) noexcept {
  constexpr std::array<std::string_view, 3> names{"910b", "910_93", "310p"};
  return names[std::min(static_cast<std::size_t>(device), names.size() - 1)];
}

std::string_view name(hccl_algorithm algorithm) noexcept {
  constexpr std::array<std::string_view, 8> names{"staged AIV + RDMA", "AIV mesh",       "Single",   "310P's own",
                                                  "TwoLevelPipeline",  "DirectFullMesh", "FullMesh", "Staged"};
  return names[std::min(static_cast<std::size_t>(algorithm), names.size() - 1)];
}

std::uint64_t direct_full_mesh_block(std::uint64_t ccl_buffer, int streams) {
  constexpr std::uint64_t alignment = 16u << 10;
  const std::uint64_t share = ccl_buffer / (2 * static_cast<std::uint64_t>(std::max(streams, 1)));
  return std::max(share / alignment * alignment, alignment);
}

hccl_choice select_all_to_all(const hccl_case& what, int streams) {
  hccl_choice c = first_match(what);
  if (c.algorithm == hccl_algorithm::direct_full_mesh) c.chunk_bytes = direct_full_mesh_block(what.ccl_buffer, streams);
  if (c.choreography == "pairwise" && c.algorithm != hccl_algorithm::single && what.bytes > what.ccl_buffer) {
    c.through_scratch = true;
    c.chunk_bytes = what.ccl_buffer;
  }
  return c;
}

}  // namespace troupe
