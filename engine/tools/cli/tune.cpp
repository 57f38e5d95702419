// SPDX-License-Identifier: Apache-2.0
// troupe tune
#include "engine/tools/tune.hpp"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "engine/tools/cli/cli.hpp"
#include "engine/tools/report.hpp"
#include "memory/error.hpp"

namespace troupe::cli {

namespace {

constexpr const char* footer = R"(Examples:
  troupe tune                          measure (about a minute; leave the machine alone), write the file that engines load
  troupe tune --output mine.toml       … to another place; TROUPE_TUNING=mine.toml or engine.tuning = "mine.toml" loads it
  troupe tune --quick --output -       a look: print the file, write nothing
  troupe explain all_reduce --ranks 4 --bytes 64K --measure    how far predictions are from measurements

docs/tuning.md describes the file.)";

struct arguments {
  std::string output;
  bool quick = false;
};

std::string value_of(const tuning& t, const tuning_key& k) {
  char text[64];
  if (k.number != nullptr) return std::snprintf(text, sizeof text, "%.*f", k.unit.empty() ? 2 : 1, t.*k.number), text;
  std::string all;
  for (const auto& p : (t.*k.curve).points()) {
    std::snprintf(text, sizeof text, "%s%s: %.1f", all.empty() ? "" : ", ",
                  bytes_text(static_cast<std::uint64_t>(p.bytes)).c_str(), p.rate);
    all += text;
  }
  return all;
}

void print_table(std::ostream& to, const tuning& t) {
  const auto row = [&](std::string name, const std::string& value, std::string_view unit, std::string_view how) {
    name.resize(std::max<std::size_t>(name.size() + 2, 24), ' ');
    to << name << value << ' ' << unit << "  (" << how << ")\n";
  };
  to << t.machine.cpu << ", " << plural(static_cast<std::size_t>(t.machine.cores), "core") << '\n';
  for (const tuning_key& k : tuning_schema()) row(std::string{k.key}, value_of(t, k), k.unit, k.how);
  char text[32];
  for (const datatype type : tuned_datatypes) {
    std::snprintf(text, sizeof text, "%.1f", t.type_rate[static_cast<std::size_t>(type)]);
    row("types." + std::string{name(type)}, text, "GB/s", "sum of two in the first-level cache");
  }
}

int tune(const arguments& a) {
  if (const job_place place = join_place(); place.processes > 1)
    usage_error("tune measures what one process costs on a machine that is left alone, and this is one of " +
                std::to_string(place.processes) + " (by " + place.by +
                "); start it by itself on each kind of host, and give all processes of a job one file (engine.tuning)");
  const std::string output = a.output.empty() ? default_tuning_path() : a.output;
  if (output.empty())
    usage_error("neither XDG_CONFIG_HOME nor HOME is set, so there is no place for the file; say one: --output FILE");
  if (a.output.empty()) {
    std::error_code problem;
    const auto folder = std::filesystem::path{output}.parent_path();
    std::filesystem::create_directories(folder, problem);
    if (problem)
      throw error(errc::io,
                  folder.string() + " cannot be made: " + problem.message() + "; choose another place: --output FILE");
  }
  check_writable(output);
  const interrupt_guard guard;
  progress_line line;
  const tuning t = measure_machine({a.quick, [&](const std::string& text) { line.show(text); }});
  line.clear();
  print_table(output == "-" ? std::cerr : std::cout, t);
  write_text(output, to_toml(t));
  if (output != "-")
    std::cout << "written to " << output << (a.output.empty() ? "; engines load it from there\n" : "\n");
  return exit_ok;
}

}  // namespace

void add_tune(CLI::App& program, action& chosen) {
  auto a = std::make_shared<arguments>();
  CLI::App* sub = program.add_subcommand(
      "tune", "measure what this machine costs, for the planner; writes the file that engines load");
  sub->add_option("--output", a->output,
                  "write the file there instead of $XDG_CONFIG_HOME/troupe/tuning.toml; -: standard output")
      ->type_name("FILE");
  sub->add_flag("--quick", a->quick, "some seconds: a look rather than a measurement");
  sub->footer(footer);
  sub->callback([a, &chosen] { chosen = [a] { return tune(*a); }; });
}

}  // namespace troupe::cli
