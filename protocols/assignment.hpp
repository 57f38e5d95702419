#pragma once
// What a rank hands to its channels so that they perform its part of one operation.

#include <cstdint>
#include <memory>

#include "memory/types.hpp"
#include "protocols/chunk.hpp"
#include "protocols/performer.hpp"
#include "protocols/program.hpp"

namespace troupe {

/// Immutable while channels perform it. The buffers that `memory` names stay valid until every channel has answered
/// (finished or stopped).
struct assignment {
  epoch_t epoch = 0;
  rank_t peer = -1;       ///< the other rank of a send or receive; −1 for collectives
  bool sending = false;   ///< send or receive: which
  std::uint64_t fingerprint = 0;
  std::shared_ptr<const program> code;
  memory_map memory;
  datatype type = datatype::u8;
  op reduction{};
  bool any_order = false;  ///< determinism `fast`
  int credits = 8;         ///< chunks under way per (source, destination, lane)
};

}  // namespace troupe
