// SPDX-License-Identifier: Apache-2.0
#pragma once
// What NICs that perform collectives say to each other and to their hosts. No CAF in here.
//
//   packet      data or a token on a channel, from a source port to a destination port (protocols/offload/descriptor.hpp)
//   response    how many of a channel's packets its receiver has taken; it may ask for the rest once more
//   completion  a rank's part has ended

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocols/score/score.hpp"
#include "topology/machine/links.hpp"

namespace troupe::actors {

/// Which operation: JobID, and which of the operations that used it one after the other. The source has the eight bits alone; the epoch
/// keeps late packets of an ended job from its successor.
struct offload_job {
  std::uint8_t id = 0;
  std::uint64_t epoch = 0;
  bool operator==(const offload_job&) const = default;
};

/// From where to where, as the sender sees it.
struct offload_channel_name {
  std::uint32_t source_node = 0, dest_node = 0;
  std::uint16_t source_port = 0, dest_port = 0;
  bool operator==(const offload_channel_name&) const = default;
};

struct offload_packet {
  offload_job job;
  offload_channel_name on;
  std::uint8_t seq_id = 0;
  bool has_data = false;
  bool has_address = false;       ///< `index` says where the data belong
  std::uint32_t index = 0;        ///< of the message's packets
  std::uint64_t number = 0;       ///< of the channel's packets, for the link alone: what was taken is not taken again
  std::size_t bytes = 0;          ///< of data
  std::vector<std::byte> data{};  ///< empty where a NIC carries no payload, or …
  const std::byte* lies_at =
      nullptr;  ///< … refers to it: the sender's memory, which stays as it is until the packet was taken, …
  std::shared_ptr<const void> keep{};  ///< … or that with which a link has brought it
  rank_t rank = -1;                    ///< whose sequence it is of
};

struct offload_response {
  offload_job job;
  offload_channel_name on;
  std::uint64_t taken = 0;  ///< packets of the channel, from the first on
  bool again = false;       ///< some were refused: send again from there
};

struct offload_completion {
  offload_job job;
  rank_t rank = -1;
  std::string error{};  ///< a sentence; empty: performed
};

struct offload_config {
  /// Its own in the network. None: every job has names of its own for the nodes that it is on, and calls this one as its descriptors do.
  std::optional<std::uint32_t> node = 0;
  int units = 8;  ///< offload units
  std::size_t buffer_bytes =
      std::size_t{512} * 1024;      ///< of every unit's hash buffer; 10 % come on top, for collisions
  std::size_t packet_bytes = 1024;  ///< of data, at most
  std::size_t window = 32;          ///< packets of a channel under way
  std::size_t reduction_elements =
      8192;            ///< C: what the network reduces at once; longer reductions are cut into pulses
  int pulses = 4;      ///< k: of a message under way, each of ⌈C/k⌉ elements
  int counters = 256;  ///< of the pulse controller: one for each pulse under way
  /// While senders wait for a counter and nothing is taken for so long, all counters come back: what they stand for may not be taken before
  /// what the others would send.
  picoseconds counter_retry{std::chrono::microseconds{100}};
  picoseconds longest_counter_wait{std::chrono::seconds{1}};  ///< of a sender; then its operation fails
  picoseconds resend{std::chrono::milliseconds{20}};  ///< silence after which packets are sent again; doubles up to
  picoseconds longest_resend{std::chrono::milliseconds{320}};
  std::size_t most_sequences = 8192;  ///< posted at a time
  bool carries = true;                ///< false: no bytes are moved, and there need not be memory for them
  bool refers =
      false;  ///< packets do not bring their bytes along but say where they lie: all NICs are in one address space
};

}  // namespace troupe::actors
