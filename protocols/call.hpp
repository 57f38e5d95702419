// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank's call of a collective, as it is compared with the other ranks' before any result is delivered.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory/error.hpp"
#include "memory/export.hpp"
#include "memory/types/types.hpp"
#include "memory/word_hash.hpp"
#include "protocols/collective.hpp"

namespace troupe {

/// The guarantee about the result when a reduction is repeated. Each level includes the ones before it.
enum class determinism : std::uint8_t {
  fast,             ///< nothing: contributions may be combined in the order in which they arrive
  run_stable,       ///< same inputs, same ranks, same configuration → same bits
  size_stable,      ///< and an element's bits do not depend on the message's size, its place in it, or the chunking
  topology_stable,  ///< and not on the choreography, the layout of the ranks or the protocol: left fold in rank order
};
/// "?" for a value that is no enumerator, as of the enumerations below.
TROUPE_API std::string_view name(determinism level);
TROUPE_API std::optional<determinism> parse_determinism(std::string_view text);

/// How messages travel: as references between actors (simple), over slots, inline in the callers (ll, ll128: slot_formats.hpp), or not
/// at all, since callers work on each other's buffers (direct: direct_program.hpp).
/// By a NIC that performs descriptors (nic: docs/offload.md) they do not go by callers at all; which calls it performs the engine decides, and no call can
/// ask for it.
enum class message_protocol : std::uint8_t { unset, automatic, simple, ll, ll128, direct, nic };
/// "", "auto", "simple", "ll", "ll128", "direct", "nic".
TROUPE_API std::string_view name(message_protocol which);
TROUPE_API std::optional<message_protocol> parse_message_protocol(std::string_view text);

/// When ranks learn that all have called the same.
enum class agreement_time : std::uint8_t {
  unset,
  strict,  ///< before the operation ends on any rank
  eager,  ///< rooted collectives may end on a rank that needs nobody else, and are compared with the next ones; short blocking sends before they were received
};
/// "", "strict", "eager".
TROUPE_API std::string_view name(agreement_time when);
TROUPE_API std::optional<agreement_time> parse_agreement_time(std::string_view text);

/// The purpose of a collective that its caller has not called by its name. Calls match only if they have the same one.
enum class call_purpose : std::uint8_t { itself, split, duplicate, expert_exchange };

/// Operations that may run ahead, one after the other: the next one waits for everybody. So that many calls later at most, ranks know that
/// they have called the same. In a loop of rooted collectives its share of the time is small beside the rest.
inline constexpr unsigned most_ahead = 64;

/// A rank's report to the membership about its call, sent beside the call: for the comparison, and for the table that a disagreement tells.
struct call_report {
  std::uint64_t plan = 0;  ///< plan::identity; 0: not planned
  std::string planned;     ///< its name for people
  bool by_nic = false;     ///< a NIC performs it
  bool ahead = false;      ///< it may end, or has ended, on this rank before all are known to have called the same
  struct entry {
    std::uint64_t sequence;
    std::string text;               ///< may differ between ranks that called the same: not all know all blocks
    std::uint64_t fingerprint = 0;  ///< without number and history
  };
  std::vector<entry> earlier;    ///< calls before it that may have run ahead
  std::uint64_t known_from = 0;  ///< of older ones nothing is known any more, or all were the same
};

/// The outcome of an operation on a rank that asks for its outcome on the others.
struct ended_call {
  static constexpr std::uint64_t unnamed = ~std::uint64_t{0};
  std::uint64_t sequence = unnamed;  ///< the operation, the same on all ranks; or what each of them means
  errc result = errc::ok;
};

struct call {
  collective what = collective::barrier;
  bool uniform = true;
  bool in_place = false;  ///< only where agrees_on_place()
  datatype type = datatype::u8;
  op reduction{};         ///< of reductions
  rank_t root = 0;        ///< of rooted collectives
  std::size_t count = 0;  ///< elements of every block (uniform)
  determinism level = determinism::run_stable;
  message_protocol protocol = message_protocol::unset;  ///< forced by the caller; unset: the engine's
  agreement_time agreement = agreement_time::strict;    ///< eager only of rooted collectives
  bool offload = false;                                 ///< the process's NIC performs it, if it can (docs/offload.md)
  call_purpose purpose = call_purpose::itself;
  std::string choreography;  ///< forced by the caller; empty: the planner chooses
  /// v-forms, what this rank knows: all_gather_v and reduce_scatter_v: all n blocks' elements at every rank; gather_v and
  /// scatter_v: all n at the root, its own one elsewhere; all_to_all_v: the n blocks that it sends.
  /// A partitioned call, whose blocks are uniform: the elements of each piece, or empty where pieces are equal.
  std::vector<std::size_t> counts;
  std::vector<std::size_t> receive_counts;  ///< all_to_all_v: the n blocks that it receives
  std::uint32_t pieces = 0;                 ///< of a block that get ready one by one; 0: not partitioned …
  std::uint64_t pieces_mark = 0;            ///< … else a hash of their number and sizes: set by partition_call()
  /// No data: all ranks learn how an operation ended on each of them. Then `what` is barrier, and not uniform.
  std::optional<ended_call> outcome_of;
  /// Of the rank's calls before it that may have run ahead: a sum of their hashes, which every message carries with the rest.
  std::uint64_t history = 0;
  std::shared_ptr<const call_report> report;  ///< where a membership compares calls; else null

  std::uint64_t plan() const { return report ? report->plan : 0; }
  bool ahead() const { return report && report->ahead; }
};

/// Makes it a partitioned one. @param sizes of the pieces of a block, in elements; empty: `pieces` equal ones @pre uniform
void partition_call(call& c, std::uint32_t pieces, std::vector<std::size_t> sizes);

/// The small fields of a call in bits of one word, each apart from all others: for call_identity and for what the boards remember (checked_call).
constexpr std::uint64_t packed(collective what, bool uniform, bool in_place, datatype type) {
  return static_cast<std::uint64_t>(what) | (uniform ? 0u : 0x100u) | (in_place ? 0x200u : 0u) |
         static_cast<std::uint64_t>(type) << 16;
}
constexpr std::uint64_t packed(const op& with) {
  return (with.commutative ? 0x400u : 0u) | (with.associative ? 0x800u : 0u) |
         static_cast<std::uint64_t>(with.kind) << 24;
}

/// The fields that distinguish calls: the one list behind plan caches, the ports' memory of calls, and the fingerprint. Left
/// out is what neither a plan nor a peer depends on: a factor, a user's function (but not its name or type), the root or op of what has none, and counts that
/// only some ranks know. Refers to the call.
struct call_identity {
  std::uint64_t kind = 0;       ///< collective, form, place, type, level, protocol, agreement, purpose, pieces
  std::uint64_t operation = 0;  ///< of reductions
  std::uint64_t root = 0;       ///< of rooted collectives
  std::uint64_t count = 0;
  std::span<const std::size_t> counts;
  std::string_view choreography;

  bool operator==(const call_identity& other) const {
    return same_but_sizes(other) && count == other.count && std::ranges::equal(counts, other.counts);
  }
  bool same_but_sizes(const call_identity& other) const {
    return kind == other.kind && operation == other.operation && root == other.root &&
           choreography == other.choreography;
  }
  void add_to(word_hash& h) const {
    for (const std::uint64_t word : {kind, operation, root, count}) h.add(word);
    for (const std::size_t n : counts) h.add(n);
    h.add(choreography);
  }
};

/// Inline: asked for with every call.
inline call_identity identity_of(const call& c) {
  call_identity id;
  id.kind = packed(c.what, c.uniform, c.in_place, c.type) | static_cast<std::uint64_t>(c.level) << 24 |
            static_cast<std::uint64_t>(c.protocol) << 32 | static_cast<std::uint64_t>(c.agreement) << 40 |
            (c.outcome_of ? std::uint64_t{1} << 48 : 0) | (c.offload ? std::uint64_t{1} << 49 : 0) |
            static_cast<std::uint64_t>(c.purpose) << 50;
  id.kind ^= c.pieces_mark;  // 0 of nearly all calls; no branch, since every small call comes by here
  if (is_reduction(c.what)) id.operation = packed(c.reduction);
  if (is_reduction(c.what) && c.reduction.kind == op_kind::user) {
    word_hash function;
    function.add(c.reduction.name.view());
    function.add(c.reduction.type_mark);
    id.operation ^= function.state;
  }
  if (has_root(c.what)) id.root = static_cast<std::uint64_t>(c.root);
  id.count = c.outcome_of ? c.outcome_of->sequence : c.count;
  if (!c.outcome_of && !c.uniform && traits_of(c.what).v == v_counts::common) id.counts = c.counts;
  id.choreography = c.choreography;
  return id;
}

/// The largest number of elements that is planned like `count`: four classes an octave, which end at powers of two and at quarters
/// between them; small numbers are their own class.
constexpr std::size_t largest_of_class(std::size_t count) {
  constexpr std::size_t small = 16, beyond = std::size_t{1} << 50;
  if (count <= small || count >= beyond) return count;
  const std::size_t quarter = std::bit_floor(count - 1) / 4;  // a power of two
  return (count + quarter - 1) & ~(quarter - 1);
}

/// Every rank knows the sizes of all blocks; else those of its own, and of a root all.
inline bool knows_all_blocks(const call& c) { return c.uniform || traits_of(c.what).v == v_counts::common; }

/// The counts that all ranks know. The rank of an empty block has nothing that could lie in its place, and may give any pointer, so ranks
/// cannot agree whether the call is in place (agrees_on_place()). It counts as not in place, and a rank that gave a block in its place
/// reads it from a copy.
inline bool has_empty_block(std::span<const std::size_t> counts) {
  return std::ranges::find(counts, std::size_t{0}) != counts.end();
}
constexpr std::uint64_t packed_empty_block = 0x1000;  ///< beside packed(): in the class alone, since the counts say it

/// The calls that share a plan: `count` is the largest of the class, and of blocks of different sizes the largest counts. Where a rank
/// knows only some blocks' sizes, all calls are one class.
inline call_identity class_of(call_identity id) {
  if (!id.counts.empty()) {
    id.count = std::ranges::max(id.counts);
    if (has_empty_block(id.counts)) id.kind ^= packed_empty_block;
  }
  id.counts = {};
  id.count = largest_of_class(id.count);
  return id;
}
inline call_identity class_of(const call& c) { return class_of(identity_of(c)); }

/// Hash of everything that must be equal on all ranks, and of the operation's sequence number.
/// @param plan plan::identity of what is performed; 0: not planned
std::uint64_t fingerprint(const call& c, std::uint64_t sequence, std::uint64_t plan);
/// The same, with the plan that the call says.
inline std::uint64_t fingerprint(const call& c, std::uint64_t sequence) { return fingerprint(c, sequence, c.plan()); }
/// "all_reduce(count 1024, f32, sum)".
TROUPE_API std::string to_string(const call& c);

/// Compares all ranks' calls of one operation. Empty if they agree, else the sentence and the table of what each rank called
/// that every rank gets as its error.
std::string disagreement(std::span<const call> calls, std::uint64_t sequence);
/// The same of what was called before these, of which only the histories count.
std::string earlier_disagreement(std::span<const call> calls, std::uint64_t sequence);
/// It is about an operation that has ended on some rank: one before, or one that may run ahead itself.
bool disagrees_late(std::span<const call> calls);

/// The elements of every block, or every rank's result (errc), from what all ranks said. @pre disagreement(calls) is empty and the call is not uniform.
std::vector<std::size_t> merge_counts(std::span<const call> calls);

}  // namespace troupe
