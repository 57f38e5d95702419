// SPDX-License-Identifier: Apache-2.0
// troupe(1), from the command line's own description.
#include "engine/tools/cli/generate.hpp"

#include <cctype>
#include <sstream>

#include <CLI/CLI.hpp>

#include "engine/config/configuration.hpp"

namespace troupe::cli {

namespace {

/// Text that roff must not take for a request, or hyphens for typography.
std::string roff(std::string_view text) {
  std::string made;
  for (const char c : text) {
    if (c == '\\') made += "\\e";
    else if (c == '-') made += "\\-";
    else if (c == '\'') made += "\\(aq";
    else if (c == '`') made += "\\(ga";
    else if (c == '^') made += "\\(ha";
    else if (c == '~') made += "\\(ti";
    else made += c;
  }
  return made;
}

/// A line of running text, which must not begin as a request does.
std::string line_of(std::string_view text) {
  const std::string made = roff(text);
  return (made.starts_with('.') ? "\\&" : "") + made + "\n";
}

std::string capitals(std::string_view text) {
  std::string made;
  for (const char c : text) made += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return made;
}

/// Lines as they stand where they are examples or columns, others as paragraphs.
std::string told(const std::string& text) {
  std::string made;
  std::istringstream lines{text};
  bool as_it_stands = false;
  for (std::string line; std::getline(lines, line);) {
    const bool indented = line.starts_with("  ");
    if (indented != as_it_stands) made += indented ? ".PP\n.nf\n" : ".fi\n.PP\n";
    as_it_stands = indented;
    made += line.empty() ? (as_it_stands ? "\n" : ".PP\n") : line_of(line);
  }
  return made + (as_it_stands ? ".fi\n" : "");
}

std::string option_text(const CLI::Option& option) {
  std::string names;
  for (const std::string& n : option.get_snames())
    names += (names.empty() ? "" : ", ") + ("\\fB" + roff("-" + n) + "\\fR");
  for (const std::string& n : option.get_lnames())
    names += (names.empty() ? "" : ", ") + ("\\fB" + roff("--" + n) + "\\fR");
  if (option.get_items_expected_max() > 0) names += " \\fI" + roff(type_of(option)) + "\\fR";
  return ".TP\n" + names + "\n" + line_of(option.get_description());
}

std::string command_text(const CLI::App& command) {
  std::string text = ".SS troupe " + command.get_name(), options, arguments;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) {
      options += option_text(*option);
      continue;
    }
    const std::string name = "\\fI" + roff(type_of(*option)) + "\\fR";
    text += option->get_required() ? " " + name : " [" + name + "]";
    arguments += ".TP\n" + name + "\n" + line_of(option->get_description());
  }
  if (command.get_prefix_command()) text += " \\fIPROGRAM\\fR [\\fIARGUMENTS\\fR]";
  return text + "\n" + line_of(command.get_description() + ".") + arguments + options + ".PP\n" +
         told(command.get_footer());
}

std::string variables() {
  std::string text;
  const auto one = [&](const std::string& name, const std::string& what) {
    text += ".TP\n\\fB" + name + "\\fR\n" + line_of(what);
  };
  one("TROUPE_CONFIG", "a configuration file for every engine whose program names none; its [engine] counts");
  one("TROUPE_TUNING", "the file of troupe tune to plan by, or none; short for TROUPE_ENGINE_TUNING");
  for (const config_setting& s : config_schema())
    if (s.key.starts_with("engine.") && !s.key.ends_with('*')) one("TROUPE_" + capitals(s.key), std::string{s.help});
  text += ".PP\nKeys of [workload] and [study] have variables in the same way.\n";
  return text;
}

}  // namespace

std::string man_page(const CLI::App& program) {
  std::string text =
      "'\\\" t\n.\\\" Made by `troupe generate man`.\n.TH TROUPE 1 \"\" \"" + roff(program.version()) +
      "\" \"Troupe\"\n.nh\n.ad l\n.SH NAME\ntroupe \\- " +
      line_of("collective communication as verified choreographies") +
      ".SH SYNOPSIS\n\\fBtroupe\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.br\n\\fBtroupe help\\fR [\\fICOMMAND\\fR]\n"
      ".SH DESCRIPTION\n" +
      line_of("A collective algorithm is a choreography: who sends which chunk to whom, in which order. This "
              "program performs, checks, measures, explains and simulates collectives by them.") +
      ".SH COMMANDS\n";
  for (const CLI::App* sub : commands_of(program)) text += command_text(*sub);
  text += ".SH EXIT STATUS\n";
  for (const exit_status& s : exit_statuses())
    text += ".TP\n\\fB" + std::to_string(s.code) + "\\fR\n" + line_of(s.meaning);
  text += ".SH ENVIRONMENT\n" + variables();
  text += ".SH FILES\n.TP\n\\fI$XDG_CONFIG_HOME/troupe/tuning.toml\\fR\nwhat this machine costs, as troupe tune "
          "measured it\n";
  return text;
}

}  // namespace troupe::cli
