// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bounds that no schedule can beat on given hardware.

#include <cstdint>
#include <vector>

#include "engine/tools/study/cuts.hpp"
#include "engine/tools/workload.hpp"
#include "topology/machine/hardware.hpp"

namespace troupe {

struct study_bounds {
  double latency_us =
      0;  ///< the fastest empty message between two ranks, with what both do for it; 0 where nothing has to be sent
  double bandwidth_us = 0;  ///< what ranks must at least send and receive, over what they can
};

/// A rank's sending rate is the sum over the elements in which its ways to others begin, its receiving rate over those in which
/// they end. all_reduce: all ranks together send 2(p−1) blocks at least (each part is sent p−1 times until it is complete, and p−1
/// times until everybody has it), unless a switch reduces and multicasts. Others: what a rank has that others need, and needs that others have. Over 512 ranks the ways to
/// a sample of 64 others are looked at. Likewise the sets of cuts.hpp: what must enter or leave one, over what its ways carry; less a
/// latency where elements on them may be busy before and after the fastest message is, and where one is for both directions.
study_bounds bounds_of(const hardware& on, const std::vector<machine_cut>& cuts, const job_kind& kind,
                       const job_shape& shape, std::size_t element_size, rank_t root);

}  // namespace troupe
