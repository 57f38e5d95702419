// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is made from the command line's own description, so that it cannot say anything else: the man page and the completions.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace troupe::cli {

/// troupe(1), for man: every command with its options and examples, exit codes, variables.
std::string man_page(const CLI::App& program);
/// For `source`, or a file in bash-completion's folder. Needs nothing of bash-completion.
std::string bash_completion(const CLI::App& program);
/// The file _troupe of zsh's $fpath.
std::string zsh_completion(const CLI::App& program);

/// The commands, in the order of the help.
std::vector<const CLI::App*> commands_of(const CLI::App& program);

/// "FILE": an option's type as its help shows it, without what is checked about it.
std::string type_of(const CLI::Option& option);

struct completion {
  std::vector<std::string> words;
  bool files = false;
  bool folders = false;
};
/// What can stand where the help says `type_name` ("COLLECTIVE", "FILE"); nothing where only the user knows.
completion completion_of(std::string_view type_name);

struct exit_status {
  int code;
  std::string_view meaning;
};
std::span<const exit_status> exit_statuses();

}  // namespace troupe::cli
