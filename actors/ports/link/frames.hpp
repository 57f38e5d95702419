// SPDX-License-Identifier: Apache-2.0
#pragma once
// What processes of a job say to each other (the link port; docs/protocol.md shows every frame field by field).
//
// Each direction of a connection that has any carries frames, each a head of 32 bytes, a body, and zeros up to a multiple of 16, so that a payload
// that is received into aligned memory is aligned. Frames of one connection arrive in order; those of different ones in any.
//
// Here a *message* is a chunk frame: the bytes themselves behind the chunk's name (epoch, source, lane, sequence). Its *credit* is a
// frame of the other direction: the chunk was consumed, so its sender may send one more, and has its memory back. The *epoch* tells the
// operations of a communicator apart, and the head tells the communicators apart.
//
// A short message is *settled*: its sender has its memory back as soon as the bytes are on their way, and gets no credit. How many of those may be
// with a receiver that has not come to them yet is bounded by a *window* of bytes between two processes: the receiver reports now and then how many
// it has freed, all in all. A message that does not fit into the window any more goes for a credit.
//
// A long message asks first: its sender *announces* it, name and length, and keeps the bytes; when a step of the receiver waits for it, the
// receiver sends *clear*, and the chunk comes, straight into its place. So the memory of a late receiver does not grow with what is sent.
//
// NICs that perform collectives for the ranks of several hosts (ports/nic/nic_hosts.hpp) send each other *packets* of at most 64 KiB, which are there as
// long as their *responses* have not come, and only when both have said that they are *ready*.
//
// A peer may have several connections, *lanes*. All frames go on the first one, in order, but the *stripes* of long chunks that were cleared: each
// says which part of which chunk it is, so they come on any lane, in any order.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "actors/rank/words.hpp"
#include "protocols/agreement/survivors.hpp"
#include "protocols/chunk.hpp"

namespace troupe::actors {

/// Names a communicator in all processes of its job.
using communicator_id = std::uint64_t;

enum class frame_kind : std::uint8_t {
  chunk,     ///< to a rank's channel: chunk_body, payload
  credit,    ///< to a rank's channel: credit_body
  pair,      ///< to a rank: pair_word
  home,      ///< to the process where the membership is: home_word
  ranks,     ///< to the ranks of a process: ranks_word
  process,   ///< process_word
  announce,  ///< to a rank's channel: announce_body
  clear,     ///< to the process of a rank that has announced a chunk: credit_body
  freed,     ///< to a process that sends settled chunks: freed_body
  stripe,    ///< to a rank's channel, on any lane: stripe_body, a part of a chunk that was cleared
  packet,    ///< from NIC to NIC: chunk_body, payload
  response,  ///< from NIC to NIC: credit_body, what was taken
  ready,     ///< from NIC to NIC: chunk_body, an operation may begin
};
inline constexpr frame_kind last_frame_kind = frame_kind::ready;
/// It begins with a chunk_body.
constexpr bool has_chunk_body(frame_kind kind) {
  return kind == frame_kind::chunk || kind == frame_kind::packet || kind == frame_kind::ready;
}

/// Of a send; longer ones are announced. A shorter message would lose more to the way there and back than a copy takes.
inline constexpr std::size_t most_unasked = 128 * 1024;
/// Of a collective's chunks, of which only as many as there are credits are under way, and most find their place waiting. Those that do not are copied
/// once more, and frames that are written meanwhile wait behind them.
inline constexpr std::size_t most_unasked_of_collectives = 256 * 1024;
constexpr bool is_announced(epoch_t epoch, std::size_t bytes) {
  return bytes > ((epoch & point_to_point) != 0 ? most_unasked : most_unasked_of_collectives);
}

/// Longer ones are not settled: what a credit costs is little beside them, and they may have to be copied aside.
inline constexpr std::size_t most_settled = 64 * 1024;
/// Bytes of frames with settled chunks that one process may have with another.
inline constexpr std::uint64_t settled_window = 1024 * 1024;

/// Connections of one process to another.
inline constexpr int most_connections = 16;
/// Of a chunk: every stripe but the last one. Shorter ones would cost more calls of the system, longer ones would leave a lane waiting for another.
inline constexpr std::uint64_t stripe_bytes = 256 * 1024;

struct frame_head {
  std::uint64_t bytes = 0;  ///< of body and payload, without the zeros behind them
  communicator_id communicator = 0;
  std::uint64_t number = 0;  ///< 0, 1, 2 … of the connection
  rank_t to = -1;
  std::uint16_t channel = 0;
  frame_kind kind = frame_kind::process;
  std::uint8_t unused = 0;
};
static_assert(sizeof(frame_head) == 32);

struct chunk_body {
  std::uint64_t epoch = 0;
  std::uint64_t fingerprint = 0;
  rank_t source = -1;
  std::uint32_t lane = 0;
  std::uint32_t sequence = 0;
  std::uint32_t settled = 0;  ///< 1: no credit is to come back
};
static_assert(sizeof(chunk_body) == 32);

struct announce_body {
  chunk_body name;
  std::uint64_t bytes = 0;  ///< of the payload
  std::uint64_t unused = 0;
};
static_assert(sizeof(announce_body) == 48);

struct stripe_body {
  chunk_body name;
  std::uint64_t bytes = 0;   ///< of the chunk's payload
  std::uint64_t offset = 0;  ///< of the stripe in it: a multiple of stripe_bytes
};
static_assert(sizeof(stripe_body) == 48);

struct credit_body {
  std::uint64_t epoch = 0;
  rank_t source = -1;
  std::uint32_t lane = 0;
  std::uint32_t sequence = 0;
  std::uint32_t unused = 0;
};
static_assert(sizeof(credit_body) == 24);

struct freed_body {
  std::uint64_t bytes =
      0;  ///< of frames with settled chunks that the receiver has read and forgotten since the connection began
};
static_assert(sizeof(freed_body) == 8);

/// A frame takes that many bytes behind its head.
constexpr std::uint64_t padded(std::uint64_t bytes) { return (bytes + 15) / 16 * 16; }
/// Of everything but chunks: the longest is a v-call's counts in a table of all ranks' calls.
inline constexpr std::uint64_t most_word_bytes = std::uint64_t{64} << 20;
/// Of a NIC's packet: its payload.
inline constexpr std::uint64_t most_packet_bytes = 64 * 1024;
/// Of a chunk. A longer send is cut (pairs over links are), a longer slice does not exist.
inline constexpr std::uint64_t most_chunk_bytes = std::uint64_t{1} << 46;

/// Why the head cannot be one; empty if it can. @param expected its number
std::string why_no_frame(const frame_head& head, std::uint64_t expected);
/// Why it can be no stripe; empty if it can. @pre why_no_frame() has nothing against the head
std::string why_no_stripe(const frame_head& head, const stripe_body& body);
/// Such a frame may come on any lane of its sender; others come on the first one, in order.
constexpr bool goes_on_any_lane(const frame_head& head) {
  return head.kind == frame_kind::stripe || head.kind == frame_kind::process ||
         (head.kind == frame_kind::chunk && head.bytes > sizeof(chunk_body) + most_settled);
}

/// From one end of a send or receive to the other.
struct pair_word {
  enum class kind : std::uint32_t { revoke, revoked, refuse, inquire, ask_for, look_again } what = kind::revoke;
  rank_t from = -1;
  epoch_t epoch = 0;
  bool flag = false;  ///< revoked: received before; the others: of a send
  failure_ptr why;
  look_t look = 0;
  bool nobody_else = false;
  std::string text{};  ///< ask_for: what the log is to say
};
constexpr pair_word::kind last_of(pair_word::kind) { return pair_word::kind::look_again; }

/// From a rank to its communicator's membership.
using home_word = std::variant<called_message, differs_message, withdraw_message, fail_message, stopped_message,
                               left_message, quiet_message, perished_message, abort_message>;
/// All ranks of the communicator have left, or it was ended.
struct dissolved_message {};
/// From the membership to every rank of a process.
using ranks_word = std::variant<agreed_message, ask_message, halt_message, failed_message, broken_message,
                                peer_left_message, peer_lost_message, dissolved_message>;

/// "I am here."
struct beat_word {};
/// Nothing follows: the process leaves the job in order.
struct bye_word {};
/// To process 0: `process` does not answer me.
struct suspect_word {
  std::uint32_t process = 0;
  std::string how;
};
/// From process 0: `process` is out of the job.
struct lost_word {
  std::uint32_t process = 0;
  std::string how;
};
/// A rank of the head's communicator has not got its part of split number `epoch`, and will never call anything there.
struct gave_up_word {
  epoch_t epoch = 0;
  rank_t rank = -1;
};
/// A rank has revoked the head's communicator.
struct revoke_word {
  rank_t rank = -1;
  std::string text;
};
/// About shrink number `number` of the head's communicator.
struct shrink_word {
  std::uint64_t number = 0;
  survivors_word what;
};
using process_word = std::variant<beat_word, bye_word, suspect_word, lost_word, gave_up_word, revoke_word, shrink_word>;

std::vector<std::byte> to_wire(const pair_word& what);
std::vector<std::byte> to_wire(const home_word& what);
std::vector<std::byte> to_wire(const ranks_word& what);
std::vector<std::byte> to_wire(const process_word& what);
/// Nothing: these bytes are no such word.
std::optional<pair_word> pair_word_from(std::span<const std::byte> body);
std::optional<home_word> home_word_from(std::span<const std::byte> body);
std::optional<ranks_word> ranks_word_from(std::span<const std::byte> body);
std::optional<process_word> process_word_from(std::span<const std::byte> body);

}  // namespace troupe::actors
