// SPDX-License-Identifier: Apache-2.0
// The program `troupe`.
#include "engine/tools/build_info.hpp"
#include "engine/tools/cli/cli.hpp"
#include "engine/tools/cli/generate.hpp"
#include "engine/world/recorder.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <streambuf>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "memory/error.hpp"

namespace troupe::cli {

namespace {

constexpr const char* examples = R"(Examples:
  troupe run config/quickstart.toml
  troupe run config/quickstart.toml --set choreography=ring --set workload.ranks=5
  troupe bench --collective all_reduce -b 8 -e 64M -f 4 -t 4
  troupe explain all_reduce --ranks 8 --bytes 1M
  troupe show ring --collective all_reduce --ranks 4
  troupe verify --all --ranks 1-17
  troupe study config/studies/ring.toml
  troupe compare config/studies/ring.toml --set-b choreography=double_binary_tree
  troupe simulate --seeds 1-10000
  troupe launch -n 4 ./app
  troupe rendezvous --listen unix:@jobs

`troupe COMMAND --help` tells more. docs/config.md describes configuration files and TROUPE_… variables.

Exit codes:)";

std::string program_footer() {
  std::string text = examples;
  for (const exit_status& s : exit_statuses()) {
    std::string code = std::to_string(s.code);
    code.resize(5, ' ');
    text += "\n  " + code + std::string{s.meaning};
  }
  return text;
}

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

}  // namespace

std::span<const exit_status> exit_statuses() {
  static constexpr std::array<exit_status, 5> all{
      {{exit_ok, "done, and right"},
       {exit_wrong, "wrong results, or a score that does not verify"},
       {exit_usage, "the command line, a configuration or a file cannot be followed"},
       {exit_failed, "failed while running: also output that cannot be written, and memory that ran out"},
       {exit_interrupted,
        "interrupted (SIGINT or SIGTERM); while the system still loads the program, before its own code runs, "
        "the system's default holds: ended by the signal, 143 of SIGTERM"}}};
  return all;
}

namespace {

/// Options of nccl-tests that there is nothing for, and why.
struct foreign_option {
  std::array<std::string_view, 2> names;
  std::string_view answer;
};
std::span<const foreign_option> foreign_options() {
  static constexpr std::array<foreign_option, 10> all{{
      {{"-g", "--ngpus"}, "ranks are -t here, there are no GPUs"},
      {{"-p", "--parallel_init"}, "one process makes all ranks at once"},
      {{"-G", "--cudagraph"}, "there are no CUDA graphs; a call that is repeated is planned once anyway"},
      {{"-R", "--local_register"}, "buffers need no registration"},
      {{"-D", "--device_implementation"},
       "there are no kernels of a GPU; --protocol and --choreography say how it is performed"},
      {{"-V", "--device_cta_count"}, "there are no thread blocks of a GPU; --set channels=N cuts messages"},
      {{"-x", "--cta_policy"}, "there are no thread blocks of a GPU"},
      {{"-S", "--report_timestamps"}, "the JSON (-J) has the date"},
      {{"-y", "--stream_null"}, "there are no streams of a GPU"},
      {{"-M", "--memory_report"}, "there is no memory of a GPU; `troupe explain` says what a plan needs"},
  }};
  return all;
}

/// A sentence and the beginning of the next, or empty if no option is unknown.
std::string about_unknown_option(const CLI::App& command) {
  const auto rest = command.remaining();
  const auto found =
      std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word.size() > 1 && word[0] == '-'; });
  if (found == rest.end()) return {};
  std::string text = "there is no option " + *found;
  if (command.get_name() == "bench")
    for (const auto& [names, answer] : foreign_options())
      if (std::find(names.begin(), names.end(), found->substr(0, found->find('='))) != names.end())
        return text + "; " + std::string{answer} + "; see";
  std::vector<std::string> all;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& known : option->get_lnames()) all.push_back("--" + known);
  const std::vector<std::string_view> names{all.begin(), all.end()};
  const auto near = closest(found->substr(0, found->find('=')), names);
  return text + (near.empty() ? "; see" : "; did you mean " + std::string{near} + "? See");
}

/// Where --json is a flag, a word behind it may be an argument of the command, and is no file. A sentence and the beginning of the next, or empty
/// if nobody wrote one.
std::string about_file_of_json(const CLI::App& command) {
  const CLI::Option* const json = command.get_option_no_throw("--json");
  if (json == nullptr || json->get_items_expected_max() > 0) return {};
  const auto advice = [](const std::string& file) {
    return "--json prints to standard output, and takes no file: " + (file == "-" ? "leave - out" : "write > " + file) +
           " instead; see";
  };
  constexpr std::string_view with_value = "--json=";
  const std::vector<std::string>& words = command_line();
  const auto rest = command.remaining();
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(with_value)) return advice(words[i].substr(with_value.size()));
    if (i > 0 && words[i - 1] == "--json" && std::find(rest.begin(), rest.end(), words[i]) != rest.end())
      return advice(words[i]);
  }
  return {};
}

int report(const CLI::App& program, const CLI::ParseError& problem) {
  if (problem.get_exit_code() == 0) return program.exit(problem);  // --help, --version
  std::string command = "troupe";
  const CLI::App* at = &program;
  for (const CLI::App* sub : program.get_subcommands()) command += " " + sub->get_name(), at = sub;
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&problem) != nullptr;
  std::string sentence = extras ? about_unknown_option(*at) : "";
  if (sentence.empty() && (extras || std::string_view{problem.what()}.find("--json") != std::string_view::npos))
    sentence = about_file_of_json(*at);
  if (sentence.empty()) sentence = problem.what() + std::string{"; see"};
  std::cerr << command << ": " << sentence << " `" << command << " --help`\n";
  return exit_usage;
}

/// Output comes before remarks about it; whether it could be printed is looked at later.
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
    if (others_say(failure)) return failure.code_value() == errc::cancelled ? exit_interrupted : exit_code_of(failure);
    if (failure.code_value() == errc::cancelled) {
      std::cerr << "troupe: interrupted\n";
      return exit_interrupted;
    }
    std::cerr << "troupe: " << failure.what() << '\n';
    return exit_code_of(failure);
  } catch (const std::system_error& failure) {
    flush_output();
    const bool no_thread = failure.code() == std::errc::resource_unavailable_try_again;
    std::cerr << "troupe: " << (no_thread ? "no thread can be started: " : "") << failure.what()
              << (no_thread ? " (ulimit -v, ulimit -u)\n" : "\n");
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

/// A "--" in front of the program that a command starts ends the command's own options, and is no word of the program's. CLI11 takes it for
/// the end of the command.
void drop_separator(std::vector<std::string>& words, const CLI::App& command) {
  for (auto word = words.begin() + 1; word != words.end() && word->starts_with('-'); ++word) {
    if (*word == "--") {
      words.erase(word);
      return;
    }
    const CLI::Option* const option = command.get_option_no_throw(*word);
    if (option != nullptr && option->get_items_expected_max() > 0 && word + 1 != words.end()) ++word;
  }
}

int run(std::vector<std::string> words) {
  CLI::App program{"Collective communication as verified choreographies", "troupe"};
  program.footer(program_footer());
  program.set_version_flag("--version", "troupe " + version());
  program.require_subcommand(1);
  program.failure_message(CLI::FailureMessage::simple);
  action chosen;
  for (const auto add :
       {add_run, add_list, add_show, add_verify, add_explain, add_route, add_bench, add_study, add_compare, add_replay,
        add_experts, add_tune, add_simulate, add_launch, add_rendezvous, add_nicd, add_generate})
    add(command{program}, chosen);
  if (words.empty()) {
    std::cerr << program.help();
    return exit_usage;
  }
  // CLI11 would only say that a subcommand is missing.
  std::vector<std::string> known;
  for (const CLI::App* sub : commands_of(program)) known.push_back(sub->get_name());
  const std::vector<std::string_view> names{known.begin(), known.end()};
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
  for (const CLI::App* sub : commands_of(program))
    if (sub->get_name() == words.front() && sub->get_prefix_command()) drop_separator(words, *sub);
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the end
    program.parse(words);
  } catch (const CLI::ParseError& problem) {
    return report(program, problem);
  }
  const int code = guarded(chosen);
  const std::string unrecorded = incomplete_recording();
  if (unrecorded.empty()) return code;
  std::cerr << "troupe: " << unrecorded << '\n';
  return code == exit_ok ? exit_failed : code;
}

/// Standard output, with the reason why it could not be written: errno has others by the time that a stream's failure is seen.
class output_buffer : public std::streambuf {
public:
  output_buffer() { setp(bytes_.data(), bytes_.data() + bytes_.size()); }
  int why() const { return why_; }

protected:
  int_type overflow(int_type c) override {
    if (!write_out()) return traits_type::eof();
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }
  int sync() override { return write_out() ? 0 : -1; }

private:
  bool write_out() {
    for (const char* from = pbase(); from != pptr();) {
      const ssize_t written = write(STDOUT_FILENO, from, static_cast<std::size_t>(pptr() - from));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        why_ = errno;
        break;
      }
      from += written;
    }
    setp(bytes_.data(), bytes_.data() + bytes_.size());  // what could not be written is lost
    return why_ == 0;
  }

  std::array<char, 16 * 1024> bytes_{};
  int why_ = 0;
};

/// A full disk is no success: a write that fails ends the command where it happens, and the last bytes are written before the exit code is
/// known. Of standard error only the exit code can tell.
int checked(std::vector<std::string> words) {
  output_buffer output;
  std::streambuf* const usual = std::cout.rdbuf(&output);
  std::cout.exceptions(std::ios::badbit);
  int code = exit_failed;
  try {
    code = run(std::move(words));
    std::cout.flush();
  } catch (const std::ios_base::failure&) {}
  std::cout.exceptions(std::ios::goodbit);  // writing to std::cerr flushes it, too
  std::cout.rdbuf(usual);
  if (output.why() != 0) {
    std::cerr << "troupe: standard output cannot be written: " << std::strerror(output.why()) << '\n';
    return code == exit_ok ? exit_failed : code;
  }
  return code == exit_ok && !std::cerr ? exit_failed : code;
}

}  // namespace

}  // namespace troupe::cli

// Before the program's own static objects, and so some milliseconds earlier than in main.
[[gnu::constructor(101)]] static void begin() { troupe::cli::prepare_process(); }

int main(int argc, char** argv) {
  troupe::cli::command_line().assign(argv, argv + argc);
  return troupe::cli::checked(troupe::cli::words_of(argc, argv));
}
