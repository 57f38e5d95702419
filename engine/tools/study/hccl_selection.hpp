// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which all-to-all HCCL performs: the decision tree of spec 4 ("Selection"), as a pure function. A study whose choreography is
// "hccl" asks it at every size.
//
//   hccl_choice c = select_all_to_all({.places = layout::grid(4, 8), .bytes = 10 << 20});
//   c.algorithm == hccl_algorithm::staged; c.rule == 8; c.choreography == "staged_pairwise"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "topology/layout/layout.hpp"

namespace troupe {

enum class hccl_device : std::uint8_t { ascend_910b, ascend_910_93, ascend_310p };
/// "910b", "910_93", "310p".
std::string_view name(hccl_device device) noexcept;

enum class hccl_algorithm : std::uint8_t {
  aiv_staged,  ///< 910B's vector cores inside servers, RDMA between them
  aiv_mesh,    ///< the vector cores' mesh
  single,      ///< local copy
  for_310p,    ///< the duo cards' own
  two_level_pipeline,
  direct_full_mesh,
  full_mesh,
  staged,
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
};

struct hccl_choice {
  hccl_algorithm algorithm = hccl_algorithm::staged;
  int rule = 8;                   ///< of spec 4's list that matched first
  std::string why;                ///< what made it match
  std::string choreography;       ///< of `troupe list` that performs it
  bool through_scratch = false;   ///< BCopy: the data is larger than the CCL buffer
  std::uint64_t chunk_bytes = 0;  ///< largest piece; 0: whole messages
};

/// First match wins. Two conditions of the text are read with what it says elsewhere; its own cases would contradict it otherwise:
///  - both pipelines need two levels: several servers of the same number of cards, more than one;
///  - pipeline condition 2 (CCL buffer ≥ 80 MB) also needs 80 MB of data, as the size classes say ("> 80 MB pipeline or …"):
///    with the buffer alone, 4 × 8 ranks with 10 MB and HCCL's default buffer would not be Staged.
/// @param streams C of DirectFullMesh, for the size of its blocks
hccl_choice select_all_to_all(const hccl_case& what, int streams = 4);

/// DirectFullMesh's block: the CCL buffer has two halves (ping-pong) for each stream; multiples of 16 KB, at least one.
std::uint64_t direct_full_mesh_block(std::uint64_t ccl_buffer, int streams);

/// PIPELINE_MIN_SIZE, "typically 80 MB" (spec 4); in powers of 1024, as HCCL counts its buffers.
inline constexpr std::uint64_t hccl_pipeline_least = 80u << 20;
/// Below it an operation is bound by latency (spec 4, size classes). The text gives the vector cores no size; here it is this.
inline constexpr std::uint64_t hccl_small = 1u << 20;

}  // namespace troupe
