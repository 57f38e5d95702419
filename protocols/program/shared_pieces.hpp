// SPDX-License-Identifier: Apache-2.0
#pragma once
// A dma_get or dma_put of L2 by whose share of it lies where (topology/machine/shared_segment.hpp).

#include <cstddef>
#include <memory>
#include <vector>

#include "protocols/program/program.hpp"

namespace troupe {

/// The part of an instruction's L2 cells that lies in one rank's share.
struct shared_piece {
  rank_t home = -1;
  std::size_t begin = 0;  ///< bytes from where the instruction begins, on both sides
  std::size_t bytes = 0;
  bool operator==(const shared_piece&) const = default;
};

/// A dma_get out of L2, or a dma_put into it, as a port performs it.
struct shared_transfer {
  const program& code;
  const instruction& what;
  std::byte* target;
  const std::byte* source;
  std::size_t bytes;
  const std::shared_ptr<const void>& keep;  ///< owns L2
};

/// In the order of their bytes; neighbours have different homes. Allocates. @pre touches_l2(i)
std::vector<shared_piece> shared_pieces(const program& code, const instruction& i);

}  // namespace troupe
