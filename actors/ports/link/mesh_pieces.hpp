// SPDX-License-Identifier: Apache-2.0
#pragma once
// Frames and parts of frames that a mesh has to send. For the files of the mesh alone.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <sys/uio.h>

#include "actors/ports/link/frames.hpp"
#include "actors/ports/link/mesh.hpp"

namespace troupe::actors {

/// A frame on its way out: head and what is copied, then what is referred to, then zeros.
struct mesh::piece {
  std::array<std::byte, sizeof(frame_head) + sizeof(announce_body)> start{};
  std::size_t start_bytes = 0;
  std::vector<std::byte> body;
  const std::byte* payload = nullptr;
  std::size_t payload_bytes = 0;
  std::shared_ptr<const void> keep;
  communicator_id communicator = 0;
  rank_t source = -1;  ///< of a chunk
  rank_t to = -1;
  epoch_t epoch = 0;
  std::size_t done = 0;  ///< bytes that the system has taken
  bool settled = false;  ///< its sender does not wait for it
  bool stripe = false;   ///< or all of a chunk that any lane might have taken

  piece(frame_head& head, const void* fixed, std::size_t fixed_bytes) : communicator(head.communicator), to(head.to) {
    start_bytes = sizeof head + fixed_bytes;
    std::memcpy(start.data(), &head, sizeof head);
    if (fixed_bytes > 0) std::memcpy(start.data() + sizeof head, fixed, fixed_bytes);
  }
  void number(std::uint64_t n) { std::memcpy(start.data() + offsetof(frame_head, number), &n, sizeof n); }
  std::size_t content() const { return start_bytes + body.size() + payload_bytes; }
  std::size_t total() const { return static_cast<std::size_t>(padded(content())); }
  /// What is left to write.
  std::size_t parts(std::array<iovec, 4>& to) const {
    static constexpr std::array<std::byte, 16> zeros{};
    const std::pair<const std::byte*, std::size_t> all[] = {{start.data(), start_bytes},
                                                            {body.data(), body.size()},
                                                            {payload, payload_bytes},
                                                            {zeros.data(), total() - content()}};
    std::size_t skip = done, n = 0;
    for (const auto& [data, bytes] : all) {
      const std::size_t behind = std::min(skip, bytes);
      skip -= behind;
      if (bytes > behind) to[n++] = {const_cast<std::byte*>(data + behind), bytes - behind};
    }
    return n;
  }
  /// Of a chunk. A credit for it would be called that.
  bool is_called(const credit_body& what) const {
    chunk_body mine;
    std::memcpy(&mine, start.data() + sizeof(frame_head), sizeof mine);
    return to == what.source && epoch == what.epoch && mine.lane == what.lane && mine.sequence == what.sequence;
  }
  /// The payload becomes its own.
  void own() {
    if (payload_bytes == 0 || keep != nullptr) return;
    auto copy = std::make_shared<std::vector<std::byte>>(payload, payload + payload_bytes);
    payload = copy->data();
    keep = std::move(copy);
  }
};

/// A chunk that any lane may take: in stripes, if it was cleared, else as it is.
struct mesh::striped_chunk {
  piece whole;
  bool in_stripes = true;
  std::uint64_t next = 0;  ///< bytes of it that lanes have taken

  bool taken() const { return next == whole.payload_bytes; }
  piece take();
};

}  // namespace troupe::actors
