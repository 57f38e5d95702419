// The program `troupe`.
#include "engine/cli/cli.hpp"

#include <algorithm>
#include <array>
#include <iostream>
#include <new>

#include "memory/error.hpp"

namespace troupe::cli {

namespace {

constexpr const char* footer = R"(Examples:
  troupe run config/quickstart.toml
  troupe run config/quickstart.toml --set choreography=ring --set workload.ranks=5
  troupe bench --collective all_reduce -b 8 -e 64M -f 4 -t 4
  troupe explain all_reduce --ranks 8 --bytes 1M
  troupe show ring --collective all_reduce --ranks 4
  troupe verify --all --ranks 1-17

`troupe COMMAND --help` tells more. docs/config.md describes configuration files and TROUPE_… variables.

Exit codes: 0 done and right; 1 wrong results or a score that does not verify; 2 the command line, a configuration or a file
cannot be followed; 3 failed while running; 130 interrupted.)";

int exit_code_of(const error& failure) {
  switch (failure.code_value()) {
    case errc::bad_config:
    case errc::bad_score:
    case errc::bad_root:
    case errc::invalid_argument:
    case errc::unsupported:
    case errc::unsupported_type:
    case errc::size_overflow: return exit_usage;
    default: return exit_failed;
  }
}

int report(const CLI::App& program, const CLI::ParseError& problem) {
  if (problem.get_exit_code() == 0) return program.exit(problem);  // --help, --version
  std::string command = "troupe";
  for (const CLI::App* sub : program.get_subcommands()) command += " " + sub->get_name();
  std::cerr << command << ": " << problem.what() << "; see `" << command << " --help`\n";
  return exit_usage;
}

int guarded(const action& chosen) {
  try {
    return chosen();
  } catch (const error& failure) {
    std::cout.flush();
    std::cerr << "troupe: " << failure.what() << '\n';
    return exit_code_of(failure);
  } catch (const std::bad_alloc&) {
    std::cerr << "troupe: out of memory; use fewer ranks or smaller sizes\n";
  } catch (const std::exception& failure) {
    std::cerr << "troupe: " << failure.what() << '\n';
  }
  return exit_failed;
}

int run(int argc, char** argv) {
  CLI::App program{"Collective communication as verified choreographies", "troupe"};
  program.footer(footer);
  program.set_version_flag("--version", "troupe 0.1.0");
  program.require_subcommand(1);
  program.failure_message(CLI::FailureMessage::simple);
  action chosen;
  for (const auto add : {add_run, add_list, add_show, add_verify, add_explain, add_route, add_bench}) add(program, chosen);
  if (argc == 1) {
    std::cerr << program.help();
    return exit_usage;
  }
  // CLI11 would only say that a subcommand is missing.
  static constexpr std::array<std::string_view, 7> names{"run", "list", "show", "verify", "explain", "route", "bench"};
  static constexpr std::array<std::string_view, 3> options{"-h", "--help", "--version"};
  const auto among = [word = std::string_view{argv[1]}](const auto& list) { return std::find(list.begin(), list.end(), word) != list.end(); };
  if (!among(names) && !among(options)) {
    const auto near = closest(argv[1], names);
    std::cerr << "troupe: there is no command \"" << argv[1] << '"' << (near.empty() ? "" : "; did you mean `troupe " + std::string{near} + "`?")
              << "; see `troupe --help`\n";
    return exit_usage;
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return report(program, problem);
  }
  return guarded(chosen);
}

}  // namespace

}  // namespace troupe::cli

int main(int argc, char** argv) { return troupe::cli::run(argc, argv); }
