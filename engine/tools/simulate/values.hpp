// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every rank contributes to a simulated call, and what it must get. All values are small integers whose sums and products every
// type holds exactly, so one result is right whatever the order of combining.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/tools/simulate/scenario.hpp"
#include "memory/types/types.hpp"

namespace troupe::simulate {

/// The blocks that a rank gives or gets, one behind the other, as bytes.
/// @param salt tells items apart
std::vector<std::byte> input_of(const item& it, std::uint64_t salt, int ranks, rank_t rank);
std::vector<std::byte> output_of(const item& it, std::uint64_t salt, int ranks, rank_t rank);
/// Where the input begins in the output of a call in place, or the output in the input.
std::size_t place_in_place(const item& it, rank_t rank);

/// The user's reduction that scenarios use: a sum. `context` is a countdown of calls after which it throws, or null.
struct countdown {
  int left = 0;
  bool thrown = false;
};
void user_sum(const void* left, const void* right, void* out, std::size_t count, datatype type, void* context);

}  // namespace troupe::simulate
