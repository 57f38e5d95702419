// SPDX-License-Identifier: Apache-2.0
#pragma once
// A chunk that leaves its sender's memory: what DMA engines and NICs do with its bytes. No CAF in here.

#include <cstddef>
#include <memory>
#include <utility>

#include "memory/arena.hpp"
#include "memory/kernels/kernels.hpp"
#include "protocols/chunk.hpp"

namespace troupe::actors {

/// Where an element gets memory for a chunk on its way.
class travel_memory {
public:
  virtual ~travel_memory() = default;
  /// Null when there is none: the element then drops the chunk, whose operation fails with errc::message_lost, and lives on.
  virtual std::shared_ptr<scratch_block> buffer(std::size_t bytes) = 0;
};

/// The chunk owns what it refers to from now on.
inline void own(chunk& what, std::shared_ptr<scratch_block> buffer) {
  what.data = static_cast<const std::byte*>(buffer->data());
  what.keep = std::move(buffer);
}

/// Copies its bytes out of its sender's memory. False: there is no memory for that, and the chunk is as it was.
inline bool copy_out(chunk& what, travel_memory& memory) {
  if (what.bytes == 0) return true;
  auto buffer = memory.buffer(what.bytes);
  if (!buffer) return false;
  troupe::copy(buffer->data(), what.data, what.bytes);
  own(what, std::move(buffer));
  return true;
}

}  // namespace troupe::actors
