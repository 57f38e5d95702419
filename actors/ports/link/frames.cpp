// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/frames.hpp"

#include <algorithm>
#include <utility>

#include "actors/ports/link/wire.hpp"

namespace troupe {

// -- enumerations and structures of lower layers, where argument-dependent look-up finds them ---------------------------------

constexpr collective last_of(collective) { return all_collectives.back(); }
constexpr datatype last_of(datatype) { return all_datatypes.back(); }
constexpr op_kind last_of(op_kind) { return all_op_kinds.back(); }
constexpr determinism last_of(determinism) { return determinism::topology_stable; }
constexpr message_protocol last_of(message_protocol) { return message_protocol::nic; }
constexpr agreement_time last_of(agreement_time) { return agreement_time::eager; }
constexpr call_purpose last_of(call_purpose) { return call_purpose::expert_exchange; }
constexpr errc last_of(errc) { return last_errc; }

// Internal to this file, but not in an unnamed namespace: argument-dependent look-up would not find them there.
static void describe(auto& wire, ended_call& e) { wire(e.sequence, e.result); }
static void describe(auto& wire, call_report::entry& e) { wire(e.sequence, e.text, e.fingerprint); }
static void describe(auto& wire, call_report& r) {
  wire(r.plan, r.planned, r.by_nic, r.ahead, r.earlier, r.known_from);
}
/// Of a user's function only that there is one, its name, and the mark of its type.
static void describe(auto& wire, op& o) {
  std::string name{o.name.view()};
  wire(o.kind, o.scale, o.commutative, o.associative, name, o.type_mark);
  if constexpr (std::is_same_v<decltype(wire), actors::wire_reader&>)
    if (!name.empty()) {
      if (op_name::fits(name)) o.name = op_name{name};
      else wire.refuse();
    }
}
static void describe(auto& wire, call& c) {
  wire(c.what, c.uniform, c.in_place, c.type, c.reduction, c.root, c.count, c.level, c.protocol, c.agreement, c.offload,
       c.purpose, c.choreography, c.counts, c.receive_counts, c.pieces, c.pieces_mark, c.outcome_of, c.history,
       c.report);
}
static void describe(auto& wire, presence& p) { wire(p.what, p.performed, p.ahead); }
static void describe(auto& wire, sends_made& s) { wire(s.to, s.next); }
static void describe(auto& wire, failure& f) { wire(f.code, f.text); }
static void describe(auto& wire, survivors_word& w) { wire(w.what, w.coordinator, w.attempt, w.ranks, w.list); }

}  // namespace troupe

namespace troupe::actors {

static void describe(auto& wire, called_message& m) { wire(m.epoch, m.rank, m.what); }
static void describe(auto& wire, differs_message& m) { wire(m.epoch); }
static void describe(auto& wire, withdraw_message& m) { wire(m.epoch, m.rank, m.ahead); }
static void describe(auto& wire, fail_message& m) { wire(m.epoch, m.title, m.why); }
static void describe(auto& wire, stopped_message& m) { wire(m.epoch, m.rank, m.waits, m.came); }
static void describe(auto& wire, left_message& m) { wire(m.rank, m.operations, m.last, m.sent); }
static void describe(auto& wire, quiet_message& m) { wire(m.rank); }
static void describe(auto& wire, perished_message& m) { wire(m.rank); }
static void describe(auto& wire, abort_message& m) { wire(m.why); }

static void describe(auto& wire, agreed_message& m) { wire(m.epoch, m.counts); }
static void describe(auto& wire, ask_message& m) { wire(m.epoch); }
static void describe(auto& wire, halt_message& m) { wire(m.epoch); }
static void describe(auto& wire, failed_message& m) { wire(m.epoch, m.why); }
static void describe(auto& wire, broken_message& m) { wire(m.why); }
static void describe(auto& wire, peer_left_message& m) { wire(m.rank, m.sent); }
static void describe(auto& wire, peer_lost_message& m) { wire(m.rank); }
static void describe(auto&, dissolved_message&) {}

static void describe(auto& wire, pair_word& w) {
  wire(w.what, w.from, w.epoch, w.flag, w.why, w.look, w.nobody_else, w.text);
}

static void describe(auto&, beat_word&) {}
static void describe(auto&, bye_word&) {}
static void describe(auto& wire, suspect_word& w) { wire(w.process, w.how); }
static void describe(auto& wire, lost_word& w) { wire(w.process, w.how); }
static void describe(auto& wire, gave_up_word& w) { wire(w.epoch, w.rank); }
static void describe(auto& wire, revoke_word& w) { wire(w.rank, w.text); }
static void describe(auto& wire, shrink_word& w) { wire(w.number, w.what); }

namespace {

/// A failure is told where one is due; code and text alone would be read as success.
template <class Word>
bool lacks_failure(const Word& word) {
  if constexpr (requires { word.why; }) return word.why == nullptr;
  else return false;
}

template <class Variant>
std::vector<std::byte> variant_to_wire(const Variant& what) {
  std::vector<std::byte> bytes;
  wire_writer wire{bytes};
  wire(static_cast<std::uint32_t>(what.index()));
  std::visit([&](const auto& each) { wire(each); }, what);
  return bytes;
}

template <class Variant, std::size_t... I>
std::optional<Variant> variant_at(std::uint32_t index, wire_reader& wire, std::index_sequence<I...>) {
  std::optional<Variant> found;
  const auto take = [&]<std::size_t At>() {
    if (At != index) return;
    std::variant_alternative_t<At, Variant> word{};
    wire(word);
    if (wire.complete() && !lacks_failure(word)) found.emplace(std::in_place_index<At>, std::move(word));
  };
  (take.template operator()<I>(), ...);
  return found;
}

template <class Variant>
std::optional<Variant> variant_from_wire(std::span<const std::byte> body) {
  wire_reader wire{body};
  std::uint32_t index = 0;
  wire(index);
  if (wire.bad()) return std::nullopt;
  return variant_at<Variant>(index, wire, std::make_index_sequence<std::variant_size_v<Variant>>{});
}

}  // namespace

std::string why_no_frame(const frame_head& head, std::uint64_t expected) {
  if (head.kind > last_frame_kind || head.unused != 0)
    return "a frame of unknown kind " + std::to_string(static_cast<int>(head.kind));
  if (head.number != expected)
    return "frame " + std::to_string(head.number) + " instead of " + std::to_string(expected);
  std::uint64_t least = 1, most = most_word_bytes;
  switch (head.kind) {
    case frame_kind::chunk: least = sizeof(chunk_body), most = most_chunk_bytes + sizeof(chunk_body); break;
    case frame_kind::packet: least = sizeof(chunk_body), most = most_packet_bytes + sizeof(chunk_body); break;
    case frame_kind::ready: least = most = sizeof(chunk_body); break;
    case frame_kind::response:
    case frame_kind::credit:
    case frame_kind::clear: least = most = sizeof(credit_body); break;
    case frame_kind::freed: least = most = sizeof(freed_body); break;
    case frame_kind::announce: least = most = sizeof(announce_body); break;
    case frame_kind::stripe: least = sizeof(stripe_body) + 1, most = sizeof(stripe_body) + stripe_bytes; break;
    default: break;
  }
  if (head.bytes < least || head.bytes > most)
    return "a frame of " + std::to_string(head.bytes) + " bytes where from " + std::to_string(least) + " to " +
           std::to_string(most) + " are possible";
  return {};
}

std::string why_no_stripe(const frame_head& head, const stripe_body& body) {
  if (body.bytes <= stripe_bytes || body.bytes > most_chunk_bytes || body.name.settled != 0)
    return "a stripe of a chunk that has none";
  if (body.offset % stripe_bytes != 0 || body.offset >= body.bytes ||
      head.bytes - sizeof body != std::min(stripe_bytes, body.bytes - body.offset))
    return "a stripe of " + std::to_string(head.bytes - sizeof body) + " bytes at " + std::to_string(body.offset) +
           " of a chunk of " + std::to_string(body.bytes);
  return {};
}

std::vector<std::byte> to_wire(const pair_word& what) {
  std::vector<std::byte> bytes;
  wire_writer{bytes}(what);
  return bytes;
}
std::vector<std::byte> to_wire(const home_word& what) { return variant_to_wire(what); }
std::vector<std::byte> to_wire(const ranks_word& what) { return variant_to_wire(what); }
std::vector<std::byte> to_wire(const process_word& what) { return variant_to_wire(what); }

std::optional<pair_word> pair_word_from(std::span<const std::byte> body) {
  pair_word word;
  wire_reader wire{body};
  wire(word);
  const bool fails = word.what == pair_word::kind::revoke || word.what == pair_word::kind::refuse;
  if (!wire.complete() || (fails && !word.why)) return std::nullopt;
  return word;
}
std::optional<home_word> home_word_from(std::span<const std::byte> body) { return variant_from_wire<home_word>(body); }
std::optional<ranks_word> ranks_word_from(std::span<const std::byte> body) {
  return variant_from_wire<ranks_word>(body);
}
std::optional<process_word> process_word_from(std::span<const std::byte> body) {
  return variant_from_wire<process_word>(body);
}

}  // namespace troupe::actors
