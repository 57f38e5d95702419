// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a subcommand says what it takes: CLI11, as far as the program needs it. CLI11 itself is all in headers, and would cost each command's file
// some seconds to compile; only command.cpp, main.cpp and what is made from the description (generate.hpp) include it.
//
// Commands and options are handles, as cheap as a pointer, valid as long as the program's command line. What they bind is written when the command
// line is read. Nothing here is for several threads.

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace troupe::cli {

/// An option, a flag or an argument of a command.
class option {
public:
  explicit option(CLI::Option& of) : of_{&of} {}

  option required() const;
  /// What the help says in its place: "FILE". Completions go by that, too (generate.hpp).
  option type_name(const char* name) const;
  enum class in_help : bool { no, yes };
  /// Other values are mistakes. @param say whether the help shows the bounds
  option within(int least, int most, in_help say = in_help::yes) const;
  option within(double least, double most) const;
  option one_of(std::initializer_list<const char*> words) const;
  /// @param choices "a|b|c"
  option one_of(std::string_view choices) const;
  option needs(option other) const;
  option excludes(option other) const;
  /// May come several times, with one value each; all count.
  option repeated() const;
  /// The values of one list: "1,2,4".
  option separated_by(char delimiter) const;
  /// The help shows the value that it has now.
  option shows_default() const;
  /// For the program itself: no help tells of it.
  option hidden() const;

private:
  CLI::Option* of_;
};

class command {
public:
  explicit command(CLI::App& of) : of_{&of} {}

  command add_command(const char* name, const char* what) const;
  /// @param names "-n,--iters"; without a dash it is an argument
  /// Value: std::string, int, double, std::size_t, std::vector of strings or ints, std::optional<std::uint64_t>.
  template <class Value>
  option add_option(const char* names, Value& into, const std::string& what) const;
  option add_flag(const char* names, bool& into, const char* what = "") const;
  /// Below the options in the help.
  void footer(const char* text) const;
  /// Called when the command line has been read, if it names this command.
  void when_named(std::function<void()> then) const;
  /// Whether an option was given; for defaults that depend on that.
  bool came(const char* name) const;

  /// What follows the options is a program with words of its own, which `rest` gives.
  void takes_program() const;
  std::vector<std::string> rest() const;
  /// As if CLI11 had found these.
  [[noreturn]] void refuse(const std::vector<std::string>& words) const;

  const CLI::App& description() const { return *of_; }

private:
  CLI::App* of_;
};

}  // namespace troupe::cli
