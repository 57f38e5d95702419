// SPDX-License-Identifier: Apache-2.0
// troupe generate man | bash | zsh | schema
#include "engine/tools/cli/generate.hpp"

#include <iostream>
#include <memory>

#include "engine/tools/cli/cli.hpp"
#include "engine/tools/config_json_schema.hpp"

namespace troupe::cli {

namespace generate_command {
namespace {

constexpr const char* footer = R"(Examples:
  source <(troupe generate bash)                        completion in this shell
  troupe generate zsh > ~/.zfunc/_troupe                in every zsh, if ~/.zfunc is in $fpath
  troupe generate man | man -l -
  troupe generate schema > troupe.schema.json           then, on the first line of a TOML file: #:schema troupe.schema.json

cmake --install puts all four where they are looked for.)";

int generate(const CLI::App& program, const std::string& what) {
  if (what == "man") std::cout << man_page(program);
  else if (what == "bash") std::cout << bash_completion(program);
  else if (what == "zsh") std::cout << zsh_completion(program);
  else std::cout << config_json_schema();
  return exit_ok;
}

}  // namespace
}  // namespace generate_command

void add_generate(command program, action& chosen) {
  using namespace generate_command;
  auto what = std::make_shared<std::string>();
  const command sub = program.add_command(
      "generate", "print the man page, completions for a shell, or the configuration's JSON Schema");
  sub.add_option("what", *what, "man, bash, zsh or schema")
      .required()
      .type_name("WHAT")
      .one_of({"man", "bash", "zsh", "schema"});
  sub.footer(footer);
  sub.when_named(
      [program, what, &chosen] { chosen = [program, what] { return generate(program.description(), *what); }; });
}

}  // namespace troupe::cli
