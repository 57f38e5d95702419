// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/cli/command.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>

namespace troupe::cli {

namespace {

/// CLI11 knows no program with words of its own.
class help_of_starter : public CLI::Formatter {
public:
  std::string make_usage(const CLI::App*, std::string name) const override {
    return "Usage: " + name + " [OPTIONS] PROGRAM [ARGUMENTS...]\n";
  }
};

}  // namespace

// -- option ---------------------------------------------------------------------------------------

option option::required() const { return option{*of_->required()}; }
option option::type_name(const char* name) const { return option{*of_->type_name(name)}; }

option option::within(int least, int most, in_help say) const {
  CLI::Validator range = CLI::Range(least, most);
  if (say == in_help::no) range.description("");
  return option{*of_->check(range)};
}

option option::within(double least, double most) const {
  // Neither below nor above is what is no number.
  const CLI::Validator number{[](const std::string& text) {
                                return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is no number"
                                                                                      : std::string{};
                              },
                              ""};
  return option{*of_->check(number)->check(CLI::Range(least, most))};
}

option option::one_of(std::initializer_list<const char*> words) const {
  CLI::Validator member = CLI::IsMember(std::vector<std::string>{words.begin(), words.end()});
  return option{*of_->check(member.description(""))};
}

option option::one_of(std::string_view choices) const {
  std::vector<std::string> words(1);
  for (const char c : choices) {
    if (c == '|') words.emplace_back();
    else words.back() += c;
  }
  CLI::Validator member = CLI::IsMember(std::move(words));
  return option{*of_->check(member.description(""))};
}

option option::needs(option other) const { return option{*of_->needs(other.of_)}; }
option option::excludes(option other) const { return option{*of_->excludes(other.of_)}; }
option option::repeated() const { return option{*of_->expected(1)->take_all()}; }
option option::separated_by(char delimiter) const { return option{*of_->delimiter(delimiter)}; }
option option::shows_default() const { return option{*of_->capture_default_str()}; }
option option::hidden() const { return option{*of_->group("")}; }

// -- command --------------------------------------------------------------------------------------

command command::add_command(const char* name, const char* what) const {
  return command{*of_->add_subcommand(name, what)};
}

template <class Value>
option command::add_option(const char* names, Value& into, const std::string& what) const {
  // A variable of a shell that is not set; it would mean the default.
  static const CLI::Validator said{[](const std::string& text) {
                                     return text.empty() ? std::string{"is empty; give it a value, or leave it out"}
                                                         : std::string{};
                                   },
                                   ""};
  return option{*of_->add_option(names, into, what)->check(said)};
}
template option command::add_option(const char*, std::string&, const std::string&) const;
template option command::add_option(const char*, int&, const std::string&) const;
template option command::add_option(const char*, double&, const std::string&) const;
template option command::add_option(const char*, std::size_t&, const std::string&) const;
template option command::add_option(const char*, std::optional<std::uint64_t>&, const std::string&) const;
template option command::add_option(const char*, std::vector<std::string>&, const std::string&) const;
template option command::add_option(const char*, std::vector<int>&, const std::string&) const;

option command::add_flag(const char* names, bool& into, const char* what) const {
  return option{*of_->add_flag(names, into, what)};
}

void command::footer(const char* text) const { of_->footer(text); }
void command::when_named(std::function<void()> then) const { of_->callback(std::move(then)); }
bool command::came(const char* name) const { return of_->count(name) > 0; }

void command::takes_program() const {
  of_->prefix_command();
  of_->formatter(std::make_shared<help_of_starter>());
}
std::vector<std::string> command::rest() const { return of_->remaining(); }
void command::refuse(const std::vector<std::string>& words) const { throw CLI::ExtrasError(of_->get_name(), words); }

}  // namespace troupe::cli
