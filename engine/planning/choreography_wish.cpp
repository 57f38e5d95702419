// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/choreography_wish.hpp"

#include <algorithm>
#include <iterator>

#include "memory/spelling.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace troupe {

namespace {

/// "tree" is a word of "double_binary_tree".
bool has_word(std::string_view name, std::string_view word) {
  constexpr std::string_view between = "_-";
  for (std::size_t first = 0; first <= name.size();) {
    const auto end = std::min(name.find_first_of(between, first), name.size());
    if (!word.empty() && name.substr(first, end - first) == word) return true;
    first = end + 1;
  }
  return false;
}

std::vector<std::string_view> family(std::string_view word, std::span<const std::string> known) {
  std::vector<std::string_view> members;
  std::ranges::copy_if(known, std::back_inserter(members), [&](const std::string& n) { return has_word(n, word); });
  return members;
}

bool is_name(std::string_view word, std::span<const std::string> known) {
  return std::ranges::find(known, word) != known.end();
}

/// "a, b or c"
std::string one_of(std::span<const std::string_view> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + std::string{names[i]};
  return text;
}

}  // namespace

choreography_wish::choreography_wish(std::string_view text) {
  if (!text.starts_with('^')) {
    if (text != "auto") name = text;
    return;
  }
  const auto trimmed = [](std::string_view word) {
    const auto first = word.find_first_not_of(' ');
    if (first == std::string_view::npos) return std::string_view{};
    return word.substr(first, word.find_last_not_of(' ') - first + 1);
  };
  for (text.remove_prefix(1);;) {
    const auto end = std::min(text.find(','), text.size());
    excluded.push_back(trimmed(text.substr(0, end)));
    if (end == text.size()) return;
    text.remove_prefix(end + 1);
  }
}

bool choreography_wish::excludes(std::string_view which, std::span<const std::string> known) const {
  return std::ranges::any_of(excluded, [&](std::string_view word) {
    return word == which || (!is_name(word, known) && has_word(which, word));
  });
}

std::vector<std::string> known_choreographies(std::span<const std::string> own) {
  std::vector<std::string> names;
  for (const choreography* c : all_choreographies()) names.emplace_back(c->name);
  names.insert(names.end(), own.begin(), own.end());
  return names;
}

std::string wrong_choreography(std::string_view text, std::span<const std::string> known) {
  const choreography_wish wish{text};
  std::vector<std::string_view> named = wish.excluded;
  if (!wish.name.empty()) named.push_back(wish.name);
  for (const std::string_view one : named) {
    const std::vector<std::string_view> members = family(one, known);
    if (is_name(one, known) || (!wish.excluded.empty() && !members.empty())) continue;
    if (one.empty()) return "a name is missing in \"" + std::string{text} + "\"; write \"^ring\" or \"^ring,bruck\"";
    std::string wrong = "there is no choreography " + std::string{one};
    std::vector<std::string_view> words(known.begin(), known.end());
    if (wish.excluded.empty()) words.emplace_back("auto");
    if (const auto near = closest(one, words); !near.empty()) wrong += "; did you mean " + std::string{near} + "?";
    else if (!members.empty()) wrong += "; did you mean " + one_of(members) + "?";
    if (wish.excluded.empty() && wrong.ends_with('?')) return wrong;
    wrong += wrong.ends_with('?') ? " There are" : "; there are";
    for (std::size_t i = 0; i < known.size(); ++i) wrong += (i ? ", " : " ") + known[i];
    return wrong;
  }
  return {};
}

}  // namespace troupe
