#include "topology/rings.hpp"

#include "memory/error.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace troupe {

namespace {

[[noreturn]] void bad_argument(const std::string& what) { throw error(errc::invalid_argument, "ring: " + what); }

// The k-th (mod φ(n)) of the numbers 1 … n − 1 that are coprime to n; 1 for n <= 2.
std::size_t coprime_stride(std::size_t n, std::size_t k) {
  if (n <= 2) return 1;
  std::size_t count = 0;  // φ(n)
  for (std::size_t s = 1; s < n; ++s) count += std::gcd(s, n) == 1 ? 1 : 0;
  k %= count;
  for (std::size_t s = 1;; ++s)
    if (std::gcd(s, n) == 1 && k-- == 0) return s;
}

template <class T>
std::vector<T> walk(const std::vector<T>& items, std::size_t start, std::size_t stride) {
  std::vector<T> result;
  result.reserve(items.size());
  for (std::size_t i = 0, at = start % items.size(); i < items.size(); ++i, at = (at + stride) % items.size())
    result.push_back(items[at]);
  return result;
}

using card_ranks = std::vector<int>;           // ordered by core group, rank
using server_cards = std::vector<card_ranks>;  // ordered by card, none empty

std::vector<server_cards> by_server_and_card(const layout& on) {
  std::map<std::pair<int, int>, std::vector<std::pair<int, int>>> cards;  // (server, card) → (core group, rank)
  for (int r = 0; r < on.size(); ++r) {
    const coordinates at = on.of(r);
    cards[{at.server, at.card}].emplace_back(at.core_group, r);
  }
  std::vector<server_cards> servers;
  int last_server = -1;
  for (auto& [place, ranks] : cards) {
    if (place.first != last_server) servers.emplace_back();
    last_server = place.first;
    std::sort(ranks.begin(), ranks.end());
    card_ranks& card = servers.back().emplace_back();
    for (const auto& [group, rank] : ranks) card.push_back(rank);
  }
  return servers;
}

}  // namespace

ring_order identity_ring(int ranks) {
  if (ranks < 1) bad_argument(std::to_string(ranks) + " ranks, must be at least 1");
  ring_order order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

ring_order hierarchical_ring(const layout& on, int channel) {
  if (channel < 0) bad_argument("channel " + std::to_string(channel) + " is negative");
  on.validate();
  const auto c = static_cast<std::size_t>(channel);
  if (on.is_flat()) {
    const ring_order all = identity_ring(on.size());
    return walk(all, 0, coprime_stride(all.size(), c));
  }
  const auto servers = by_server_and_card(on);
  ring_order order;
  order.reserve(static_cast<std::size_t>(on.size()));
  for (const server_cards& cards : servers) {
    const std::size_t start = servers.size() == 1 ? 0 : c;
    const std::size_t stride = coprime_stride(cards.size(), servers.size() == 1 ? c : c / cards.size());
    for (const card_ranks& card : walk(cards, start, stride)) {
      // With a single card per server there is no card to choose: enter and leave at another core group instead.
      const std::size_t first = cards.size() == 1 ? c / 2 : 0;
      const bool clockwise = c % 2 == 0;
      const card_ranks ranks = walk(card, clockwise ? first : first + card.size() - 1, clockwise ? 1 : card.size() - 1);
      order.insert(order.end(), ranks.begin(), ranks.end());
    }
  }
  return order;
}

std::vector<ring_order> channel_rings(const layout& on, int channels) {
  if (channels < 0) bad_argument(std::to_string(channels) + " channels");
  std::vector<ring_order> rings;
  for (int c = 0; c < channels; ++c) rings.push_back(hierarchical_ring(on, c));
  return rings;
}

std::vector<int> ring_positions(const ring_order& order) {
  std::vector<int> position(order.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int rank = order[i];
    if (rank < 0 || static_cast<std::size_t>(rank) >= order.size() || position[static_cast<std::size_t>(rank)] >= 0)
      bad_argument("rank " + std::to_string(rank) + " at position " + std::to_string(i) +
                   " is unknown or appears twice; a ring names each rank once");
    position[static_cast<std::size_t>(rank)] = static_cast<int>(i);
  }
  return position;
}

}  // namespace troupe
