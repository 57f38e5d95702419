// SPDX-License-Identifier: Apache-2.0
// Private to memory/tiers: bitmaps searched a vector at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::detail {

/// Index of the first word in [from, to) that differs from `usual`; `to` if there is none. Reads nothing outside. No allocation.
std::size_t first_other_word(const std::uint64_t* words, std::size_t from, std::size_t to, std::uint64_t usual);

/// Of each word of a bitmap: how long its longest run of ones is, the one that it begins with, and the one that the word before it ends with.
struct runs_of_words {
  const std::uint8_t *longest, *heads, *tails_before;
};
/// Index of the first word in [from, to) with so long a run, or at whose beginning one lies; of more than 64 ones also of every word that has nothing
/// else, though its run may be too short. `to` if there is none.
std::size_t first_with_run(const runs_of_words& of, std::size_t from, std::size_t to, std::uint8_t least);

}  // namespace troupe::detail
