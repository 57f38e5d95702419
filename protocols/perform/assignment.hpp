// SPDX-License-Identifier: Apache-2.0
#pragma once
// The assignment that a rank gives to its channels, so that they perform its part of one operation.

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/arena.hpp"
#include "memory/types/types.hpp"
#include "protocols/chunk.hpp"
#include "protocols/perform/part_board.hpp"
#include "protocols/perform/performer.hpp"
#include "protocols/program/program.hpp"

namespace troupe {

/// Memory that a rank's channels acquire while they perform, and that peers read. It belongs to the operation, not to the channel,
/// because a peer may still read when a channel has stopped, or died. Thread-safe.
class lent_memory {
public:
  std::byte* acquire(arena& from, std::size_t bytes) {
    const std::lock_guard lock(mutex_);  // once per link and operation
    return static_cast<std::byte*>(blocks_.emplace_back(from.acquire(bytes)).data());
  }

private:
  std::mutex mutex_;
  std::vector<scratch_block> blocks_;
};

/// Immutable while channels perform it. The buffers that `memory` names stay valid until every channel has answered
/// (finished or stopped).
struct assignment {
  epoch_t epoch = 0;
  rank_t peer = -1;      ///< the other rank of a send or receive; −1 for collectives
  bool sending = false;  ///< send or receive: which
  int channel = 0;       ///< of a send or receive, which has one; it wraps round
  std::uint64_t fingerprint = 0;
  std::shared_ptr<const program> code;
  memory_map memory;
  std::shared_ptr<lent_memory> lent;  ///< only if code->slot_bytes > 0; released with the buffers
  datatype type = datatype::u8;
  op reduction{};
  bool any_order = false;  ///< determinism `fast`
  step_work work = step_work::at_once;
  std::shared_ptr<part_board> parts;   ///< of a partitioned operation; else null
  std::shared_ptr<const void> shared;  ///< owns L2, also for transfers that are on their way; null: none is touched
  int credits = 8;                     ///< chunks under way per (source, destination, lane)
};

}  // namespace troupe
