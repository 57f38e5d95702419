// SPDX-License-Identifier: Apache-2.0
#pragma once
// A message between the lanes of two ranks: a reference to bytes and the names that put it in order.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "protocols/collective.hpp"

namespace troupe {

/// The number of an operation of a communicator. Collectives count 0, 1, 2 … in the order of the calls; sends and receives between a pair
/// of ranks are counted for themselves, each tag for itself; they have the top bit set and below it the tag. They never wrap round: at a
/// thousand million calls a second 63 bits last for 292 years, and the 47 below a tag for 39 hours of nothing but sends of one pair.
using epoch_t = std::uint64_t;
inline constexpr epoch_t point_to_point = epoch_t{1} << 63;
inline constexpr int most_tag = 65535;
inline constexpr unsigned bits_below_tag = 47;
/// The epochs of sends and receives with that tag begin here.
constexpr epoch_t first_with_tag(int tag) { return point_to_point | static_cast<epoch_t>(tag) << bits_below_tag; }
constexpr std::uint64_t tag_of(epoch_t pair) { return (pair & ~point_to_point) >> bits_below_tag; }
inline bool before(epoch_t a, epoch_t b) { return a < b; }

/// A message of a lane. Small and trivially movable; the payload is never in it.
struct chunk {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t fingerprint = 0;  ///< of the sender's call
  epoch_t epoch = 0;
  rank_t source = -1;
  std::uint32_t lane = 0;      ///< channel × lanes of the channel + lane
  std::uint32_t sequence = 0;  ///< 0, 1, 2 … per (source, destination, lane) of the epoch
  std::shared_ptr<const void>
      keep;                ///< owner of `data` when that is not the sender's memory (a NIC's or a DMA engine's buffer)
  bool announced = false;  ///< the payload is still with its sender, and comes when its receiver says that it may
  bool settled = false;    ///< its sender has its memory back already, and waits for no credit
};

/// The chunk that a step waits for, and the place where it belongs.
struct expected_chunk {
  std::uint64_t fingerprint = 0;
  epoch_t epoch = 0;
  rank_t source = -1;
  std::uint32_t lane = 0;
  std::uint32_t sequence = 0;
  std::size_t bytes = 0;
  std::byte* place = nullptr;
};

/// Gives back the right to send one more, and with it the memory that the chunk referred to.
struct credit {
  epoch_t epoch = 0;
  rank_t source = -1;  ///< who gives the credit (the chunk's receiver)
  std::uint32_t lane = 0;
  std::uint32_t sequence = 0;
};

}  // namespace troupe
