// SPDX-License-Identifier: Apache-2.0
// Words for people: "did you mean …?" for every place where a person writes a name, and plurals.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// The candidate that differs least from `wrong` (Levenshtein distance), if that is at most 2 edits or a third of its letters;
/// otherwise empty. The result views into `candidates`. Words longer than 64 letters are nobody's misspelling.
std::string_view closest(std::string_view wrong, std::span<const std::string_view> candidates);

/// "1 rank", "2 ranks".
std::string plural(std::size_t count, std::string_view noun);

}  // namespace troupe
