// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/launch/commands.hpp"

#include <algorithm>

#include "engine/world/launcher_environment.hpp"

namespace troupe::launch {

namespace {

std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

std::string join_of(const job& of) { return "TROUPE_JOIN=" + of.rendezvous; }

std::vector<std::string> place_of(const job& of, int rank) {
  return {"TROUPE_RANK=" + std::to_string(rank), "TROUPE_RANKS=" + std::to_string(of.processes)};
}

bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), fits);
}

}  // namespace

std::string quoted_for_shell(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text)
    if (c == '\'') quoted += "'\\''";
    else quoted += c;
  return quoted + "'";
}

command command_here(const job& of, int rank, const std::string& directory, const std::string& pod) {
  command made{.rank = rank, .words = of.program, .environment = {}, .directory = directory};
  for (const std::string& variable : of.environment)
    if (!concerns_launchers(name_of(variable))) made.environment.push_back(variable);
  made.environment.push_back(join_of(of));
  for (std::string& variable : place_of(of, rank)) made.environment.push_back(std::move(variable));
  if (!of.invited) made.environment.push_back("TROUPE_KEY=" + of.key);
  // Names that this process was given for its host are right for those here, too.
  if (!pod.empty()) made.environment.push_back("TROUPE_POD=" + pod);
  else
    for (const std::string& variable : of.environment)
      if (name_of(variable) == "TROUPE_POD") made.environment.push_back(variable);
  return made;
}

/// The script, inside out. The process leads a session and process group of its own, whose number ($$) it keeps through exec. A helper in
/// that group reads standard input: a line is a signal for the group; its end, also when the launcher or the connection is gone, is
/// KILL. The helper is what runs in the background, because a shell has its background ignore interrupts. The outer shell is
/// there to say the exit status, which of a signal is 128 + its number; what it has to say about that is nobody's error.
command command_there(const job& of, int rank, const host& where, const std::string& directory) {
  const std::string secret = of.invited ? "TROUPE_JOIN" : "TROUPE_KEY";
  std::string inner = "exec 3<&0 </dev/null\n"
                      "IFS= read -r " +
                      secret + " <&3 || exit 255\nexport " + secret +
                      "\n"
                      "{ trap '' HUP INT QUIT TERM USR1 USR2\n"
                      "while IFS= read -r signal; do kill -s \"$signal\" -- \"-$$\"; done\n"
                      "kill -s KILL -- \"-$$\"; } <&3 3<&- >/dev/null 2>&1 &\n"
                      "exec 3<&-\n"
                      "cd " +
                      quoted_for_shell(where.directory.empty() ? directory : where.directory) + " || exit 2\nexport";
  std::vector<std::string> variables = place_of(of, rank);
  if (!of.invited) variables.insert(variables.begin(), join_of(of));
  if (!where.pod.empty()) variables.push_back("TROUPE_POD=" + where.pod);
  for (const std::string& variable : of.environment)
    if (variable.starts_with("TROUPE_") && !concerns_launchers(name_of(variable)) && is_name(name_of(variable)))
      variables.push_back(variable);
  for (const std::string& variable : variables)
    inner += " " + std::string{name_of(variable)} + "=" +
             quoted_for_shell(std::string_view{variable}.substr(variable.find('=') + 1));
  inner += "\nexec";
  for (const std::string& word : of.program) inner += " " + quoted_for_shell(word);
  const std::string outer = "printf '\\001troupe\\002\\n'\nexec 4>&2 2>/dev/null\nsetsid sh -c " +
                            quoted_for_shell(inner) + " 2>&4 4>&-\nexit $?";

  command made{.rank = rank,
               .words = where.command,
               .environment = {},
               .directory = {},
               .host = where.address,
               .first_input = (of.invited ? of.rendezvous : of.key) + "\n"};
  made.words.push_back("exec sh -c " + quoted_for_shell(outer));
  for (const std::string& variable : of.environment)
    if (!concerns_launchers(name_of(variable))) made.environment.push_back(variable);
  return made;
}

}  // namespace troupe::launch
