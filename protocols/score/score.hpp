// SPDX-License-Identifier: Apache-2.0
#pragma once
// The score: a collective algorithm as data. Which rank sends which chunk to which, in which order, and nothing about time,
// threads, bytes or transport.
//
// Memory as a score sees it. A collective moves *blocks* (collective.hpp). Every block is cut into `parts` equal parts; one
// part of one block is a *cell*, the unit that steps name. A buffer is a row of cells; cells that are neighbours in a buffer
// are neighbours in memory. How many bytes a cell has is decided when the score is compiled for a call (program.hpp): a
// block of c elements gives its part k the elements [k·c/parts, (k+1)·c/parts), so counts that do not divide, empty blocks and
// blocks of different sizes (v-collectives) need nothing special here.
//
// Order. A rank performs one or more *lanes*. The steps of a lane run one after the other; lanes of a rank run concurrently,
// ordered only by `step::after`. A message goes from a lane to the lane of the same number at the peer, first in, first out
// per (source, destination, lane). A send hands out a *reference*: the cells must not change until the receiver has performed
// the matching receive. At most `credits` messages per (source, destination, lane) are under way; a further send waits.
//
// Switches. A machine may have switches that reduce what passes them and multicast it. Such a switch is a place of its own in a score: lanes
// that belong to it, and the scratch cells that these write. Its lanes are *seated* at ranks, which perform them on its behalf, and
// whose addresses they have; in virtual time they are the switch's, and what they exchange with ranks passes the links to it.
// A rank gives the switch something by a message to the lane's seat, or at the seat itself by the switch's lane copying or
// reducing it into its own cells; it takes something by a message, or at the seat by a copy out of these cells.
//
// Partitions. A partitioned score (lower/partition.hpp) begins before its input is complete. Every block is in `partitions` neighbouring
// pieces of parts/partitions cells each; the caller says of each piece, on every rank for itself and in any order, when its input is
// ready. A `wait` with `ready_part` waits for that, and what touches input of a piece comes after such a step.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memory/export.hpp"
#include "protocols/collective.hpp"

namespace troupe {

enum class buffer_kind : std::uint8_t {
  none,
  input,    ///< the caller's send buffer, never written unless the call is in place
  output,   ///< the caller's receive buffer
  scratch,  ///< private to the rank for the time of the operation; cells declared in `part::scratch`
  l0,       ///< small and fast (a core group's LDM, spec 1); reused by every slice; cells declared in `part::l0`
  l2,       ///< one segment that all ranks address (spec 1, cross segment); cells declared in `score::l2`
};
TROUPE_API std::string_view name(buffer_kind kind);

/// Owner of a place that lies in the rank's own memory; also the owner of every L2 place.
inline constexpr rank_t self = -1;

/// `count` neighbouring cells of a buffer. An owner other than `self` names another rank's buffer, which only engines
/// with one address space can perform, and which must be ordered by messages like any other access.
struct place {
  buffer_kind buffer = buffer_kind::none;
  rank_t owner = self;
  std::int32_t cell = 0;
  std::int32_t count = 0;
  bool operator==(const place&) const = default;
};

/// What a step does, in this order: wait for `after`; receive from `from` → incoming; combine; write `target`; send to `to`.
enum class step_kind : std::uint8_t {
  send,                   ///< source → to (an empty source sends a token)
  recv,                   ///< from → target
  copy,                   ///< source → target
  reduce,                 ///< target := target ⊕ source
  recv_reduce,            ///< target := incoming ⊕ target
  recv_copy_send,         ///< from → target → to
  recv_reduce_send,       ///< incoming ⊕ source → to
  recv_reduce_copy,       ///< incoming ⊕ source → target
  recv_reduce_copy_send,  ///< incoming ⊕ source → target → to
  dma_get,                ///< copy towards the core: source (input, l2) → target (l0), by the DMA engine
  dma_put,                ///< copy away from the core: source (l0) → target (output, l2), by the DMA engine
  sync,                   ///< barrier of all ranks' lane of this number; lowered to tokens
  wait,                   ///< nothing but `after` and `ready_part`
};
inline constexpr int step_kind_count = 13;
TROUPE_API std::string_view name(step_kind kind);

constexpr bool receives(step_kind k) {
  return k == step_kind::recv || (k >= step_kind::recv_reduce && k <= step_kind::recv_reduce_copy_send);
}
constexpr bool sends(step_kind k) {
  return k == step_kind::send || k == step_kind::recv_copy_send || k == step_kind::recv_reduce_send ||
         k == step_kind::recv_reduce_copy_send;
}
constexpr bool reduces(step_kind k) {
  return k == step_kind::reduce || k == step_kind::recv_reduce || k == step_kind::recv_reduce_send ||
         k == step_kind::recv_reduce_copy || k == step_kind::recv_reduce_copy_send;
}
/// Does the step write its `target`?
constexpr bool writes(step_kind k) {
  return k != step_kind::send && k != step_kind::recv_reduce_send && k != step_kind::sync && k != step_kind::wait;
}
/// Does the step read its `source`?
constexpr bool reads_source(step_kind k) {
  return k == step_kind::send || k == step_kind::copy || k == step_kind::reduce || k == step_kind::recv_reduce_send ||
         k == step_kind::recv_reduce_copy || k == step_kind::recv_reduce_copy_send || k == step_kind::dma_get ||
         k == step_kind::dma_put;
}
/// Does the step read its `target` before it writes it?
constexpr bool reads_target(step_kind k) { return k == step_kind::reduce || k == step_kind::recv_reduce; }

/// The name of a message in its choreography. For people: nothing that is performed or agreed on depends on it.
enum class message_name : std::uint8_t { none, ack, async, data_signal, wait_done, done };
inline constexpr int message_name_count = 6;
/// "Ack", "DataSignal"; empty: none.
TROUPE_API std::string_view name(message_name which);

/// A step of the same rank, by lane and position; `lane == -1` means none.
struct step_ref {
  std::int32_t lane = -1;
  std::int32_t step = -1;
  bool operator==(const step_ref&) const = default;
};

struct step {
  step_kind kind = step_kind::wait;
  bool swapped = false;  ///< combine the other way round: local ⊕ incoming; for `reduce`: source ⊕ target
  std::uint16_t fan =
      0;  ///< neighbouring recv_reduce steps with the same fan ≠ 0, the same target and different senders may
          ///< run in the order of arrival when the caller asked for no determinism (`fast`)
  rank_t from = -1;
  rank_t to = -1;
  place source;
  place target;
  step_ref after;
  std::int32_t ready_part = -1;  ///< of a wait: until the caller has made this piece of its input ready; −1: none
  message_name called = message_name::none;  ///< of what it receives or sends
  bool operator==(const step&) const = default;
};

/// Part `part` of block `block`: what a cell holds, and so how large it is.
struct extent {
  std::int64_t block = 0;
  std::int32_t part = 0;
  bool operator==(const extent&) const = default;
};

using lane = std::vector<step>;

/// What one rank does.
struct part {
  std::vector<lane> lanes;
  std::vector<extent> scratch;
  std::vector<extent> l0;
  bool operator==(const part&) const = default;
};

/// A switch that reduces and multicasts, and where its lanes are performed.
struct fabric_switch {
  struct seat {
    rank_t rank = -1;
    std::int32_t lane = -1;
    bool operator==(const seat&) const = default;
  };
  std::int32_t server = -1;     ///< of the layout: whose ranks it joins; −1: the network between servers
  std::vector<rank_t> members;  ///< who exchanges anything with it, ascending; every seat is at one of them
  std::vector<seat> lanes;
  bool operator==(const fabric_switch&) const = default;
};

/// Of all ranks together: larger scores are not verified.
inline constexpr std::int64_t most_lanes = 8192;

struct score {
  static constexpr int version = 1;
  std::string choreography;
  collective what = collective::all_reduce;
  int ranks = 0;
  rank_t root = 0;
  bool in_place = false;
  bool uniform = true;        ///< all blocks have the same number of elements
  int parts = 1;              ///< cells per block
  std::vector<part> players;  ///< one per rank
  std::vector<extent> l2;
  std::vector<fabric_switch> switches;  ///< that reduce; none: ranks alone do
  int partitions = 0;  ///< pieces of a block that get ready one by one; 0: the input is complete at the beginning
  bool operator==(const score&) const = default;
};

/// Number of cells of a buffer of `rank`.
TROUPE_API std::int32_t cell_count(const score& s, rank_t rank, buffer_kind buffer);
/// The contents of cell `cell` of that buffer. @pre 0 <= cell < cell_count(...)
TROUPE_API extent extent_of(const score& s, rank_t rank, buffer_kind buffer, std::int32_t cell);
/// Two extents that have the same number of elements in every call the score is made for.
TROUPE_API bool same_size(const score& s, const extent& a, const extent& b);

/// In an in-place call some input and output cells are the same memory. Returns the cell's one name: the cell of the larger
/// buffer (output for all_gather and gather, input for reduce_scatter and scatter), input where both are equal.
/// `at.owner` is resolved (never `self`, except for l2). Only the first cell of `at` is named.
TROUPE_API place canonical(const score& s, rank_t rank, const place& at);

/// The piece that a cell of part `part` of its block belongs to. @pre s.partitions > 0
inline int partition_of(const score& s, std::int32_t part) { return part / (s.parts / s.partitions); }
/// Some of the place's cells are the rank's own input, by whatever name. @pre the place is in range
bool touches_own_input(const score& s, rank_t rank, const place& at);

/// The steps of all lanes of all ranks.
TROUPE_API std::size_t step_total(const score& s);
/// With one cell a step.
std::size_t single_step_total(const score& s);
/// Of everything but the choreography's name: scores that differ have another, in every process. Cost: a look at every step.
std::uint64_t digest(const score& s);

/// "input[3]", "scratch[0..4)", "output[1]@2" for a cell of rank 2; "token" for no cells.
TROUPE_API std::string to_string(const place& at);
/// One step as a sentence: "recv_reduce_send: from 1 ⊕ input[2] → rank 3"; ⊕' combines the other way round.
TROUPE_API std::string to_string(const step& s);

// score_text.cpp
/// Text that a person can follow: per rank and lane, a numbered line a step.
TROUPE_API std::string to_text(const score& s);
/// JSON, `{"troupe_score": 1, "choreography": …}`. `from_json` throws error(bad_score) naming the offending field.
TROUPE_API std::string to_json(const score& s, int indent = 1);
TROUPE_API score from_json(std::string_view text, std::string_view origin = "score");

}  // namespace troupe
