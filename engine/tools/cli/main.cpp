// The program `troupe`.
#include "engine/tools/cli/cli.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

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
  troupe study config/studies/ring.toml
  troupe compare config/studies/ring.toml --set-b choreography=double_binary_tree
  troupe simulate --seeds 1-10000

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

/// A sentence and the beginning of the next, or empty if no option is unknown.
std::string about_unknown_option(const CLI::App& command) {
  const auto rest = command.remaining();
  const auto found =
      std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word.size() > 1 && word[0] == '-'; });
  if (found == rest.end()) return {};
  std::string text = "there is no option " + *found;
  if (command.get_name() == "bench" && (*found == "-g" || *found == "--ngpus"))
    return text + "; ranks are -t here, there are no GPUs; see";
  std::vector<std::string> all;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& known : option->get_lnames()) all.push_back("--" + known);
  const std::vector<std::string_view> names{all.begin(), all.end()};
  const auto near = closest(found->substr(0, found->find('=')), names);
  return text + (near.empty() ? "; see" : "; did you mean " + std::string{near} + "? See");
}

int report(const CLI::App& program, const CLI::ParseError& problem) {
  if (problem.get_exit_code() == 0) return program.exit(problem);  // --help, --version
  std::string command = "troupe";
  const CLI::App* at = &program;
  for (const CLI::App* sub : program.get_subcommands()) command += " " + sub->get_name(), at = sub;
  const std::string unknown =
      dynamic_cast<const CLI::ExtrasError*>(&problem) != nullptr ? about_unknown_option(*at) : "";
  std::cerr << command << ": " << (unknown.empty() ? problem.what() + std::string{"; see"} : unknown) << " `" << command
            << " --help`\n";
  return exit_usage;
}

/// What was printed comes before what is said about it; whether it could be printed is looked at later.
void flush_output() {
  std::cout.exceptions(std::ios::goodbit);
  std::cout.flush();
}

int guarded(const action& chosen) {
  try {
    return chosen();
  } catch (const std::ios_base::failure&) {
    throw;  // the output's
  } catch (const error& failure) {
    flush_output();
    if (failure.code_value() == errc::cancelled) {
      std::cerr << "troupe: interrupted\n";
      return exit_interrupted;
    }
    std::cerr << "troupe: " << failure.what() << '\n';
    return exit_code_of(failure);
  } catch (const std::exception& failure) {
    flush_output();
    std::cerr << "troupe: " << failure.what() << '\n';
  }
  return exit_failed;
}

/// `troupe help run` is `troupe run --help`.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words{argv + std::min(argc, 1), argv + argc};
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.resize(std::min<std::size_t>(words.size(), 1));
  words.emplace_back("--help");
  return words;
}

int run(std::vector<std::string> words) {
  CLI::App program{"Collective communication as verified choreographies", "troupe"};
  program.footer(footer);
  program.set_version_flag("--version", "troupe 0.1.0");
  program.require_subcommand(1);
  program.failure_message(CLI::FailureMessage::simple);
  action chosen;
  for (const auto add : {add_run, add_list, add_show, add_verify, add_explain, add_route, add_bench, add_study,
                         add_compare, add_tune, add_simulate})
    add(program, chosen);
  if (words.empty()) {
    std::cerr << program.help();
    return exit_usage;
  }
  // CLI11 would only say that a subcommand is missing.
  static constexpr std::array<std::string_view, 11> names{"run",   "list",  "show",    "verify", "explain", "route",
                                                          "bench", "study", "compare", "tune",   "simulate"};
  static constexpr std::array<std::string_view, 3> options{"-h", "--help", "--version"};
  const auto among = [word = std::string_view{words.front()}](const auto& list) {
    return std::find(list.begin(), list.end(), word) != list.end();
  };
  if (!among(names) && !among(options)) {
    const auto near = closest(words.front(), names);
    std::cerr << "troupe: there is no command \"" << words.front() << '"'
              << (near.empty() ? "; see" : "; did you mean `troupe " + std::string{near} + "`? See")
              << " `troupe --help`\n";
    return exit_usage;
  }
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the end
    program.parse(words);
  } catch (const CLI::ParseError& problem) {
    return report(program, problem);
  }
  return guarded(chosen);
}

/// A full disk is no success: a write that fails ends the command where it happens, and the last bytes are written before the exit code is
/// known. Of standard error only the exit code can tell.
int checked(std::vector<std::string> words) {
  std::cout.exceptions(std::ios::badbit);
  int code = exit_failed;
  int cause = 0;
  try {
    code = run(std::move(words));
    std::cout.flush();
  } catch (const std::ios_base::failure&) {
    // Once more for the reason: whatever ended on the way here may have set another one.
    errno = 0;
    std::fflush(stdout);
    cause = errno;
  }
  std::cout.exceptions(std::ios::goodbit);  // writing to std::cerr flushes it, too
  if (!std::cout) {
    std::cerr << "troupe: standard output cannot be written"
              << (cause != 0 ? std::string{": "} + std::strerror(cause) : "") << '\n';
    return code == exit_ok ? exit_failed : code;
  }
  return code == exit_ok && !std::cerr ? exit_failed : code;
}

}  // namespace

}  // namespace troupe::cli

// Before the program's own static objects, and so some milliseconds earlier than in main.
[[gnu::constructor(101)]] static void begin() { troupe::cli::prepare_process(); }

int main(int argc, char** argv) { return troupe::cli::checked(troupe::cli::words_of(argc, argv)); }
