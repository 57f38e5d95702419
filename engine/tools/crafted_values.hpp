// SPDX-License-Identifier: Apache-2.0
#pragma once
// Inputs whose exact result is known whatever the order of combining, for `#wrong` of run and bench.
//
// Every value is a small integer, and so few ranks contribute something large that no partial sum or product leaves the
// integers that the type holds exactly: one result is right, all others are wrong. Values repeat after a prime number of
// elements, and every block begins at its own phase, so that a chunk which lands in the wrong place shows.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/types/types.hpp"
#include "protocols/collective.hpp"

namespace troupe {

/// Elements of a table.
inline constexpr std::size_t crafted_period = 1021;

/// `crafted_period` elements of what `rank` contributes. @pre the operation is defined on the type and is not a user's.
std::vector<std::byte> crafted_input(datatype type, const op& reduction, int ranks, rank_t rank);
/// And what the contributions of some of the `ranks` give. @pre there is one
std::vector<std::byte> crafted_result(datatype type, const op& reduction, int ranks, const rank_range& contributors);
inline std::vector<std::byte> crafted_result(datatype type, const op& reduction, int ranks) {
  return crafted_result(type, reduction, ranks, {0, ranks});
}
/// Bits of any kind, for collectives that only move blocks.
std::vector<std::byte> crafted_bits(datatype type);

/// A buffer's blocks: `elements` of them come from the table, beginning at `phase`.
struct crafted_block {
  std::size_t elements = 0;
  std::size_t phase = 0;
};
void fill(std::byte* to, const std::vector<std::byte>& table, std::size_t element_size,
          const std::vector<crafted_block>& blocks);
/// Number of elements that differ from the table's.
std::uint64_t count_wrong(const std::byte* found, const std::vector<std::byte>& table, std::size_t element_size,
                          const std::vector<crafted_block>& blocks);

}  // namespace troupe
