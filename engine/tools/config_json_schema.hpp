// SPDX-License-Identifier: Apache-2.0
#pragma once
// The configuration's schema for editors: JSON Schema, made from config_schema().

#include <string>
#include <vector>

namespace troupe {

/// A JSON Schema (draft 7) of configuration files: `#:schema FILE` on the first line of a TOML file makes editors complete and check it.
std::string config_json_schema();

/// The words that a setting's text may be or, where a user's own are possible too, usually is: collectives, choreographies, types,
/// operations, choices. Empty: any text.
struct known_words {
  std::vector<std::string> words;
  bool open = false;  ///< others are possible
};
known_words words_of_setting(std::string_view key);

}  // namespace troupe
