// SPDX-License-Identifier: Apache-2.0
#pragma once
// The configuration: one schema, five sources. A value comes from (weakest first) its default, a TOML file, a TROUPE_… variable,
// `--set` on the command line, or the program (configuration::set); every value remembers which.
//
// A key's variable is TROUPE_ and the key in capitals, with '_' for '.': engine.credits → TROUPE_ENGINE_CREDITS. Every variable
// that begins with TROUPE_ENGINE_, TROUPE_WORKLOAD_ or TROUPE_STUDY_ must name a key, and none may be a key's short form (TROUPE_CREDITS); others are
// not looked at, nor are those of launchers (engine/world/launcher_environment.hpp).

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/api/options.hpp"
#include "memory/spelling.hpp"

namespace troupe {

/// What `run` and `bench` take on: a thread or actor a rank, and blocks for every pair, are more than a process should have beyond it.
inline constexpr int most_ranks_of_a_process = 1024;

enum class config_kind : std::uint8_t {
  boolean,
  integer,
  real,
  text,
  scalar,  ///< a text, number or truth value, kept as text
  choice,
  bytes,     ///< an integer, or text such as "512K", "1M", "64MiB" (powers of 1024)
  duration,  ///< text such as "100ms", "5s"
  sizes,     ///< list of bytes, or { from = "8", to = "64M", factor = 4 } (or step = "1M")
  counts,    ///< list of integers, or a list of such lists
};

/// One key of the schema.
struct config_setting {
  std::string_view key;  ///< "engine.credits"; "*" as the last part stands for any name, "**" for a name with dots
  config_kind kind = config_kind::text;
  std::string_view initial;  ///< the default, as --set would give it
  std::string_view help;     ///< one line
  double least = 0;          ///< of integer and real
  double most = 0;
  std::string_view choices{};  ///< of choice: "a|b|c"
};
/// Every key there is, in the order of the documentation. Keys of `[[workload.run]]` begin with "workload.run.", those of
/// `[[study.job]]` with "study.job.", those of `[[study.node]]` with "study.node.".
std::span<const config_setting> config_schema();
/// "an integer from 1 to 64", "one of fast, run_stable, …".
std::string what_is_right(const config_setting& setting);

/// Where a value came from.
struct config_origin {
  enum class source : std::uint8_t { initial, file, environment, command_line, api } from = source::initial;
  std::string where{};  ///< "study.toml:12", "TROUPE_ENGINE_CREDITS", "--set"
};
/// "default", "study.toml:12", "environment TROUPE_ENGINE_CREDITS", "command line", "API".
std::string to_string(const config_origin& origin);
/// As messages begin: "study.toml:12", "TROUPE_ENGINE_CREDITS", "--set" or another option that said it, "API".
std::string place_of(const config_origin& origin);

using config_value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                  std::vector<std::vector<std::int64_t>>>;
struct config_entry {
  config_value value;
  config_origin origin;
};
/// By key; of a run, job or node by the last part of the key.
using config_table = std::map<std::string, config_entry, std::less<>>;

/// A value type; not thread-safe. Every member that changes it throws error(bad_config) whose text begins with the place
/// ("study.toml:12", "--set", the variable's name) and says what was found and what would be right; the configuration is then
/// unspecified.
class configuration {
public:
  /// The defaults.
  configuration();

  /// A file, then the process's TROUPE_… variables.
  static configuration load(const std::string& path);

  void add_file(const std::string& path);
  /// @param name is what messages call the text; relative score files are looked up in `folder`.
  void add_text(std::string_view toml, const std::string& name, const std::string& folder = {});
  /// The process's environment.
  void add_environment();
  /// "NAME=value" strings, as in environ.
  void add_environment(std::span<const std::string> variables);
  /// `key` in full, or without "engine.", "workload." or "study." where that says enough (of several in this order). "workload.run.type" sets it in every run,
  /// "workload.run.0.type" in the first; so do "study.job.calls" and "study.job.0.calls".
  void set(std::string_view key, std::string_view value,
           const config_origin& origin = {config_origin::source::api, "API"});
  /// "key=value" of --set, or of another option, which messages then name.
  void set_from_command_line(std::string_view assignment, std::string_view option = "--set");
  /// `key` means `to`, whose value counts if it comes from a stronger source. @pre has(key)
  void rename(const std::string& key, const std::string& to);
  /// As if nobody had said it. @pre a key of the schema without a wild card
  void forget(std::string_view key);
  /// The key that set() means by `key`: "engine.credits" of "credits".
  static std::string full_key(std::string_view key);

  // -- what was said --

  /// Throws error(bad_config) for an unknown key.
  const config_entry& at(std::string_view key) const;
  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  const config_table& values() const noexcept { return values_; }
  /// The paths that add_file() was given.
  const std::vector<std::string>& files() const noexcept { return files_; }
  /// The runs of the workload; keys that a run does not set are not in its table.
  const std::vector<config_table>& runs() const noexcept { return lists_[0]; }
  /// The same of a study's jobs.
  const std::vector<config_table>& jobs() const noexcept { return lists_[1]; }
  /// Where the table of a job begins.
  const config_origin& origin_of_job(std::size_t job) const { return list_origins_[1].at(job); }
  /// The nodes of a study's flow, and where the table of one begins.
  const std::vector<config_table>& nodes() const noexcept { return lists_[2]; }
  const config_origin& origin_of_node(std::size_t node) const { return list_origins_[2].at(node); }
  static constexpr std::size_t list_count = 3;
  /// The names below a key that ends in ".*": config_under("engine.score_files").
  std::map<std::string, config_entry> under(std::string_view table) const;

  /// Choreographies from outside, of [engine]: the libraries are loaded, so that this process knows theirs by name; score files must be there,
  /// and are not read. Throws error(bad_config) that names the place.
  struct own_choreographies {
    std::map<std::string, std::string> libraries, score_files;  ///< name → file
  };
  own_choreographies load_own_choreographies() const;

  /// The engine's part. Throws error(bad_config) where values contradict each other or name a choreography that is unknown.
  engine_options engine() const;

  /// What NCCL's tuning model is asked about. @param table "engine.nccl." or "study.nccl."
  nccl_options nccl(const std::string& table) const;

  /// All values as TOML that reads back the same, with where each came from as a comment. `all`: also the defaults.
  std::string dump(bool all = true) const;

private:
  friend class config_reader;
  config_entry& put(const std::string& key, config_value value, config_origin origin);
  void check_choreography(const std::string& what, const config_entry& entry) const;

  config_table values_;
  std::array<std::vector<config_table>, list_count> lists_;  ///< [[workload.run]], [[study.job]], [[study.node]]
  std::array<std::vector<config_origin>, list_count> list_origins_;
  std::vector<std::string> files_;
  bool environment_read_ = false;
};

/// An engine's options as its program set them, with what it left at the default from TROUPE_CONFIG's file and from TROUPE_ENGINE_…
/// variables, unless options.environment is false. Throws error(bad_config).
engine_options with_environment(engine_options options);
/// TROUPE_CONFIG: the file that counts where no other is named; empty: none.
std::string config_file_of_environment();

// -- helpers that other readers share --

/// Bytes of "512", "512K", "1M", "64MiB", "2g"; −1 if it is none of these.
std::int64_t parse_bytes(std::string_view text);
/// "512K", "1000", "64M".
std::string bytes_text(std::uint64_t bytes);
/// Nanoseconds of "100ns", "5us", "1.5ms", "2s", "1min"; −1 if it is none of these.
std::int64_t parse_duration(std::string_view text);

}  // namespace troupe
