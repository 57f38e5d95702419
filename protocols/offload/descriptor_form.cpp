// SPDX-License-Identifier: Apache-2.0
#include "protocols/offload/descriptor_form.hpp"

#include <algorithm>
#include <bitset>
#include <limits>

namespace troupe::offload {

namespace {

std::string_view fault_of_place(const descriptor& d, bool first, bool last) {
  if (!d.collective) return "a descriptor of a sequence is not marked as collective";
  if (d.head != first) return "CH is not on the first descriptor alone";
  if (d.tail != last || d.collective_end != last) return "CT and CollEndFlag are not on the last descriptor alone";
  return {};
}

/// Each follows from what it waits for, has and sends.
std::string_view fault_of_flags(const descriptor& d, std::size_t packet_elements) {
  const bool has_data = d.elements > 0, takes = d.count > 0;
  if (d.swap_local_data != (takes && has_data))
    return "SwapLocalData is not exactly where what comes has a place among its own data";
  if (d.swap_local_port != (takes && d.triggers))
    return "SwapLocalVP is not exactly where packets are sent on by the port that others came to";
  if (d.swap_remote_data != (d.triggers && has_data)) return "SwapRemoteData is not exactly where packets have data";
  if (d.swap_remote_address != (d.triggers && d.elements > packet_elements))
    return "SwapRemoteAddr is not exactly where a message has several packets; or it was compiled for packets of "
           "another size";
  if (takes && d.reduce != (d.own.buffer != buffer_kind::none))
    return "ReduceFlag is not exactly where what comes is combined with data of its own";
  if (d.reduce && (!has_data || (!takes && d.triggers))) return "ReduceFlag is where nothing is combined";
  if (d.swapped && (takes || !d.reduce)) return "what is not a local sum is swapped";
  if (d.reduced_there && !d.triggers) return "what sends nothing is reduced elsewhere";
  return {};
}

bool is_place(const operand& o, std::size_t element_size) {
  return o.buffer >= buffer_kind::input && o.buffer <= buffer_kind::scratch && o.offset % element_size == 0;
}

std::string_view fault_of_operands(const descriptor& d, std::size_t element_size) {
  if (d.elements == 0)
    return d.own == operand{} && d.target == operand{} ? std::string_view{} : "it has operands of no elements";
  if (d.elements > std::numeric_limits<std::size_t>::max() / 2 / element_size) return "it has more data than there are";
  // Which of the two there must be: what a local step and a send have, and where what comes is kept.
  const bool own = d.count == 0 || d.reduce, target = d.count > 0 || !d.triggers;
  if (own ? !is_place(d.own, element_size) : d.own != operand{}) return "its own data are no elements of the rank's";
  if (target ? !is_place(d.target, element_size) : d.target != operand{})
    return "its target is no place for elements of the rank's";
  return {};
}

std::string_view fault_of_names(const rank_program& who, const sequence& s, const descriptor& d) {
  if (d.source_port != s.port) return "a descriptor is of another port";
  if (d.collective_end && (d.triggers || d.count > 0 || d.elements > 0)) return "an end does something besides";
  if (d.collective_end && (d.dest_node != who.at.node || d.dest_port != s.port))
    return "it completes another port's operation";
  if (!d.collective_end && !d.triggers && d.count == 0 && d.elements == 0) return "a descriptor does nothing";
  if (d.triggers && (d.seq_id >= seq_ids || d.dest_port >= most_ports || d.dest_node >= std::uint32_t{most_nodes}))
    return "it sends to a node or port, or with a SeqID, that there is not";
  if (d.count > most_awaited) return "it waits for more packets than CPCount counts";
  const auto is_none = [](const awaited_message& m) {
    return m.seq_id >= seq_ids || m.port >= most_ports || m.node >= std::uint32_t{most_nodes};
  };
  if (std::ranges::any_of(who.messages_of(d), is_none))
    return "it waits for packets of a node or port, or with a SeqID, that there is not";
  return {};
}

std::string place_in(const rank_program& who, const sequence& s, std::size_t at) {
  return "rank " + std::to_string(who.rank) + ", port " + std::to_string(s.port) + ", descriptor " +
         std::to_string(at) + ": ";
}

std::string rank_of(const rank_program& who) { return "rank " + std::to_string(who.rank); }

}  // namespace

std::string why_not_well_formed(const rank_program& who, const sequence& s, std::size_t packet_elements) {
  if (s.port >= most_ports)
    return rank_of(who) + ": there is no port " + std::to_string(s.port) + "; a NIC has " + std::to_string(most_ports);
  if (s.descriptors.empty()) return rank_of(who) + ", port " + std::to_string(s.port) + ": a sequence has no end";
  std::size_t awaited = s.descriptors.front().awaited;
  for (std::size_t i = 0; i < s.descriptors.size(); ++i) {
    const descriptor& d = s.descriptors[i];
    // One behind the other's, since a NIC keeps where each comes from in one list.
    if (d.awaited != awaited || (awaited += d.count) > who.awaited.size())
      return place_in(who, s, i) + "it names packets that it does not list";
    for (const std::string_view fault :
         {fault_of_place(d, i == 0, i + 1 == s.descriptors.size()), fault_of_names(who, s, d),
          fault_of_flags(d, packet_elements), fault_of_operands(d, who.element_size)})
      if (!fault.empty()) return place_in(who, s, i) + std::string{fault};
  }
  return {};
}

std::string why_not_well_formed(const rank_program& who, std::size_t packet_elements) {
  if (who.sequences.empty()) return rank_of(who) + " posts no sequence";
  if (who.credits < 1 || who.credits >= seq_ids)
    return rank_of(who) + ": a channel has " + std::to_string(who.credits) + " credits; it must be 1 to " +
           std::to_string(seq_ids - 1);
  std::bitset<most_ports> seen;
  for (const sequence& s : who.sequences) {
    if (std::string why = why_not_well_formed(who, s, packet_elements); !why.empty()) return why;
    if (seen.test(s.port)) return rank_of(who) + ": two sequences have port " + std::to_string(s.port);
    seen.set(s.port);
  }
  return {};
}

std::string why_not_among_themselves(std::span<const rank_program> all) {
  std::bitset<most_ports> ports;
  for (const rank_program& p : all)
    for (const sequence& s : p.sequences) {
      if (p.at.node != all.front().at.node) return rank_of(p) + " is on another node than the others";
      if (ports.test(s.port)) return rank_of(p) + ": another rank has port " + std::to_string(s.port);
      ports.set(s.port);
    }
  const auto has = [&](std::uint32_t node, std::uint16_t port) {
    return node == all.front().at.node && ports.test(port);
  };
  for (const rank_program& p : all)
    for (const sequence& s : p.sequences)
      for (std::size_t i = 0; i < s.descriptors.size(); ++i) {
        const descriptor& d = s.descriptors[i];
        if (d.triggers && !has(d.dest_node, d.dest_port))
          return place_in(p, s, i) + "it sends to a port that nobody has";
        for (const awaited_message& m : p.messages_of(d))
          if (!has(m.node, m.port)) return place_in(p, s, i) + "it waits for packets of a port that nobody has";
      }
  return {};
}

}  // namespace troupe::offload
