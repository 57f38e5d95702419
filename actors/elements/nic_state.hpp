// SPDX-License-Identifier: Apache-2.0
#pragma once
// One port of a server's NIC. No CAF in here.
//
// Out: a chunk is cut into packets of at most `packet_bytes`, which go to the NIC at the other end. In: packets are copied into a
// buffer of this NIC, in whatever order they come; when all bytes are there the chunk goes on. So nothing of the sender's server
// is referred to on the receiver's.
//
// Owner: the NIC's actor. Every packet comes once. Memory: a buffer for each chunk that has not come as a whole. The credits that
// channels grant bound their number (spec 5: CTS), so the NIC needs no bound of its own.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "actors/elements/travelling.hpp"

namespace troupe::actors {

class nic_state {
public:
  static constexpr std::size_t packet_bytes = std::size_t{64} * 1024;

  struct packet {
    std::uint64_t name = 0;  ///< of the chunk's transfer; unique for the sending NIC
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };

  /// Calls send(packet) for every piece of a chunk of `bytes`, in order. An empty chunk is one empty packet.
  template <class Send>
  void cut(std::size_t bytes, Send&& send) {
    packet next{next_name_++, 0, 0};
    do {
      next.bytes = std::min(packet_bytes, bytes - next.offset);
      send(next);
      next.offset += next.bytes;
    } while (next.offset < bytes);
  }

  /// A packet of `sent` has come, which NIC number `sender` cut. Returns the chunk, in memory of its own, when this was the last one;
  /// never, if there was no memory.
  std::optional<chunk> join(std::uint64_t sender, const packet& came, const chunk& sent, travel_memory& memory);

  /// Chunks of which packets are missing.
  std::size_t incomplete() const { return arrivals_.size(); }

private:
  struct arrival {
    std::shared_ptr<scratch_block> buffer;  ///< null: there was no memory, the chunk is dropped
    std::size_t missing = 0;
  };
  struct arrival_name {
    std::uint64_t sender;
    std::uint64_t transfer;
    bool operator==(const arrival_name&) const = default;
  };
  struct arrival_hash {
    std::size_t operator()(const arrival_name& n) const noexcept {
      return static_cast<std::size_t>((n.transfer ^ n.sender << 40) * 0x9e3779b97f4a7c15u >> 7);
    }
  };

  std::uint64_t next_name_ = 0;
  std::unordered_map<arrival_name, arrival, arrival_hash> arrivals_;
};

}  // namespace troupe::actors
