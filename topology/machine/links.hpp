// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ratio>
#include <string_view>

namespace troupe {

/// Virtual times are whole picoseconds: 8 bytes at 100 GB/s take 80 ps, and int64 still spans 106 days. Whole numbers
/// keep traces identical on every machine.
using picoseconds = std::chrono::duration<std::int64_t, std::pico>;

enum class link_class : std::uint8_t {
  core_group_memory,  // a core group's DMA engine and the memory behind it
  ring_bus,           // one segment of a card's ring bus, one direction
  pcie,               // host to card; shared by the card's core groups
  card_link,          // direct link between two cards of a server, one direction
  nic,                // one port, each direction
  switch_fabric,      // non-blocking: bandwidth per port
  host_memory,        // a host's, and what reads and writes it for PCIe
};
inline constexpr int link_class_count = 7;

std::string_view name(link_class) noexcept;

/// α and 1/β of one link.
struct link_parameters {
  std::chrono::nanoseconds alpha{0};   // latency of an empty transfer
  std::uint64_t bytes_per_second = 1;  // bandwidth; 0 counts as 1

  /// bytes / bandwidth, rounded up to a picosecond, saturating. Without α: this is how long the link is occupied.
  picoseconds occupancy(std::uint64_t bytes) const noexcept;
  /// α + bytes / bandwidth, saturating: when the last byte of a transfer alone on the link has arrived.
  picoseconds time_of(std::uint64_t bytes) const noexcept;

  friend constexpr bool operator==(const link_parameters&, const link_parameters&) = default;
};

/// How far a default may be trusted.
enum class provenance : std::uint8_t {
  cited,    // the published figure named in `source`
  assumed,  // no figure published; a placeholder until it is measured or fitted, reports must say so
};

/// Defaults, each of the two numbers with its origin.
struct link_default {
  link_parameters parameters;
  provenance alpha_from;
  provenance bandwidth_from;
  std::string_view source;
};

const link_default& default_of(link_class) noexcept;

}  // namespace troupe
