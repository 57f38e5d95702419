// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an engine's options may be, for all who look at them: the configuration's schema, the engine, the planner and the command line.

#include <cstddef>
#include <string>
#include <string_view>

#include "topology/machine/card_sizes.hpp"

namespace troupe {

inline constexpr int most_channels_wanted = 64, most_credits = 64, most_streams = 64;
/// How a caller may want messages to travel. As a configuration's schema lists choices.
inline constexpr std::string_view wanted_protocols = "auto|simple|direct|ll|ll128";

/// Why a tier cannot have that size; empty if it can. @param most card_sizes::most_l0 or most_l2
inline std::string card_size_fault(std::string_view what, std::size_t bytes, std::size_t most) {
  if (bytes >= card_sizes::page && bytes % card_sizes::page == 0 && bytes <= most) return {};
  return std::string{what} + " is " + std::to_string(bytes) + " but must be whole pages of " +
         std::to_string(card_sizes::page) + " bytes (\"8K\"), from one to " + std::to_string(most / card_sizes::page);
}

/// It is one of "a|b|c".
constexpr bool is_one_of(std::string_view word, std::string_view choices) {
  for (;;) {
    const std::size_t end = choices.find('|');
    if (choices.substr(0, end) == word) return true;
    if (end == std::string_view::npos) return false;
    choices.remove_prefix(end + 1);
  }
}
/// "a, b or c".
inline std::string choices_in_words(std::string_view choices) {
  const std::size_t last = choices.rfind('|');
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] != '|') text += choices[i];
    else text += i == last ? " or " : ", ";
  }
  return text;
}

}  // namespace troupe
