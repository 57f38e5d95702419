// SPDX-License-Identifier: Apache-2.0
#pragma once
// Descriptors: a rank's part of a collective in the words of a NIC that performs it (Tianhe's collective offload, docs/offload.md).
//
// A host posts *sequences* to virtual ports. The descriptors of a sequence are performed one after the other. A descriptor waits for
// its packets, which it names by key and takes in the order in which it names them, whatever order they come in. When it has them it
// fires: what came takes the place of its own data, or is combined with them, and goes on to its destination.
//
//   local copy or reduction    no packets, no destination: own → target
//   send                       no packets, a destination: own → packet
//   receive                    packets → target
//   receive and forward        packets → target → packet
//   gather                     packets of several nodes ⊕ own → target (→ packet): a node of a tree with all its children
//   token                      a packet without data; one from another port of its own node orders two sequences
//   end                        the last of a sequence: fires when nobody reads the memory of the sequence any more
//
// Keys. The packets of a source port for a destination port form a *channel*. Its messages are numbered, and SeqID is the number's low
// five bits. They name a message as long as fewer than 32 of a channel are under way, which credits see to.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "protocols/program/cells.hpp"

namespace troupe::offload {

// Widths of the fields, as the source has them.
inline constexpr unsigned job_bits = 8, sequence_bits = 5, port_bits = 11, node_bits = 24, count_bits = 6;
inline constexpr int most_jobs = 1 << job_bits, most_ports = 1 << port_bits, most_nodes = 1 << node_bits;
/// Messages that SeqID tells apart, and packets that a descriptor can wait for.
inline constexpr int seq_ids = 1 << sequence_bits, most_awaited = (1 << count_bits) - 1;

/// A process's place in the network: where its NIC is, and which of the NIC's virtual ports is the first of its own.
struct endpoint {
  std::uint32_t node = 0;
  std::uint16_t first_port = 0;
  bool operator==(const endpoint&) const = default;
};

/// A message that a descriptor waits for: what its packets' key consists of beside the job.
struct awaited_message {
  std::uint32_t node = 0;
  std::uint16_t port = 0;  ///< SourceVP of the packets
  std::uint8_t seq_id = 0;
  bool swapped = false;  ///< combine the other way round: what is there already ⊕ what came
  bool operator==(const awaited_message&) const = default;
};

/// Bytes of one of the rank's buffers, which hold whole elements. In the source: "operands or address + length".
struct operand {
  buffer_kind buffer = buffer_kind::none;
  std::size_t offset = 0;  ///< bytes
  bool operator==(const operand&) const = default;
};

struct descriptor {
  // The fields of the source. JobID is the sequence's.
  std::uint8_t seq_id = 0;        ///< SeqID of the packets that it sends
  std::uint16_t source_port = 0;  ///< SourceVP: the port whose sequence it is of
  std::uint16_t dest_port = 0;    ///< DestVP
  std::uint32_t dest_node = 0;    ///< DestID
  bool collective = true;         ///< C: for an offload unit, not for the point-to-point path
  bool head = false;              ///< CH: the first of its sequence
  bool tail = false;              ///< CT: the last
  bool triggers = false;          ///< CP: it sends packets, which trigger an operation at the destination
  std::uint8_t count = 0;         ///< CPCount: messages that it waits for
  bool swap_local_data = false;   ///< what came takes the place of its own data (with `reduce`: is combined with them)
  bool swap_local_port = false;   ///< its packets leave by the port that the trigger came to, instead of source_port
  bool swap_remote_data = false;  ///< its packets have data, for the operation that they trigger; else they are tokens
  bool swap_remote_address =
      false;            ///< its packets say where in the remote operation's memory they belong: there are several
  bool reduce = false;  ///< ReduceFlag: what it takes is combined with what it has
  bool collective_end = false;  ///< CollEndFlag: a completion event for the destination, which is its own port
  // The payload. Without `count`, own → target (a local step, reduced into it with `reduce`) or own → packet. With it, own is what the
  // first message is combined with; `none` where nothing is. The result is kept in `target`, and sent from there.
  operand own;
  operand target;
  std::size_t elements = 0;
  // What the source leaves open: how a descriptor names the nodes that it waits for, whether its destination reduces (which is what
  // pulses are for), and the order of a local step's operands.
  std::uint32_t awaited = 0;                      ///< the first of `count` in rank_program::awaited
  bool reduced_there = false;                     ///< the operation that its packets trigger reduces
  bool swapped = false;                           ///< of a local reduction: own ⊕ target
  std::int32_t score_lane = -1, score_step = -1;  ///< the first step that it performs; −1: none
};

/// Sequence of one port. Never empty: it has an end.
struct sequence {
  std::uint16_t port = 0;
  std::vector<descriptor> descriptors;
};

/// The posting of one rank for an operation.
struct rank_program {
  rank_t rank = 0;
  endpoint at;
  std::vector<sequence> sequences;
  std::vector<awaited_message> awaited;
  std::size_t element_size = 1;
  std::size_t scratch_bytes = 0;  ///< of the rank's memory: the score's scratch, and results that are passed on only
  int credits = 0;                ///< messages that a channel may have under way

  std::span<const awaited_message> messages_of(const descriptor& d) const {
    return std::span{awaited}.subspan(d.awaited, d.count);
  }
};

/// "gather" and the like: the first column of the list above.
std::string kind_of(const descriptor& d);
/// One line: "1 gather  packets 3:0#0 4:0#0 ⊕ input+0 → scratch+0 → 0:0#0  [CH CP SwapLocalData …]". `who` is whose it is.
std::string to_string(const rank_program& who, const descriptor& d);
/// Header and line a descriptor of the rank, by sequence.
std::string to_text(const rank_program& what);
/// A list of ranks: {"rank", "node", "scratch_bytes", "sequences": [{"port", "descriptors": [{…the fields by the source's names…}]}]}
std::string to_json(std::span<const rank_program> all, int indent = 1);

}  // namespace troupe::offload
