// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a collective is, apart from how it is done: one row of traits each, in collective.cpp. Nothing else in the library lists
// collectives (tests/checks/layers.sh), except the choreographies that perform them, the calls that start them, and the selections of NCCL and
// HCCL, which know some. A rule that is about a single one asks for that one. A trait that a row leaves
// out, a collective without a row, and rows in another order than the names below do not compile.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "memory/export.hpp"

namespace troupe {

using rank_t = std::int32_t;
/// Instead of a peer: a send to it sends nothing, a receive from it leaves its buffer as it is; both are done at once.
inline constexpr rank_t proc_null = -2;

/// The v-forms (all_gather_v …) are the same collectives with blocks of different sizes (`setup::uniform == false`).
enum class collective : std::uint8_t {
  all_reduce,      ///< one block; every rank ends with the reduction of all ranks' blocks
  all_gather,      ///< block r starts at rank r; every rank ends with all blocks
  reduce_scatter,  ///< every rank starts with n blocks; rank r ends with the reduction of all ranks' block r
  broadcast,       ///< one block from the root to every rank
  reduce,          ///< one block; the root ends with the reduction
  gather,          ///< block r starts at rank r; the root ends with all blocks
  scatter,         ///< the root starts with n blocks; rank r ends with block r
  all_to_all,      ///< rank i starts with blocks (i, j) for all j; rank j ends with blocks (i, j) for all i
  barrier,         ///< no blocks; nobody leaves before everybody has come
  scan,            ///< one block; rank r ends with the reduction of the blocks of ranks 0 … r
  exscan,  ///< one block; rank r ends with the reduction of the blocks of ranks 0 … r−1, and rank 0 has no output
};
inline constexpr int collective_count = 11;
/// All of them, in this order.
inline constexpr auto all_collectives = [] {
  std::array<collective, collective_count> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<collective>(i);
  return all;
}();

/// The blocks that lie one behind the other in a user buffer: `count` blocks, the i-th is `first + i * stride`.
struct block_run {
  std::int64_t first = 0;
  int count = 0;
  int stride = 1;
};

/// Neighbouring ranks.
struct rank_range {
  rank_t first = 0;
  int count = 0;
  constexpr bool contains(rank_t r) const { return r >= first && r < first + count; }
  constexpr bool operator==(const rank_range&) const = default;
};

// -- traits -----------------------------------------------------------------------------------------------------------

enum class root_role : std::uint8_t {
  none,
  source,  ///< everything comes from the root
  sink,    ///< everything goes to the root
};

/// The sizes of the blocks that a rank knows in a v-form.
enum class v_counts : std::uint8_t {
  none,        ///< there is no v-form
  common,      ///< all ranks' blocks, at every rank the same
  rooted,      ///< all at the root, elsewhere the own one
  every_pair,  ///< what the rank sends, and what it receives; input and output lie differently, so it is never in place
};

enum class in_place_rule : std::uint8_t {
  never,
  agreed,   ///< all ranks' calls or none: the score is made for it
  at_root,  ///< the root's own affair: neither the score nor the other ranks know
};

/// The bytes that a rank must send or receive, whatever the choreography.
enum class least_traffic : std::uint8_t {
  nothing,
  block,   ///< one: its own, or the only one
  others,  ///< of its buffer every block but its own
};

/// The size of a stage's block where a call is performed in tiers, in blocks of that call.
enum class tier_block : std::uint8_t { one, of_host, of_all };
/// The place of a stage's result at a host's first rank.
enum class tier_place : std::uint8_t { nowhere, output, host_of_output, apart };
/// A stage of a call in tiers (tiers.hpp). Its input is what has come out of the stage before it; that of the first is the call's.
struct tier_stage {
  collective what;
  tier_block block;
  tier_place to;
};
using tier_stages = std::array<tier_stage, 3>;  ///< collect, across and spread

/// A trait without a default.
template <class T>
struct required {
  T value;
  template <class U>
  constexpr required(U given) : value(given) {}
  required() = delete;
  constexpr operator T() const { return value; }
};

struct collective_traits {
  required<collective> what;
  required<std::string_view> name;
  required<root_role> root;
  required<bool> reduces;
  /// Nobody ends before everybody has begun.
  required<bool> synchronizes;
  /// The data of every right score make everybody hear of everybody (agreement_round.hpp).
  required<bool> data_tell_all;
  required<v_counts> v;
  required<in_place_rule> place;
  /// A block may be cut into pieces that get ready one by one (docs/partitioned.md).
  required<bool> partitioned;
  /// The stages when it is performed in tiers; nothing: it never is. The second stage is the collective itself.
  required<std::optional<tier_stages>> tiers;

  /// Number of different blocks among n ranks.
  required<std::int64_t (*)(std::int64_t n)> blocks;
  required<block_run (*)(int n, rank_t root, rank_t rank)> input;
  required<block_run (*)(int n, rank_t root, rank_t rank)> output;
  /// Whose contributions the block of the rank's output holds: reduced in rank order where the operation asks for it, or moved
  /// where there is one. This is what the verifier proves.
  required<rank_range (*)(int n, rank_t root, rank_t rank, std::int64_t block)> contributors;

  /// Blocks of all ranks' buffers together, a buffer that is commonly input and output counted once.
  required<double (*)(double n)> footprint;
  /// busbw = algbw × this, as nccl-tests has it
  /// (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md); for those that it does not have: the bytes that the
  /// busiest rank must send or receive ÷ S.
  required<double (*)(double n)> bus_factor;
  required<least_traffic (*)(int n, rank_t root, rank_t rank)> sent;
  required<least_traffic (*)(int n, rank_t root, rank_t rank)> received;
  /// Blocks that all ranks together must send; 0: no more than follows from `sent` and `received`.
  required<double (*)(double n)> sent_by_all;
};

namespace detail {
extern TROUPE_API const std::array<collective_traits, collective_count> rows;
}
/// @pre `what` is an enumerator
inline const collective_traits& traits_of(collective what) { return detail::rows[static_cast<std::size_t>(what)]; }

// -- questions --------------------------------------------------------------------------------------------------------

inline std::string_view name(collective what) { return traits_of(what).name; }
TROUPE_API std::optional<collective> parse_collective(std::string_view text);
/// Those of which `is` is true: "all_reduce, all_gather and barrier".
std::string names_of(bool (*is)(const collective_traits&));
/// Throws error(invalid_argument): it is no enumerator, and so has no traits.
[[noreturn]] TROUPE_API void bad_collective(collective what);

inline bool is_reduction(collective what) { return traits_of(what).reduces; }
inline bool has_root(collective what) { return traits_of(what).root != root_role::none; }
inline bool has_v_form(collective what) { return traits_of(what).v != v_counts::none; }

/// Number of different blocks that the collective moves among `ranks` ranks.
inline std::int64_t block_count(collective what, int ranks) { return traits_of(what).blocks(ranks); }
/// False for a barrier.
inline bool moves_data(collective what) { return block_count(what, 1) > 0; }

inline block_run input_blocks(collective what, int ranks, rank_t root, rank_t rank) {
  return traits_of(what).input(ranks, root, rank);
}
inline block_run output_blocks(collective what, int ranks, rank_t root, rank_t rank) {
  return traits_of(what).output(ranks, root, rank);
}
/// @pre `block` is one of the rank's output
inline rank_range contributors(collective what, int ranks, rank_t root, rank_t rank, std::int64_t block) {
  return traits_of(what).contributors(ranks, root, rank, block);
}
/// Of a reduction, the same for every block of the rank's output; 0 if it has none.
TROUPE_API int contributor_count(collective what, int ranks, rank_t root, rank_t rank);

/// Whether the rank's input and output are one memory in an in-place call: the smaller buffer is the rank's own block of the larger
/// one. A rank without input or without output has only one buffer, which an in-place call changes as little as any other.
TROUPE_API bool shares_buffers(collective what, int ranks, rank_t root, rank_t rank);
/// Whether the call says that it is in place, and all ranks must agree (`call::in_place`).
inline bool agrees_on_place(collective what, bool uniform) {
  const collective_traits& t = traits_of(what);
  return t.place == in_place_rule::agreed && (uniform || t.v != v_counts::every_pair);
}
/// An in-place call that the score knows nothing of, and that would read what it has written: the input is copied aside first.
inline bool reads_what_it_writes(collective what, bool uniform) {
  const collective_traits& t = traits_of(what);
  return t.place != in_place_rule::never && !agrees_on_place(what, uniform) &&
         (t.reduces || t.v == v_counts::every_pair);
}

}  // namespace troupe
