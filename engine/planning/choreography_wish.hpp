// SPDX-License-Identifier: Apache-2.0
#pragma once
// What options, a configuration or a call say about choreographies: "ring", one that is wanted; "auto" or nothing, the planner chooses;
// "^ring,bruck", it chooses, but none of these; "^tree", none of the family: whose names have that word.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct choreography_wish {
  std::string_view name;                   ///< empty: none is wanted
  std::vector<std::string_view> excluded;  ///< as they were written; an empty one if a name is missing

  explicit choreography_wish(std::string_view text);
  /// @param known a word that is a name among these is no family's
  bool excludes(std::string_view which, std::span<const std::string> known) const;
};

/// Says what is wrong where a name is not among `known`, and what there is: the end of a sentence. Empty: all is well.
std::string wrong_choreography(std::string_view text, std::span<const std::string> known);
/// The built-in choreographies, those that were registered, and `own`.
std::vector<std::string> known_choreographies(std::span<const std::string> own = {});

}  // namespace troupe
