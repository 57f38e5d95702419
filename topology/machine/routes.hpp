// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topology/machine/graph.hpp"

#include <string>
#include <vector>

namespace troupe {

/// One element on a chunk's way.
struct hop {
  element_kind kind = element_kind::dma;
  int server = 0;
  int card = 0;
  int index = 0;                   // as in `element`
  direction way = direction::out;  // which half of the element is used
  element_id id = 0;               // dense, of this machine

  friend constexpr bool operator==(const hop&, const hop&) = default;
};

/// The ordered way of a chunk. No hops: both ranks share a core group and hand over a direct reference.
struct route {
  int from = 0;
  int to = 0;
  std::vector<hop> hops{};

  bool is_direct() const noexcept { return hops.empty(); }
};

/// Routes between ranks of the machine's layout:
///   same core group       (direct reference)
///   same card             dma(a) → ring segments the shorter way round (a tie goes clockwise) → dma(b)
///   same server           dma(a) → link card(a)→card(b) → dma(b)
///   other server          dma(a) → nic(server a) → [switch] → nic(server b) → dma(b)
///   host and card         host → pcie(card b) → dma(b), and back; between servers a host is where a DMA engine would be
/// A server's NIC port is (rank's place in its server + channel) mod nic_ports, so that cards and channels spread over
/// ports and same-index peers meet on the same port number.
/// Cost: O(hops), one allocation; `into` of the second form keeps its capacity. There is no table of pairs: compute a
/// route when a pair first talks and keep it. Pure; safe from any thread.
/// @throws error(errc::invalid_argument) for an unknown rank or a negative channel.
route route_between(const machine& on, int from, int to, int channel = 0);
void route_between(const machine& on, int from, int to, int channel, route& into);

/// "rank 1 → dma 0.0.1 → ring 0.0:1→2 → dma 0.0.2 → rank 2"; "rank 1 → rank 2 (direct)" without hops.
std::string to_string(const machine& on, const route& way);

}  // namespace troupe
