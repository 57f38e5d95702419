// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/graph.hpp"

#include "memory/error.hpp"

#include <array>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t index_of(element_kind kind) noexcept { return static_cast<std::size_t>(kind); }

constexpr int segments_of_ring(int core_groups) noexcept {
  return core_groups <= 1 ? 0 : core_groups == 2 ? 1 : core_groups;
}

bool below(int value, std::size_t limit) noexcept { return value >= 0 && static_cast<std::size_t>(value) < limit; }

// "0.1" etc.; numbers joined by a separator.
std::string joined(int a, const char* separator, int b) { return std::to_string(a) + separator + std::to_string(b); }

}  // namespace

std::string_view name(element_kind kind) noexcept {
  constexpr std::array<std::string_view, element_kind_count> names{"dma",    "ring segment", "card link", "nic",
                                                                   "switch", "host",         "pcie"};
  return index_of(kind) < names.size() ? names[index_of(kind)] : "unknown element";
}

link_class link_class_of(element_kind kind) noexcept {
  switch (kind) {
    case element_kind::dma: return link_class::core_group_memory;
    case element_kind::ring_segment: return link_class::ring_bus;
    case element_kind::card_link: return link_class::card_link;
    case element_kind::nic: return link_class::nic;
    case element_kind::network_switch: return link_class::switch_fabric;
    case element_kind::host: return link_class::host_memory;
    case element_kind::pcie: return link_class::pcie;
  }
  return link_class::core_group_memory;
}

machine::machine(layout ranks, machine_options options) : layout_(std::move(ranks)), options_(options) {
  layout_.validate();
  constexpr int most_ports = 1 << 16;  // with max. 2^24 servers ids stay far below 2^63
  if (options_.nic_ports < 1 || options_.nic_ports > most_ports)
    throw error(errc::bad_config, "machine: nic_ports is " + std::to_string(options_.nic_ports) + ", must be 1 to " +
                                      std::to_string(most_ports));
  servers_ = static_cast<std::size_t>(layout_.servers);
  cards_ = static_cast<std::size_t>(layout_.cards);
  core_groups_ = static_cast<std::size_t>(layout_.core_groups);
  ports_ = static_cast<std::size_t>(options_.nic_ports);
  segments_ = segments_of_ring(layout_.core_groups);
  const bool hosts = layout_.has_hosts();
  const std::size_t counts[element_kind_count] = {
      servers_ * cards_ * core_groups_, servers_ * cards_ * static_cast<std::size_t>(segments_) * 2,
      servers_ * cards_ * (cards_ - 1), servers_ * ports_,
      options_.has_switch ? 1u : 0u,    hosts ? servers_ : 0,
      hosts ? servers_ * cards_ * 2 : 0};
  for (std::size_t k = 0; k < element_kind_count; ++k) first_[k + 1] = first_[k] + counts[k];
}

std::size_t machine::count_of(element_kind kind) const noexcept {
  const std::size_t k = index_of(kind);
  return k < element_kind_count ? first_[k + 1] - first_[k] : 0;
}

element_id machine::id_of(const machine_element& what) const {
  const bool on_card = below(what.server, servers_) && below(what.card, cards_);
  // Only evaluated after the range checks below.
  const auto card = [&] {
    return static_cast<std::size_t>(what.server) * cards_ + static_cast<std::size_t>(what.card);
  };
  const auto index = static_cast<std::size_t>(what.index);
  const element_id first = first_[index_of(what.kind) < element_kind_count ? index_of(what.kind) : 0];
  switch (what.kind) {
    case element_kind::dma:
      if (on_card && below(what.index, core_groups_)) return first + card() * core_groups_ + index;
      break;
    case element_kind::ring_segment:
      if (on_card && what.index >= 0 && what.index < segments_ &&
          (what.way == direction::clockwise || what.way == direction::counterclockwise))
        return first + (card() * static_cast<std::size_t>(segments_) + index) * 2 +
               (what.way == direction::counterclockwise ? 1 : 0);
      break;
    case element_kind::card_link:
      if (on_card && below(what.index, cards_) && what.index != what.card)
        return first + card() * (cards_ - 1) + index - (what.index > what.card ? 1 : 0);
      break;
    case element_kind::nic:
      if (below(what.server, servers_) && below(what.index, ports_))
        return first + static_cast<std::size_t>(what.server) * ports_ + index;
      break;
    case element_kind::network_switch:
      if (options_.has_switch) return first;
      break;
    case element_kind::host:
      if (below(what.server, servers_) && count_of(what.kind) > 0) return first + static_cast<std::size_t>(what.server);
      break;
    case element_kind::pcie:
      if (on_card && count_of(what.kind) > 0) return first + card() * 2 + (what.way == direction::in ? 1 : 0);
      break;
  }
  throw error(errc::invalid_argument, "machine: no " + std::string(name(what.kind)) + " with server " +
                                          std::to_string(what.server) + ", card " + std::to_string(what.card) +
                                          ", index " + std::to_string(what.index) + " in a machine of " +
                                          joined(layout_.servers, "x", layout_.cards) + "x" +
                                          std::to_string(layout_.core_groups));
}

machine_element machine::at(element_id id) const {
  if (id >= element_count())
    throw error(errc::invalid_argument, "machine: element " + std::to_string(id) + " does not exist, ids are 0 to " +
                                            std::to_string(element_count() - 1));
  std::size_t k = 0;
  while (id >= first_[k + 1]) ++k;
  std::size_t rest = id - first_[k];
  machine_element result;
  result.kind = static_cast<element_kind>(k);
  const auto take = [&rest](std::size_t extent) {  // peel off the innermost coordinate
    const auto value = static_cast<int>(rest % extent);
    rest /= extent;
    return value;
  };
  switch (result.kind) {
    case element_kind::dma: result.index = take(core_groups_); break;
    case element_kind::ring_segment:
      result.way = take(2) == 0 ? direction::clockwise : direction::counterclockwise;
      result.index = take(static_cast<std::size_t>(segments_));
      break;
    case element_kind::card_link: result.index = take(cards_ - 1); break;
    case element_kind::nic:
      result.index = take(ports_);
      result.server = static_cast<int>(rest);
      return result;
    case element_kind::network_switch: return result;
    case element_kind::host: result.server = static_cast<int>(rest); return result;
    case element_kind::pcie: result.way = take(2) == 0 ? direction::out : direction::in; break;
  }
  result.card = take(cards_);
  result.server = static_cast<int>(rest);
  if (result.kind == element_kind::card_link && result.index >= result.card) ++result.index;
  return result;
}

element_id machine::memory_of(const coordinates& place) const {
  if (place.host) return id_of({element_kind::host, place.server});
  return id_of({element_kind::dma, place.server, place.card, place.core_group});
}

std::string machine::to_string(const machine_element& what) const {
  switch (what.kind) {
    case element_kind::dma: return "dma " + joined(what.server, ".", what.card) + "." + std::to_string(what.index);
    case element_kind::ring_segment: {
      const int next = layout_.core_groups > 0 ? (what.index + 1) % layout_.core_groups : 0;
      const bool clockwise = what.way != direction::counterclockwise;
      return "ring " + joined(what.server, ".", what.card) + ":" +
             joined(clockwise ? what.index : next, "→", clockwise ? next : what.index);
    }
    case element_kind::card_link:
      return "link " + std::to_string(what.server) + ":" + joined(what.card, "→", what.index);
    case element_kind::nic: return "nic " + joined(what.server, ":", what.index);
    case element_kind::network_switch: return "switch";
    case element_kind::host: return "host " + std::to_string(what.server);
    case element_kind::pcie:
      return "pcie " + joined(what.server, ".", what.card) + (what.way == direction::in ? " down" : " up");
  }
  return "unknown element";
}

}  // namespace troupe
