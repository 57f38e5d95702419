#pragma once
// What a collective is, apart from how it is done: its name, its blocks, and which rank holds which block.

#include <cstdint>
#include <optional>
#include <string_view>

#include "memory/export.hpp"

namespace troupe {

using rank_t = std::int32_t;

/// The v-forms (all_gather_v …) are the same collectives with blocks of different sizes (`stage::uniform == false`).
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
};
inline constexpr int collective_count = 9;

TROUPE_API std::string_view name(collective what);
TROUPE_API std::optional<collective> parse_collective(std::string_view text);

constexpr bool is_reduction(collective what) {
  return what == collective::all_reduce || what == collective::reduce_scatter || what == collective::reduce;
}
constexpr bool has_root(collective what) {
  return what == collective::broadcast || what == collective::reduce || what == collective::gather ||
         what == collective::scatter;
}

/// Number of different blocks that the collective moves among `ranks` ranks.
constexpr std::int64_t block_count(collective what, int ranks) {
  switch (what) {
    case collective::all_reduce:
    case collective::broadcast:
    case collective::reduce: return 1;
    case collective::all_gather:
    case collective::reduce_scatter:
    case collective::gather:
    case collective::scatter: return ranks;
    case collective::all_to_all: return static_cast<std::int64_t>(ranks) * ranks;
    case collective::barrier: return 0;
  }
  return 0;
}

/// The blocks that lie one behind the other in a user buffer: `count` blocks, the i-th is `first + i * stride`.
struct block_run {
  std::int64_t first = 0;
  int count = 0;
  int stride = 1;
};
TROUPE_API block_run input_blocks(collective what, int ranks, rank_t root, rank_t rank);
TROUPE_API block_run output_blocks(collective what, int ranks, rank_t root, rank_t rank);

}  // namespace troupe
