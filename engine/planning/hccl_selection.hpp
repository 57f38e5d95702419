// SPDX-License-Identifier: Apache-2.0
#pragma once
// What HCCL performs, as pure functions. An engine whose planner is "hccl" asks them for every call, a study whose choreography is
// "hccl" at every size.
//
//   hccl_choice c = select_all_to_all({.places = layout::grid(4, 8), .bytes = 10 << 20});
//   c.algorithm == hccl_algorithm::staged; c.rule == 8; c.choreography == "staged_pairwise"
//
// all_to_all: the decision tree of spec 4 ("Selection"). all_reduce, all_gather, reduce_scatter: the choice a level at a time of the published
// CANN sources (alg_configurator.cc: SelectCurrOpAlgType, SetAlgoLevel1, GetDefaultAlgoLevel1V1, GetDefaultAlgoLevel0Module). Other
// collectives: none.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/options.hpp"
#include "protocols/collective.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

/// "910b", "910_93", "310p".
std::string_view name(hccl_device device) noexcept;
std::optional<hccl_device> parse_hccl_device(std::string_view text) noexcept;

/// "na", "ring", "pairwise", "mesh", "nhr", "nb", "hd".
std::string_view name(hccl_level algorithm) noexcept;
std::optional<hccl_level> parse_hccl_level(std::string_view text) noexcept;

enum class hccl_algorithm : std::uint8_t {
  none,        ///< there is no selection for the collective
  aiv_staged,  ///< 910B's vector cores inside servers, RDMA between them
  aiv_mesh,    ///< the vector cores' mesh
  single,      ///< local copy
  for_310p,    ///< the duo cards' own
  two_level_pipeline,
  direct_full_mesh,
  full_mesh,
  staged,
  one_level,   ///< one algorithm for all ranks
  two_levels,  ///< a mesh inside servers, and an algorithm between them
};
/// "DirectFullMesh", …
std::string_view name(hccl_algorithm algorithm) noexcept;

/// What the tree asks about. Sizes in bytes.
struct hccl_case {
  layout places;                          ///< servers × cards of the ranks
  std::uint64_t bytes = 0;                ///< the most that a rank sends or receives in all
  std::uint64_t ccl_buffer = 200u << 20;  ///< HCCL_BUFFSIZE, 200 MB unless set
  hccl_device device = hccl_device::ascend_910b;
  bool super_pod = false;  ///< the servers are of one super-pod
  bool aiv = false;        ///< the vector cores may communicate
  bool aicpu_unfolded = false;
  bool one_level = false;  ///< the user forces a single level
  collective what = collective::all_to_all;
  hccl_level level0 = hccl_level::na, level1 = hccl_level::na;  ///< forced by the user
};

struct hccl_choice {
  hccl_algorithm algorithm = hccl_algorithm::staged;
  int rule = 8;                   ///< of spec 4's list that matched first
  std::string why;                ///< what made it match
  std::string choreography;       ///< of `troupe list` that performs it
  bool through_scratch = false;   ///< BCopy: the data is larger than the CCL buffer
  std::uint64_t chunk_bytes = 0;  ///< largest piece; 0: whole messages
  std::vector<std::string> path;  ///< every question up to the answer, a line each
};

/// First match wins. Two conditions of the text are read with what it says elsewhere; its own cases would contradict it otherwise:
///  - both pipelines need two levels: several servers of the same number of cards, more than one;
///  - pipeline condition 2 (CCL buffer ≥ 80 MB) also needs 80 MB of data, as the size classes say ("> 80 MB pipeline or …"):
///    with the buffer alone, 4 × 8 ranks with 10 MB and HCCL's default buffer would not be Staged.
/// @param streams C of DirectFullMesh, for the size of its blocks
hccl_choice select_all_to_all(const hccl_case& what, int streams = 4);

bool has_hccl_selection(collective what) noexcept;
/// The tree of `what.what`; algorithm none and no choreography where HCCL's sources have none that is modelled here.
hccl_choice select_as_hccl(const hccl_case& what, int streams = 4);

/// DirectFullMesh's block: the CCL buffer has two halves (ping-pong) for each stream; multiples of 16 KB, at least one.
std::uint64_t direct_full_mesh_block(std::uint64_t ccl_buffer, int streams);

/// PIPELINE_MIN_SIZE, "typically 80 MB" (spec 4); in powers of 1024, as HCCL counts its buffers.
inline constexpr std::uint64_t hccl_pipeline_least = 80u << 20;
/// Below it an operation is bound by latency (spec 4, size classes). The text gives the vector cores no size; here it is this.
inline constexpr std::uint64_t hccl_small = 1u << 20;

}  // namespace troupe
