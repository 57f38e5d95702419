// SPDX-License-Identifier: Apache-2.0
// The values that are told, by defaults, files, the environment and the command line, and the text of them all. configuration_engine.cpp makes the options of an engine of it.
#include "engine/config/configuration.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <optional>
#include <sstream>

#include <toml++/toml.h>
#include <unistd.h>

#include "engine/planning/tuning.hpp"
#include "engine/world/launcher_environment.hpp"
#include "memory/error.hpp"
#include "memory/read_file.hpp"

namespace troupe {

namespace {

using source = config_origin::source;

/// Tables of which a file may have several: [[workload.run]], [[study.job]], [[study.node]].
struct table_list {
  std::string_view prefix;     ///< of their keys in the schema
  std::string_view necessary;  ///< a key that each of them must have …
  std::string_view example;    ///< … for example so
  std::string_view one, of;    ///< for messages: "there is no run 3; the workload has 2"
};
constexpr std::array<table_list, configuration::list_count> table_lists{
    {{"workload.run.", "collective", "collective = \"all_reduce\"", "run", "the workload"},
     {"study.job.", "calls", "calls = \"all_reduce 1M\"", "job", "the study"},
     {"study.node.", "kind", "kind = \"operator\"", "node", "the study"}}};

/// Which of them a key belongs to, −1: none.
int list_of(std::string_view key) {
  for (std::size_t l = 0; l < table_lists.size(); ++l)
    if (key.starts_with(table_lists[l].prefix)) return static_cast<int>(l);
  return -1;
}
/// "workload.run" of "workload.run."
std::string_view title_of(const table_list& list) { return list.prefix.substr(0, list.prefix.size() - 1); }

[[noreturn]] void fail(const std::string& place, const std::string& sentence) {
  throw error(errc::bad_config, place + ": " + sentence);
}

/// "….*" stands for one name, "….**" for any text, dots included.
bool is_wild(std::string_view key) { return key.ends_with(".*") || key.ends_with(".**"); }
bool is_deep(std::string_view key) { return key.ends_with(".**"); }
/// "engine.score_files." of "engine.score_files.*". @pre is_wild
std::string_view table_of(std::string_view wild) { return wild.substr(0, wild.find('*')); }

/// The setting of a key; wild cards stand for one name.
const config_setting* find_setting(std::string_view key) {
  for (const config_setting& s : config_schema()) {
    if (s.key == key) return &s;
    if (!is_wild(s.key)) continue;
    const std::string_view table = table_of(s.key);
    if (key.starts_with(table) && key.size() > table.size() &&
        (is_deep(s.key) || key.find('.', table.size()) == std::string_view::npos))
      return &s;
  }
  return nullptr;
}

std::string suggestion(std::string_view key) {
  std::vector<std::string_view> keys;
  for (const config_setting& s : config_schema())
    if (!is_wild(s.key)) keys.push_back(s.key);
  const std::string_view last = key.substr(key.rfind('.') + 1);
  // In a table of which there may be several a word that it has, or all that it has: other tables' words are not what it lacks.
  if (const int list = list_of(key); list >= 0) {
    const table_list& table = table_lists[static_cast<std::size_t>(list)];
    std::erase_if(keys, [&](std::string_view k) { return !k.starts_with(table.prefix); });
    std::string all;
    for (std::string_view& k : keys) {
      k.remove_prefix(table.prefix.size());
      all += (all.empty() ? "" : ", ") + std::string{k};
    }
    if (const auto near = closest(last, keys); !near.empty())
      return "; did you mean " + std::string{table.prefix} + std::string{near} + "?";
    return "; a [[" + std::string{title_of(table)} + "]] has " + all;
  }
  // The right word in the wrong table, before a word that only looks alike.
  for (const std::string_view candidate : keys)
    if (candidate.substr(candidate.rfind('.') + 1) == last) return "; did you mean " + std::string{candidate} + "?";
  if (const auto near = closest(key, keys); !near.empty()) return "; did you mean " + std::string{near} + "?";
  // As --set has them: without "engine." or "workload.", and at last the last word alone.
  for (const bool whole : {true, false}) {
    const auto short_form = [&](std::string_view k) { return k.substr((whole ? k.find('.') : k.rfind('.')) + 1); };
    std::vector<std::string_view> short_forms;
    for (const std::string_view k : keys) short_forms.push_back(short_form(k));
    const auto near = closest(whole ? key : last, short_forms);
    for (const std::string_view k : keys)
      if (!near.empty() && short_form(k) == near) return "; did you mean " + std::string{k} + "?";
  }
  return "; docs/config.md lists all keys";
}

/// What a node of another type is, for messages.
std::string describe(const toml::node& node) {
  std::ostringstream text;
  switch (node.type()) {
    case toml::node_type::string: text << "the text \"" << *node.value<std::string>() << '"'; break;
    case toml::node_type::integer: text << "the integer " << *node.value<std::int64_t>(); break;
    case toml::node_type::floating_point: text << "the number " << *node.value<double>(); break;
    case toml::node_type::boolean: text << (*node.value<bool>() ? "true" : "false"); break;
    case toml::node_type::array: text << "a list"; break;
    case toml::node_type::table: text << "a table"; break;
    default: text << "a date or time";
  }
  return text.str();
}

std::optional<std::int64_t> bytes_of(const toml::node& node) {
  if (const auto number = node.value_exact<std::int64_t>(); number && *number >= 0) return number;
  if (const auto words = node.value_exact<std::string>())
    if (const std::int64_t bytes = parse_bytes(*words); bytes >= 0) return bytes;
  return std::nullopt;
}

/// { from, to, factor | step }.
std::optional<std::vector<std::int64_t>> range_of_sizes(const toml::table& range) {
  const auto member = [&](const char* key) -> std::optional<std::int64_t> {
    return range.contains(key) ? bytes_of(*range.get(key)) : std::nullopt;
  };
  for (const auto& [key, value] : range)
    if (key.str() != "from" && key.str() != "to" && key.str() != "factor" && key.str() != "step") return std::nullopt;
  const auto from = member("from"), to = member("to"), factor = member("factor"), step = member("step");
  if (!from || !to || *from > *to || range.contains("factor") == range.contains("step")) return std::nullopt;
  if ((!factor && !step) || (factor && (*factor < 2 || *from < 1)) || (step && *step < 1)) return std::nullopt;
  std::vector<std::int64_t> list;
  // Not `size <= to` with a size that has overflowed: both steps are checked before they are taken.
  for (std::int64_t size = *from;;) {
    list.push_back(size);
    if (list.size() > 100000 || (factor ? size > *to / *factor : size > *to - *step)) break;
    size = factor ? size * *factor : size + *step;
  }
  return list;
}

std::optional<std::vector<std::int64_t>> sizes_of(const toml::node& node) {
  if (const auto* range = node.as_table()) return range_of_sizes(*range);
  std::vector<std::int64_t> list;
  if (const auto* array = node.as_array()) {
    for (const toml::node& item : *array) {
      const auto bytes = bytes_of(item);
      if (!bytes) return std::nullopt;
      list.push_back(*bytes);
    }
  } else if (const auto words = node.value_exact<std::string>()) {  // "8,64K" of --set
    std::istringstream items{*words};
    for (std::string item; std::getline(items, item, ',');) {
      list.push_back(parse_bytes(item));
      if (list.back() < 0) return std::nullopt;
    }
  } else if (const auto bytes = bytes_of(node)) {
    list.push_back(*bytes);
  }
  return list.empty() ? std::nullopt : std::optional{list};
}

/// One row for a flat list. Empty if it is neither.
std::vector<std::vector<std::int64_t>> counts_of(const toml::node& node) {
  const auto* array = node.as_array();
  if (array == nullptr || array->empty()) return {};
  std::vector<std::vector<std::int64_t>> rows;
  const bool nested = array->get(0)->is_array();
  if (!nested) rows.emplace_back();
  for (const toml::node& item : *array) {
    if (nested != item.is_array()) return {};
    if (nested) rows.emplace_back();
    const auto add = [&](const toml::node& number) {
      const auto value = number.value_exact<std::int64_t>();
      if (value && *value >= 0) rows.back().push_back(*value);
      return value && *value >= 0;
    };
    if (!nested && !add(item)) return {};
    if (nested)
      for (const toml::node& number : *item.as_array())
        if (!add(number)) return {};
  }
  return rows;
}

bool among(std::string_view choices, std::string_view word) {
  while (true) {
    const auto end = choices.find('|');
    if (choices.substr(0, end) == word) return true;
    if (end == std::string_view::npos) return false;
    choices.remove_prefix(end + 1);
  }
}

std::optional<config_value> value_of(const config_setting& s, const toml::node& node) {
  const auto words = node.value_exact<std::string>();
  switch (s.kind) {
    case config_kind::boolean:
      if (const auto flag = node.value_exact<bool>()) return *flag;
      break;
    case config_kind::integer:
      if (const auto n = node.value_exact<std::int64_t>())
        if (static_cast<double>(*n) >= s.least && static_cast<double>(*n) <= s.most) return *n;
      break;
    case config_kind::real:
      if (const auto n = node.value<double>(); n && node.is_number() && *n >= s.least && *n <= s.most) return *n;
      break;
    case config_kind::text:
      if (words) return *words;
      break;
    case config_kind::scalar:
      if (words) return *words;
      if (const auto flag = node.value_exact<bool>()) return std::string{*flag ? "true" : "false"};
      if (const auto n = node.value_exact<std::int64_t>()) return std::to_string(*n);
      if (const auto n = node.value_exact<double>()) return (std::ostringstream{} << std::setprecision(17) << *n).str();
      break;
    case config_kind::choice:
      if (words && among(s.choices, *words)) return *words;
      break;
    case config_kind::bytes:
      if (bytes_of(node)) return words ? config_value{*words} : config_value{*node.value_exact<std::int64_t>()};
      break;
    case config_kind::duration:
      // A value that may be "none" may not be empty.
      if (words && (s.initial == "none" ? *words == "none" || parse_duration(*words) > 0 : parse_duration(*words) >= 0))
        return *words;
      break;
    case config_kind::sizes:
      if (auto list = sizes_of(node)) return std::move(*list);
      break;
    case config_kind::counts:
      if (auto rows = counts_of(node); !rows.empty()) return rows;
      break;
  }
  return std::nullopt;
}

config_value checked_value(const config_setting& s, std::string_view key, const toml::node& node,
                           const config_origin& origin) {
  if (auto value = value_of(s, node)) return std::move(*value);
  std::string extra;
  if (const auto words = node.value_exact<std::string>(); words && s.kind == config_kind::choice) {
    std::vector<std::string_view> choices;
    for (std::string_view rest = s.choices; !rest.empty();) {
      const auto end = std::min(rest.find('|'), rest.size());
      choices.push_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (const auto near = closest(*words, choices); !near.empty()) extra = "; did you mean " + std::string{near} + "?";
  }
  fail(place_of(origin), std::string{key} + " is " + describe(node) + "; it must be " + what_is_right(s) + extra);
}

/// A value written on the command line or in a variable: TOML where it is TOML and fits, else the text itself.
config_value value_from_text(const config_setting& s, std::string_view key, std::string_view text,
                             const config_origin& origin) {
  toml::table line;
  const bool wants_text = s.kind == config_kind::text || s.kind == config_kind::scalar ||
                          s.kind == config_kind::choice || s.kind == config_kind::duration;
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'');
  try {
    if (!wants_text || quoted) line = toml::parse("x = " + std::string{text});
  } catch (const toml::parse_error&) {  // not TOML, so a bare word
    line.clear();
  }
  if (line.size() != 1) {
    line.clear();
    line.insert("x", std::string{text});
  }
  return checked_value(s, key, *line.get("x"), origin);
}

}  // namespace

// -- reading ----------------------------------------------------------------------------------------------------------

/// One TOML document into a configuration.
class config_reader {
public:
  config_reader(configuration& into, std::string name, std::string folder)
      : into_(into), name_(std::move(name)), folder_(std::move(folder)) {}

  void read(std::string_view text) {
    toml::table document;
    try {
      document = toml::parse(text, name_);
    } catch (const toml::parse_error& wrong) {
      fail(name_ + ":" + std::to_string(wrong.source().begin.line), std::string{wrong.description()});
    }
    for (const auto& [key, node] : document) {
      const std::string table{key.str()};
      if (table != "engine" && table != "workload" && table != "study")
        fail(at(node).where, (node.is_table() ? "unknown table [" + table + "]" : table + " stands in no table") +
                                 "; there are [engine], [workload] and [study]" + wrong_top_level(table));
      if (!node.is_table())
        fail(at(node).where, table + " is " + describe(node) + "; it must be a table: [" + table + "]");
      read_table(table, *node.as_table());
    }
  }

private:
  static std::string wrong_top_level(const std::string& key) {
    constexpr std::size_t shortest_typo = 3;  // a letter is near everything
    const std::string hint = key.size() < shortest_typo ? "" : suggestion(key);
    return hint.find("did you mean") == std::string::npos ? "" : hint;
  }

  config_origin at(const toml::node& node) const {
    return {source::file, name_ + ":" + std::to_string(node.source().begin.line)};
  }

  /// "engine.faults", "study.hardware": keys begin with it.
  static bool is_table_of_keys(std::string_view name) {
    const auto& all = config_schema();
    return name.find('.') != std::string_view::npos && !name.starts_with("workload") &&
           std::any_of(all.begin(), all.end(), [&](const config_setting& s) {
             return s.key.size() > name.size() && s.key.starts_with(name) && s.key[name.size()] == '.';
           });
  }

  void read_table(const std::string& prefix, const toml::table& table) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + "." + std::string{name.str()};
      if (const int list = list_of(key + "."); list >= 0) {
        read_list(static_cast<std::size_t>(list), node);
      } else if (const config_setting* s = find_setting(key); s != nullptr) {
        // nic.bandwidth = … and [study.hardware.nic] are the same key.
        if (is_wild(s->key) && is_deep(s->key) && node.is_table()) read_table(key, *node.as_table());
        else put(*s, key, node);
      } else if (is_table_of_keys(key)) {
        if (!node.is_table())
          fail(at(node).where, key + " is " + describe(node) + "; it must be a table: [" + key + "]");
        read_table(key, *node.as_table());
      } else {
        fail(at(node).where, "unknown key " + key + suggestion(key));
      }
    }
  }

  void put(const config_setting& s, const std::string& key, const toml::node& node) {
    config_value value = checked_value(s, key, node, at(node));
    if ((key.starts_with("engine.score_files.") || key.starts_with("study.score_files.") ||
         key.starts_with("engine.choreography_libraries.") || key == "engine.tuning" || key == "workload.hosts" ||
         key.starts_with("engine.tls_") || key == "study.preset") &&
        !folder_.empty()) {
      const std::filesystem::path file{std::get<std::string>(value)};
      const bool word = file.empty() || (key == "engine.tuning" && file == "none") ||
                        (key == "study.preset" && file.extension() != ".toml");
      if (file.is_relative() && !word) value = (std::filesystem::path{folder_} / file).lexically_normal().string();
    }
    into_.put(key, std::move(value), at(node));
  }

  void read_list(std::size_t number, const toml::node& node) {
    const table_list& list = table_lists[number];
    const std::string title{title_of(list)};
    const auto* tables = node.as_array();
    if (tables == nullptr ||
        !std::all_of(tables->begin(), tables->end(), [](const toml::node& one) { return one.is_table(); }))
      fail(at(node).where,
           title + " is " + describe(node) + "; write one table [[" + title + "]] for every " + std::string{list.one});
    for (const toml::node& one : *tables) {
      config_table table;
      for (const auto& [name, value] : *one.as_table()) {
        const std::string key = std::string{list.prefix} + std::string{name.str()};
        const config_setting* s = find_setting(key);
        if (s == nullptr) fail(at(value).where, "unknown key " + key + suggestion(key));
        table.insert_or_assign(std::string{name.str()},
                               config_entry{checked_value(*s, key, value, at(value)), at(value)});
      }
      if (table.find(list.necessary) == table.end())
        fail(at(one).where, "this [[" + title + "]] has no " + std::string{list.necessary} + "; say, for example, " +
                                std::string{list.example});
      into_.lists_[number].push_back(std::move(table));
      into_.list_origins_[number].push_back(at(one));
    }
  }

  configuration& into_;
  std::string name_;
  std::string folder_;
};

configuration::configuration() {
  for (const config_setting& s : config_schema())
    // Counts have no default: they are there or not.
    if (!is_wild(s.key) && list_of(s.key) < 0 && s.kind != config_kind::counts)
      values_[std::string{s.key}] = {value_from_text(s, s.key, s.initial, {}), {}};
}

configuration configuration::load(const std::string& path) {
  configuration made;
  made.add_file(path);
  made.add_environment();
  return made;
}

void configuration::add_file(const std::string& path) {
  const file_text file = read_file(path, most_config_bytes);
  if (!file.problem.empty())
    throw error(errc::bad_config, path + ": cannot be read: " + file.problem +
                                      "; give the path of a TOML file, for example config/quickstart.toml");
  files_.push_back(path);
  add_text(file.text, path, std::filesystem::path{path}.parent_path().string());
}

void configuration::add_text(std::string_view toml, const std::string& name, const std::string& folder) {
  config_reader{*this, name, folder}.read(toml);
}

void configuration::add_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  add_environment(variables);
}

namespace {

std::string variable_of(std::string_view key) {
  std::string name = "TROUPE_";
  for (const char c : key) name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string lower(std::string_view text) {
  std::string small{text};
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

/// The key that a variable names, or empty.
std::string key_of_variable(std::string_view variable) {
  for (const config_setting& s : config_schema()) {
    const std::string whole = variable_of(s.key);
    if (!is_wild(s.key) && whole == variable) return std::string{s.key};
    const auto fixed = whole.find('*');
    if (is_wild(s.key) && variable.size() > fixed && variable.starts_with(std::string_view{whole}.substr(0, fixed)))
      return std::string{table_of(s.key)} + lower(variable.substr(fixed));
  }
  // TROUPE_WORKLOAD_RUN_0_TYPE
  for (const table_list& list : table_lists) {
    const std::string tables = variable_of(list.prefix);
    if (!variable.starts_with(tables)) continue;
    const auto digits = variable.find_first_not_of("0123456789", tables.size());
    if (digits == std::string_view::npos || digits == tables.size() || variable[digits] != '_') continue;
    const std::string name = lower(variable.substr(digits + 1)), prefix{list.prefix};
    if (find_setting(prefix + name) != nullptr)
      return prefix + std::string{variable.substr(tables.size(), digits - tables.size())} + "." + name;
  }
  return {};
}

/// Short forms are --set's alone: TROUPE_CREDITS would otherwise be passed over in silence.
void refuse_short_variable(std::string_view name) {
  constexpr std::string_view prefix = "TROUPE_";
  if (!name.starts_with(prefix) || concerns_launchers(name)) return;
  for (const char* table : {"TROUPE_ENGINE_", "TROUPE_WORKLOAD_", "TROUPE_STUDY_"}) {
    const std::string whole = table + std::string{name.substr(prefix.size())};
    if (!key_of_variable(whole).empty())
      fail(std::string{name},
           "this environment variable names no key of the configuration; did you mean " + whole + "?");
  }
}

}  // namespace

void configuration::add_environment(std::span<const std::string> variables) {
  environment_read_ = true;
  for (const std::string& variable : variables) {
    const auto equals = variable.find('=');
    const std::string_view name = std::string_view{variable}.substr(0, equals);
    if (equals == std::string::npos) continue;
    // The one short name: also programs without a configuration look at it (engine/planning/tuning.hpp).
    if (name == "TROUPE_TUNING") {
      if (equals + 1 < variable.size())
        set("engine.tuning", std::string_view{variable}.substr(equals + 1), {source::environment, std::string{name}});
      continue;
    }
    if (!name.starts_with("TROUPE_ENGINE_") && !name.starts_with("TROUPE_WORKLOAD_") &&
        !name.starts_with("TROUPE_STUDY_")) {
      refuse_short_variable(name);
      continue;
    }
    const std::string key = key_of_variable(name);
    if (key.empty()) {
      std::vector<std::string> all;
      for (const config_setting& s : config_schema())
        if (!is_wild(s.key)) all.push_back(variable_of(s.key));
      const std::vector<std::string_view> names{all.begin(), all.end()};
      const auto near = closest(name, names);
      fail(std::string{name}, "this environment variable names no key of the configuration" +
                                  (near.empty() ? std::string{"; docs/config.md lists all"}
                                                : "; did you mean " + std::string{near} + "?"));
    }
    set(key, std::string_view{variable}.substr(equals + 1), {source::environment, std::string{name}});
  }
}

void configuration::set_from_command_line(std::string_view assignment, std::string_view option) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0)
    fail(std::string{option},
         "\"" + std::string{assignment} + "\" is no assignment; write key=value, for example engine.credits=4");
  set(assignment.substr(0, equals), assignment.substr(equals + 1), {source::command_line, std::string{option}});
}

std::string configuration::full_key(std::string_view key) {
  std::string full{key};
  for (const char* table : {"engine.", "workload.", "study."})
    if (find_setting(full) == nullptr && find_setting(table + full) != nullptr) full = table + full;
  for (const table_list& list : table_lists)  // "run.0.type", "job.0.calls"
    if (const auto dot = list.prefix.find('.') + 1; full.starts_with(list.prefix.substr(dot)))
      return std::string{list.prefix.substr(0, dot)} + full;
  return full;
}

void configuration::set(std::string_view key, std::string_view value, const config_origin& origin) {
  std::string full = full_key(key);
  const int number = list_of(full);
  const table_list* const list = number < 0 ? nullptr : &table_lists[static_cast<std::size_t>(number)];
  // workload.run.3.type
  std::optional<std::size_t> only;
  if (list != nullptr) {
    const std::size_t begin = list->prefix.size();
    const auto digits = full.find_first_not_of("0123456789", begin);
    if (digits != std::string::npos && digits > begin && digits < begin + 7 && full[digits] == '.') {
      only = std::stoul(full.substr(begin, digits - begin));
      full.erase(begin, digits + 1 - begin);
    }
  }
  const config_setting* s = find_setting(full);
  if (s == nullptr) fail(place_of(origin), "unknown key " + full + suggestion(full));
  config_entry entry{value_from_text(*s, full, value, origin), origin};
  if (list == nullptr) {
    values_.insert_or_assign(full, std::move(entry));
    return;
  }
  std::vector<config_table>& tables = lists_[static_cast<std::size_t>(number)];
  if (only && *only >= tables.size())
    fail(place_of(origin), "there is no " + std::string{list->one} + " " + std::to_string(*only) + "; " +
                               std::string{list->of} + " has " + std::to_string(tables.size()) + ", counted from 0");
  for (std::size_t i = 0; i < tables.size(); ++i)
    if (!only || *only == i) tables[i].insert_or_assign(full.substr(list->prefix.size()), entry);
}

config_entry& configuration::put(const std::string& key, config_value value, config_origin origin) {
  return values_[key] = {std::move(value), std::move(origin)};
}

void configuration::forget(std::string_view key) {
  static const configuration usual;
  put(std::string{key}, usual.at(key).value, {});
}

void configuration::rename(const std::string& key, const std::string& to) {
  if (key == to) return;
  config_entry moved = std::move(values_.extract(key).mapped());
  config_entry& there = values_[to];  // a new one is as weak as a default
  if (moved.origin.from > there.origin.from) there = std::move(moved);
}

// -- what was said ----------------------------------------------------------------------------------------------------

const config_entry& configuration::at(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) throw error(errc::bad_config, "unknown key " + std::string{key} + suggestion(key));
  return found->second;
}

std::map<std::string, config_entry> configuration::under(std::string_view table) const {
  const std::string prefix = std::string{table} + ".";
  std::map<std::string, config_entry> found;
  for (const auto& [key, entry] : values_)
    if (key.starts_with(prefix)) found.emplace(key.substr(prefix.size()), entry);
  return found;
}

// -- dump -------------------------------------------------------------------------------------------------------------

namespace {

std::string toml_string(std::string_view text) {
  std::ostringstream out;
  out << toml::table{{"x", std::string{text}}}["x"];
  return out.str();
}

template <class List, class Write>
std::string listed(const List& items, Write write) {
  std::string text = "[";
  for (const auto& item : items) text += (text.size() > 1 ? ", " : "") + write(item);
  return text + "]";
}

std::string toml_text(const config_value& value) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* n = std::get_if<std::int64_t>(&value)) return number(*n);
  if (const auto* text = std::get_if<std::string>(&value)) return toml_string(*text);
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) return listed(*list, number);
  if (const auto* rows = std::get_if<std::vector<std::vector<std::int64_t>>>(&value)) {
    // A flat list was read as its only row; a matrix of one row means the same.
    if (rows->size() == 1) return listed(rows->front(), number);
    return listed(*rows, [&](const std::vector<std::int64_t>& row) { return listed(row, number); });
  }
  std::ostringstream out;
  out << toml::table{{"x", std::get<double>(value)}}["x"];
  return out.str();
}

std::string bare_or_quoted(std::string_view name) {
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
  return bare ? std::string{name} : toml_string(name);
}

/// Where a value came from; of the tuning file, also which one an engine would find by itself.
std::string origin_text(std::string_view name, const config_entry& entry) {
  if (name != "tuning" || entry.origin.from != source::initial) return to_string(entry.origin);
  const tuning_place place = find_tuning({});
  using from = tuning_place::found;
  if (place.from == from::environment)
    return "environment TROUPE_TUNING: " + (place.path.empty() ? std::string{"none"} : place.path);
  return place.from == from::default_place ? "default: " + place.path : "default: assumed constants";
}

void dump_line(std::ostringstream& out, std::string_view name, const config_entry& entry) {
  std::string line = bare_or_quoted(name) + " = " + toml_text(entry.value);
  line.resize(std::max<std::size_t>(line.size(), 39), ' ');
  out << line << " # " << origin_text(name, entry) << '\n';
}

}  // namespace

std::string configuration::dump(bool all) const {
  std::ostringstream out;
  std::string open;
  // Tables in the schema's order; within one the keys' order, names of wild cards by name.
  const auto write = [&](const std::string& key, const config_entry& entry, std::size_t dot = std::string::npos) {
    if (!all && entry.origin.from == source::initial) return;
    // Behind a wild card all of the rest is one (quoted) name.
    dot = std::min(dot, key.rfind('.'));
    if (const std::string table = key.substr(0, dot); table != open) {
      out << (open.empty() ? "" : "\n") << '[' << table << "]\n";
      open = table;
    }
    dump_line(out, std::string_view{key}.substr(dot + 1), entry);
  };
  for (const config_setting& s : config_schema()) {
    if (list_of(s.key) >= 0) continue;
    if (!is_wild(s.key) && !has(s.key)) continue;
    if (!is_wild(s.key)) write(std::string{s.key}, at(s.key));
    else
      for (const auto& [name, entry] : under(table_of(s.key).substr(0, table_of(s.key).size() - 1)))
        write(std::string{table_of(s.key)} + name, entry, table_of(s.key).size() - 1);
  }
  for (std::size_t l = 0; l < table_lists.size(); ++l)
    for (const config_table& table : lists_[l]) {
      const table_list& list = table_lists[l];
      out << "\n[[" << title_of(list) << "]]\n";
      for (const config_setting& s : config_schema()) {
        if (!s.key.starts_with(list.prefix)) continue;
        const std::string_view name = s.key.substr(list.prefix.size());
        if (const auto found = table.find(name); found != table.end()) dump_line(out, name, found->second);
      }
    }
  return out.str();
}

}  // namespace troupe
