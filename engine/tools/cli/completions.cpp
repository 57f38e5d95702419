// SPDX-License-Identifier: Apache-2.0
// Completions for bash and zsh.
#include "engine/tools/cli/generate.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "engine/config/configuration.hpp"
#include "engine/tools/config_json_schema.hpp"
#include "engine/tools/study/this_machine.hpp"
#include "engine/tools/workload.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace troupe::cli {

namespace {

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& n : option.get_lnames()) names.push_back("--" + n);
  for (const std::string& n : option.get_snames()) names.push_back("-" + n);
  return names;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// "set" → "set=": what a --set begins with.
std::vector<std::string> keys() {
  std::vector<std::string> list;
  for (const config_setting& s : config_schema())
    if (const auto wild = s.key.find('*'); wild == std::string_view::npos) list.push_back(std::string{s.key} + "=");
    else list.emplace_back(s.key.substr(0, wild));
  return list;
}

/// The lines of bash that offer words or files as the values of one place.
std::string bash_offer(const completion& of) {
  if (of.folders) return "COMPREPLY=($(compgen -d -- \"$cur\"))";
  std::string line;
  if (!of.words.empty()) line = "COMPREPLY=($(compgen -W '" + joined(of.words) + "' -- \"$cur\"))";
  if (of.files)
    line += std::string{line.empty() ? "" : "; "} +
            "COMPREPLY+=($(compgen -f -- \"$cur\")); compopt -o filenames 2>/dev/null";
  return line.empty() ? ":" : line;
}

std::string bash_command(const CLI::App& command) {
  std::string values, flags, positional;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) {
      positional += "        " + bash_offer(completion_of(type_of(*option))) + "\n";
      continue;
    }
    flags += (flags.empty() ? "" : " ") + joined(names_of(*option));
    if (takes_value(*option))
      values += "        " + joined(names_of(*option), "|") + ") " + bash_offer(completion_of(type_of(*option))) +
                "; return ;;\n";
  }
  std::string text = "    " + command.get_name() + ")\n      case \"$prev\" in\n" + values + "      esac\n";
  text += "      if [[ $cur == -* ]]; then\n        COMPREPLY=($(compgen -W '" + flags + "' -- \"$cur\"))\n";
  if (command.get_prefix_command()) positional += "        " + bash_offer({{}, true, false}) + "\n";
  if (!positional.empty()) text += "      else\n" + positional;
  return text + "      fi\n      ;;\n";
}

/// In single quotes of an _arguments specification: brackets and colons end parts of it.
std::string zsh_quoted(std::string_view text) {
  std::string made;
  for (const char c : text) {
    if (c == '\'') made += "'\\''";
    else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') made += '\\';
      made += c;
    }
  }
  return made;
}

std::string zsh_action(const CLI::Option& option) {
  const completion of = completion_of(type_of(option));
  std::string action = of.folders ? "_files -/" : of.files ? "_files" : " ";
  if (!of.words.empty()) {
    action = "(" + joined(of.words) + ")";
    if (std::all_of(of.words.begin(), of.words.end(),
                    [](const std::string& w) { return w.back() == '=' || w.back() == '.'; }))
      action = "{compadd -S \"\" -- " + joined(of.words) + "}";
  }
  return ":" + zsh_quoted(type_of(option)) + ":" + action;
}

std::string zsh_command(const CLI::App& command) {
  std::string text = "        " + command.get_name() + ")\n          _arguments";
  for (const CLI::Option* option : command.get_options()) {
    text += " \\\n            ";
    if (option->get_positional()) {
      text += "'" + zsh_action(*option) + "'";
      continue;
    }
    const auto names = names_of(*option);
    const bool repeated = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    text += repeated ? "'*'" : "'(" + joined(names) + ")'";
    text += names.size() > 1 ? "{" + joined(names, ",") + "}" : names.front();
    text +=
        "'[" + zsh_quoted(option->get_description()) + "]" + (takes_value(*option) ? zsh_action(*option) : "") + "'";
  }
  if (command.get_prefix_command()) text += " \\\n            '*:program and its arguments:_files'";
  return text + "\n          ;;\n";
}

}  // namespace

std::string type_of(const CLI::Option& option) {
  const std::string text = option.get_type_name();
  return text.substr(0, text.find(':'));
}

std::vector<const CLI::App*> commands_of(const CLI::App& program) {
  return program.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
}

completion completion_of(std::string_view type_name) {
  const auto of_setting = [](const char* key) { return completion{words_of_setting(key).words, false, false}; };
  if (type_name == "FILE") return {{}, true, false};
  if (type_name == "FOLDER") return {{}, false, true};
  if (type_name == "KEY=VALUE" || type_name == "KEY=A,B,C") return {keys(), false, false};
  if (type_name == "COLLECTIVE") return of_setting("workload.run.collective");
  if (type_name == "COLLECTIVES") {
    completion made = of_setting("workload.run.collective");
    made.words.emplace_back("all");
    return made;
  }
  if (type_name == "CHOREOGRAPHY") return of_setting("engine.choreography");
  if (type_name == "TYPE") return of_setting("workload.run.type");
  if (type_name == "OP") return of_setting("workload.run.op");
  if (type_name == "LEVEL") return of_setting("engine.determinism");
  if (type_name == "PROTOCOL") return of_setting("engine.protocol");
  if (type_name == "PRESET" || type_name == "MACHINE") return of_setting("study.preset");
  if (type_name == "WHAT") return {{"man", "bash", "zsh", "schema"}, false, false};
  return {};
}

std::string bash_completion(const CLI::App& program) {
  std::string names;
  for (const CLI::App* sub : commands_of(program)) names += sub->get_name() + " ";
  std::string text =
      R"(# bash completion for troupe, made by `troupe generate bash`: source it, or put it into bash-completion's folder as "troupe".
_troupe() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W ')" +
      names + R"(help --help --version' -- "$cur"))
    return
  fi
  if [[ ${COMP_WORDS[1]} == help ]]; then
    ((COMP_CWORD > 2)) || COMPREPLY=($(compgen -W ')" +
      names + R"(' -- "$cur"))
    return
  fi
  case ${COMP_WORDS[1]} in
)";
  for (const CLI::App* sub : commands_of(program)) text += bash_command(*sub);
  return text + R"(  esac
}
_troupe_complete() {
  _troupe
  # A key goes on with its value.
  [[ ${COMPREPLY[0]-} == *[=.] ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -F _troupe_complete troupe
)";
}

std::string zsh_completion(const CLI::App& program) {
  std::string text = R"(#compdef troupe
# zsh completion for troupe, made by `troupe generate zsh`: put it into a folder of $fpath as "_troupe".
_troupe() {
  local curcontext=$curcontext state line
  local -a commands=(
)";
  for (const CLI::App* sub : commands_of(program))
    text += "    '" + sub->get_name() + ":" + zsh_quoted(sub->get_description()) + "'\n";
  text += R"(    'help:what a command does'
  )
  _arguments -C '(- *)--version[print the version]' '(- *)'{-h,--help}'[print the help]' '1:command:->command' '*::argument:->argument'
  case $state in
    command) _describe command commands ;;
    argument)
      case $words[1] in
)";
  for (const CLI::App* sub : commands_of(program)) text += zsh_command(*sub);
  return text + R"(        help) _describe command commands ;;
      esac
      ;;
  esac
}
if [[ $funcstack[1] == _troupe ]]; then _troupe "$@"; else compdef _troupe troupe; fi
)";
}

}  // namespace troupe::cli
