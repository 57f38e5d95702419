// SPDX-License-Identifier: Apache-2.0
// Private to memory/tiers: bitmaps searched a vector at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::detail {

/// Index of the first word in [from, to) that differs from `usual`; `to` if there is none. Reads nothing outside. No allocation.
std::size_t first_other_word(const std::uint64_t* words, std::size_t from, std::size_t to, std::uint64_t usual);

}  // namespace troupe::detail
