#pragma once

#include "topology/layout/layout.hpp"

#include <vector>

namespace troupe {

/// A ring order: each rank once; order[i] sends to order[i + 1], the last to the first. It is a cycle: where the vector
/// starts carries no meaning, except that servers come first to last in `hierarchical_ring`.
using ring_order = std::vector<int>;

/// 0, 1, …, ranks − 1. @throws error(errc::invalid_argument) if ranks < 1.
ring_order identity_ring(int ranks);

/// Follows the layout: server by server, card by card, core group by core group. Every server is entered once and left
/// once, every card likewise. Different channels get different rings:
///  - inside a card: even channels go clockwise, odd ones counter-clockwise (the two directions of the ring bus);
///  - one server: cards (ranks, if the layout is flat) are visited with stride s, s the channel-th number coprime to
///    their count. With n cards in full mesh, the first φ(n) channels share no card-to-card link;
///  - several servers: channel c starts at card c of every server, so any `cards` consecutive channels (beginning at a
///    multiple of it) enter every card once and leave from every card once, and use all NIC ports; then the stride changes.
///    With one card per server, channels 2k and 2k + 1 start k core groups further on.
/// Channels beyond what the layout has to offer repeat. O(size log size).
/// @throws error(errc::invalid_argument) if channel < 0, bad_config if the layout is invalid.
ring_order hierarchical_ring(const layout& on, int channel = 0);

/// hierarchical_ring for channels 0 … channels − 1.
std::vector<ring_order> channel_rings(const layout& on, int channels);

/// Position of every rank in the ring: position[order[i]] = i. @throws error(errc::invalid_argument) unless `order` is a
/// permutation of 0 … size − 1.
std::vector<int> ring_positions(const ring_order& order);

}  // namespace troupe
