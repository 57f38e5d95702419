// SPDX-License-Identifier: Apache-2.0
// troupe compare A B
#include "engine/tools/cli/cli.hpp"

#include <atomic>
#include <iostream>
#include <memory>
#include <utility>

#include "engine/tools/report.hpp"
#include "engine/tools/study/compare.hpp"
#include "engine/tools/study/page.hpp"
#include "memory/error.hpp"
#include "memory/large_pages.hpp"

namespace troupe::cli {

namespace compare_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe compare ring.toml tree.toml
  troupe compare config/studies/ring.toml --set-b choreography=double_binary_tree --set sizes=1M --report compared.html
  troupe compare config/studies/ring.toml --set-b hardware.link.latency=5us --json compared.json

Virtual times of two studies side by side: who is faster, by how much, and where the time went.)";

struct arguments {
  std::string a, b, json, csv, report, at;
  std::vector<std::string> both, only_a, only_b;
  bool dump = false;
};

/// What one side has besides. @param option that gives it
configuration with_own(configuration base, const char* option, const std::vector<std::string>& own) {
  for (const assignment& one : said_by(option, own)) base = with_study_value(std::move(base), one);
  return base;
}

/// What was said for one side alone, in a few words.
std::string words_of(const std::vector<std::string>& own, const std::string& file) {
  std::string words = file;
  for (const std::string& assignment : own) words += (words.empty() ? "" : ", ") + assignment;
  return words;
}

int run(const arguments& of) {
  put_heap_on_large_pages(computing_heap);
  if (of.b.empty() && of.only_a.empty() && of.only_b.empty())
    usage_error("there is nothing to compare with; name a second file, or change the first with --set-b key=value");
  const assignments both = said_by("--set", of.both);
  const configuration of_both = read_study_configuration(of.a, both);  // once: a file may be a pipe
  const configuration config_a = with_own(of_both, "--set-a", of.only_a),
                      config_b =
                          with_own(of.b.empty() ? of_both : read_study_configuration(of.b, both), "--set-b", of.only_b);
  study_scenario a = read_titled_study(config_a, both), b = read_titled_study(config_b, both);
  if (of.dump) {
    for (const study_scenario* one : {&a, &b}) static_cast<void>(study_machine_of(*one));  // before anything is printed
    std::cout << "# A\n\n";
    dump_study(config_a, a);
    std::cout << "\n# B\n\n";
    return dump_study(config_b, b);
  }
  if (!a.jobs.empty() || !b.jobs.empty())
    usage_error("compare takes two studies of one collective; of several jobs, `troupe study` tells how each slows the "
                "others down");
  if (!a.flow.nodes.empty() || !b.flow.nodes.empty())
    usage_error(
        "compare takes two studies of one collective; of a flow, `troupe study` tells what each node waits for");
  std::vector<std::string> read = files_of(config_a), more = files_of(config_b);
  read.insert(read.end(), more.begin(), more.end());
  check_outputs({{"--json", of.json}, {"--csv", of.csv}, {"--report", of.report}}, read);
  tell_apart(a, b, words_of(of.only_a, of.b.empty() ? "" : of.a), words_of(of.only_b, of.b));
  const std::string left_out = keep_common_sizes(a, b);

  std::atomic<bool> interrupted{false};
  const interrupt_guard guard{[&] { interrupted = true; }};
  progress_line progress;
  study_run_options options;
  // Only files show more than one size.
  options.record =
      of.json.empty() && of.report.empty() ? study_run_options::recorded::shown : study_run_options::recorded::all;
  if (!of.at.empty()) options.at = parse_size("--at", of.at);
  options.progress = [&](const std::string& text) { progress.show(text); };
  options.go_on = [&] { return !interrupted.load(); };
  const study_result first = run_study(a, options), second = run_study(b, options);
  progress.clear();

  const bool taken = of.json == "-" || of.csv == "-" || of.report == "-";  // standard output is for one of them
  std::ostream& table = taken ? std::cerr : std::cout;
  print_comparison(table, first, second);
  if (!left_out.empty()) table << "# " << left_out << '\n';
  if (!of.json.empty()) write_text(of.json, comparison_json(first, second));
  if (!of.csv.empty()) write_text(of.csv, comparison_csv(first, second));
  if (!of.report.empty()) write_text(of.report, study_page(std::vector{study_json(first), study_json(second)}));
  for (const study_result* r : {&first, &second})
    for (const study_row& row : r->rows)
      if (row.wrong > 0) return exit_wrong;
  return exit_ok;
}

}  // namespace
}  // namespace compare_command

void add_compare(command program, action& chosen) {
  using namespace compare_command;
  auto a = std::make_shared<arguments>();
  const command sub = program.add_command("compare", "two studies in virtual time, side by side");
  sub.add_option("a", a->a, "TOML file with a [study] (docs/config.md)").type_name("FILE").required();
  sub.add_option("b", a->b, "another one; without it, A again, changed by --set-b").type_name("FILE");
  const auto settings = [&](const char* option, std::vector<std::string>& list, const char* what) {
    sub.add_option(option, list, std::string{"override a value "} + what + ": key=value; may be repeated")
        .type_name("KEY=VALUE")
        .repeated();
  };
  settings("--set", a->both, "in both");
  settings("--set-a", a->only_a, "in A");
  settings("--set-b", a->only_b, "in B");
  sub.add_flag("--dump-config", a->dump, "print every value of both and where it came from, and do nothing else");
  sub.add_option("--at", a->at, "the size that is looked at more closely (default: the last)").type_name("BYTES");
  sub.add_option("--report", a->report, "write one HTML page with both runs on one clock").type_name("FILE");
  sub.add_option("--json", a->json, "write both documents and the comparison as JSON; - for standard output")
      .type_name("FILE");
  sub.add_option("--csv", a->csv, "write a line a size with both sides' figures; - for standard output")
      .type_name("FILE");
  sub.footer(footer);
  sub.when_named([a, &chosen] { chosen = [a] { return run(*a); }; });
}

}  // namespace troupe::cli
