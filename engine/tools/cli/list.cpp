// SPDX-License-Identifier: Apache-2.0
// troupe list
#include "engine/tools/cli/cli.hpp"

#include <algorithm>
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "protocols/choreographies/choreography.hpp"

namespace troupe::cli {

namespace list_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe list
  troupe list --json | jq '.[].name'

A choreography of your own is a score file (`troupe show … --json` writes one) named in a configuration's
[engine.score_files].)";

nlohmann::ordered_json to_json(const choreography& c) {
  auto offered = nlohmann::ordered_json::array();
  for (const collective what : c.collectives) offered.push_back(name(what));
  return {{"name", c.name}, {"summary", c.summary}, {"source", c.source}, {"collectives", offered}};
}

void print(const choreography& c) {
  std::cout << c.name << "\n    " << c.summary << "\n    for:   ";
  for (const collective what : c.collectives) std::cout << ' ' << name(what);
  std::cout << "\n    source: " << c.source << "\n\n";
}

int list(bool as_json) {
  if (as_json) {
    auto all = nlohmann::ordered_json::array();
    for (const choreography* c : all_choreographies()) all.push_back(to_json(*c));
    std::cout << all.dump(2) << '\n';
    return exit_ok;
  }
  for (const choreography* c : all_choreographies()) print(*c);
  std::cout << "by collective:\n";
  for (const collective what : all_collectives) {
    std::string line = "  " + std::string{name(what)};
    line.resize(17, ' ');
    for (const choreography* c : all_choreographies())
      if (std::find(c->collectives.begin(), c->collectives.end(), what) != c->collectives.end())
        line += " " + std::string{c->name};
    std::cout << line << '\n';
  }
  return exit_ok;
}

}  // namespace
}  // namespace list_command

void add_list(command program, action& chosen) {
  using namespace list_command;
  auto as_json = std::make_shared<bool>(false);
  const command sub = program.add_command("list", "choreographies, and the collectives that each offers");
  sub.add_flag("--json", *as_json, "as JSON");
  sub.footer(footer);
  sub.when_named([as_json, &chosen] { chosen = [as_json] { return list(*as_json); }; });
}

}  // namespace troupe::cli
