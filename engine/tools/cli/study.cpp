// SPDX-License-Identifier: Apache-2.0
// troupe study FILE
#include "engine/tools/cli/cli.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/tools/report.hpp"
#include "engine/tools/study/calibrate.hpp"
#include "engine/tools/study/page.hpp"
#include "engine/tools/study/published/published.hpp"
#include "engine/tools/study/study.hpp"
#include "engine/tools/study/this_machine.hpp"
#include "memory/error.hpp"
#include "memory/large_pages.hpp"

namespace troupe::cli {

namespace study_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe study config/studies/ring.toml
  troupe study config/studies/ring.toml --set choreography=double_binary_tree --set hardware.link.latency=5us
  troupe study config/studies/ring.toml --sweep ranks=8,16,32,64 --csv curve.csv
  troupe study config/studies/ring.toml --trace trace.json      (open it in https://ui.perfetto.dev)
  troupe study config/studies/ring.toml --report ring.html      (open it in a browser; it needs nothing else)
  troupe study --presets        (--json -: for programs)
  troupe study --published      (every published figure, beside what the model makes of the same case)
  troupe study --calibrate      (the model of this machine, beside what the machine does: half a minute, on all its cores)

Times are virtual: what the collective would take on the machine that [study] describes (docs/config.md).)";

struct arguments {
  std::string json, csv, trace, report, at;
  configuration_options config;
  std::vector<std::string> sweeps;
  std::string studies;
  bool presets = false, path = false, published = false, calibrate = false;
  std::vector<int> ranks;  // of --calibrate, as what follows
  std::vector<std::string> sizes;
  repetition_options times;
};

study_sweep parse_sweep(const std::string& text) {
  study_sweep sweep;
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    usage_error("--sweep \"" + text + "\" is no sweep; write key=a,b,c, for example ranks=8,16,32");
  sweep.key = text.substr(0, equals);
  std::istringstream values{text.substr(equals + 1)};
  for (std::string value; std::getline(values, value, ',');) sweep.values.push_back(value);
  return sweep;
}

/// Read once: a file may be a pipe.
configuration configured(const arguments& a) {
  assignments said = a.config.said();
  if (!a.calibrate) return read_study_configuration(a.config.file, said);
  for (assignment& one : said) one.text = in_study(one.text);
  return read_configuration(a.config.file, said, {"engine."});
}

/// The study with a value of a sweep.
configuration swept(const configuration& base, const study_sweep& sweep, const std::string& value) {
  return with_study_value(base, {sweep.key + "=" + value, "--sweep"});
}

/// [{name, about, ranks, structure, constants: {key: value}, sources: {"nic", "host", "nics", "protocol.ll": where they come from}}]: constants as
/// --set takes them, defaults and zeros, too.
std::string presets_json() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const preset& p : study_presets()) {
    const hardware h = p.build({});
    nlohmann::ordered_json one{{"name", p.name}, {"about", p.summary}, {"ranks", h.ranks}, {"structure", p.structure}};
    for (const auto& [key, value] : h.settings()) one["constants"][key] = value;
    nlohmann::ordered_json& sources = one["sources"] = nlohmann::ordered_json::object();
    for (const element_class& c : h.classes) sources[c.name] = c.source;
    if (!h.host.source.empty()) sources["host"] = h.host.source;
    if (h.nics) sources["nics"] = h.nics->source;
    for (const protocol_costs& c : h.protocols) sources["protocol." + c.name] = c.source;
    list.push_back(std::move(one));
  }
  return list.dump(2) + "\n";
}

int list_presets(const std::string& to) {
  check_outputs({{"--json", to}}, {});
  if (!to.empty()) write_text(to, presets_json());
  if (to == "-") return exit_ok;
  for (const preset& p : study_presets()) {
    const hardware h = p.build({});
    std::cout << p.name << ": " << p.summary << "\n  " << plural(static_cast<std::size_t>(h.ranks), "rank");
    if (!p.structure.empty()) std::cout << "; structure: " << p.structure;
    std::cout << '\n';
    for (const auto& [key, value] : h.settings())
      if (value != "0" && value != "unlimited" &&
          (h.routing != path_choice::fixed || (key != "routing" && key != "paths")))
        std::cout << "  " << key << " = " << value << '\n';
    for (const element_class& c : h.classes) std::cout << "  # " << c.name << ": " << c.source << '\n';
    if (!h.host.source.empty()) std::cout << "  # host: " << h.host.source << '\n';
    if (h.nics) std::cout << "  # nics: " << h.nics->source << '\n';
    for (const protocol_costs& c : h.protocols) std::cout << "  # protocol." << c.name << ": " << c.source << '\n';
    std::cout << '\n';
  }
  return exit_ok;
}

/// Where the studies of published figures lie: in the source tree that one is in, or the program was built in, or where it is installed.
std::string studies_of(const arguments& a, const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path beside = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const std::vector<fs::path> places = !a.studies.empty()
                                           ? std::vector<fs::path>{a.studies}
                                           : std::vector<fs::path>{"config/studies", beside / "../../config/studies",
                                                                   beside / "../share/troupe/config/studies"};
  for (const fs::path& place : places)
    if (fs::is_regular_file(place / file, ignored)) return place.lexically_normal().string();
  std::string list;
  for (const fs::path& place : places) list += (list.empty() ? "" : ", nor in ") + place.lexically_normal().string();
  usage_error("the published figures' studies (" + file + ", …) are not in " + list +
              "; say where they lie: --studies FOLDER");
}

/// Figures whose id begins with `file`, which the command line then means instead of a file.
int run_published_figures(const arguments& a) {
  std::vector<published_figure> wanted = all_published_figures();
  std::erase_if(wanted, [&](const published_figure& f) { return !f.id.starts_with(a.config.file); });
  if (wanted.empty())
    usage_error("there is no published figure " + a.config.file +
                "; `troupe study --published` shows all with their ids in --json");
  if (!a.json.empty()) check_writable(a.json);
  std::atomic<bool> interrupted{false};
  const interrupt_guard guard{[&] { interrupted = true; }};
  progress_line progress;
  study_run_options options;
  options.go_on = [&] { return !interrupted.load(); };
  study_runs runs{studies_of(a, wanted.front().file), options};
  const auto rows = run_published(wanted, runs, [&](const std::string& id) { progress.show(id); });
  progress.clear();
  if (a.json != "-") print_published(std::cout, rows);
  if (!a.json.empty()) write_text(a.json, published_json(rows));
  return std::any_of(rows.begin(), rows.end(), [](const published_row& r) { return !r.failure.empty(); }) ? exit_wrong
                                                                                                          : exit_ok;
}

/// The preset this_machine beside the engine, with the options of the file's [engine] and of --set engine.… .
int compare_with_machine(const arguments& a) {
  comparison_request wanted;
  if (!a.ranks.empty()) wanted.ranks = a.ranks;
  if (!a.sizes.empty()) wanted.sizes.clear();
  for (const std::string& size : a.sizes) wanted.sizes.push_back(parse_size("--sizes", size));
  wanted.limits = {a.times.budget_ms, a.times.rounds};
  const configuration config = configured(a);
  check_outputs({{"--json", a.json}}, files_of(config));
  const interrupt_guard guard;
  progress_line progress;
  const comparison made =
      compare_with_measured(config.engine(), wanted, [&](const std::string& text) { progress.show(text); });
  progress.clear();
  if (a.json != "-") print_comparison(std::cout, made);
  if (!a.json.empty()) write_text(a.json, comparison_json(made));
  return exit_ok;
}

bool any_wrong(const study_result& r) {
  for (const study_row& row : r.rows)
    if (row.wrong > 0) return true;
  return false;
}

/// What the listing, the published figures and the calibration do not look at.
void check_alone(const arguments& a, const char* mode) {
  const std::pair<bool, const char*> others[] = {
      {!a.sweeps.empty(), "--sweep"},   {a.path, "--path"},
      {!a.csv.empty(), "--csv"},        {!a.trace.empty(), "--trace"},
      {!a.report.empty(), "--report"},  {!a.at.empty(), "--at"},
      {a.config.dump, "--dump-config"}, {!a.config.assignments.empty() && !a.calibrate, "--set"}};
  for (const auto& [said, option] : others)
    if (said) usage_error(std::string{option} + " would do nothing with " + mode);
}

/// Runs that do not know of each other, on all cores; `perform(i)` must not throw. Those that move bytes come one after the other, as each
/// has looked whether there is memory for it.
template <class Perform>
void run_beside_each_other(const std::vector<study_scenario>& runs, Perform perform) {
  const bool alone = std::ranges::any_of(runs, [](const study_scenario& s) { return s.carry == payload::real; });
  const std::size_t cores = alone ? 1 : std::max(1U, std::thread::hardware_concurrency());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < runs.size(); i = next++) perform(i);
  };
  std::vector<std::jthread> others;
  for (std::size_t t = 1; t < std::min(cores, runs.size()); ++t) others.emplace_back(work);
  work();
}

/// Anything else is no matter of a sweep's value.
bool refuses_the_value(errc code) {
  return code == errc::unsupported || code == errc::unsupported_type || code == errc::bad_config ||
         code == errc::invalid_argument || code == errc::out_of_memory;
}

/// Mistakes before the first run, not after it: what is wrong with every value is wrong with the key.
void check_sweep(const configuration& base, const study_sweep& sweep) {
  // These keys only the machine knows.
  bool of_machine = false;
  for (const char* table :
       {"study.preset", "study.layout", "study.structure.", "study.hardware.", "study.slow.", "study.faults."})
    of_machine = of_machine || in_study(sweep.key).starts_with(table);
  std::exception_ptr first;
  for (const std::string& value : sweep.values) try {
      const study_scenario scenario = read_study(swept(base, sweep, value));
      if (of_machine) static_cast<void>(study_machine_of(scenario));
      return;
    } catch (const error& why) {
      if (!refuses_the_value(why.code_value())) throw;
      if (!first) first = std::current_exception();
    }
  if (first) std::rethrow_exception(first);
}

/// One value that cannot be run does not keep the others from it.
study_sweep_result run_sweep(const configuration& base, const study_sweep& sweep, const study_run_options& options) {
  std::vector<study_scenario> scenarios(sweep.values.size());
  std::vector<std::optional<study_result>> results(scenarios.size());
  std::vector<std::exception_ptr> failures(scenarios.size());
  for (std::size_t i = 0; i < scenarios.size(); ++i) try {
      scenarios[i] = read_study(swept(base, sweep, sweep.values[i]));
    } catch (const error&) {
      failures[i] = std::current_exception();
    }
  std::atomic<bool> failed{false};
  std::mutex telling;
  study_run_options each = options;
  each.progress = [&](const std::string& text) {
    const std::lock_guard lock{telling};
    options.progress(text);
  };
  each.go_on = [&] { return !failed.load() && options.go_on(); };
  run_beside_each_other(scenarios, [&](std::size_t i) noexcept {
    if (failures[i]) return;
    try {
      results[i] = run_study(scenarios[i], each);
    } catch (const error& why) {
      if (!refuses_the_value(why.code_value())) failed = true;
      failures[i] = std::current_exception();
    } catch (...) {
      failed = true;
      failures[i] = std::current_exception();
    }
  });
  study_sweep_result done{sweep, {}, {}};
  std::exception_ptr cancelled;
  for (std::size_t i = 0; i < scenarios.size(); ++i) {
    if (results[i]) {
      done.points.emplace_back(sweep.values[i], std::move(*results[i]));
      continue;
    }
    try {
      std::rethrow_exception(failures[i]);
    } catch (const error& why) {
      if (why.code_value() == errc::cancelled) cancelled = failures[i];  // perhaps only because another one failed
      else if (!refuses_the_value(why.code_value())) throw;
      else done.refused.emplace_back(sweep.values[i], why.what());
    }
  }
  if (cancelled) std::rethrow_exception(cancelled);
  return done;
}

/// Of one study.
study_result run_one(const arguments& a, const configuration& config, const assignments& said,
                     const study_run_options& options) {
  const study_scenario scenario = read_titled_study(config, said);
  if (!scenario.jobs.empty() && a.path)
    usage_error(
        "--path is of a study of one collective; of several jobs there are --json, --csv, --trace and --report");
  if (!scenario.jobs.empty() && options.at) usage_error("--at is of a study of one collective, not of several jobs");
  return run_study(scenario, options);
}

/// The file's own study, or, where only that is refused, that of the first value of a sweep which is not: the others would not be run for its sake.
study_result run_own_or_swept(const arguments& a, const configuration& base, const std::vector<study_sweep>& sweeps,
                              const study_run_options& options, std::string& remark) {
  try {
    return run_one(a, base, a.config.said(), options);
  } catch (const error& why) {
    if (sweeps.empty() || !refuses_the_value(why.code_value())) throw;
    remark = why.what();
  }
  std::exception_ptr last;
  for (const study_sweep& sweep : sweeps)
    for (const std::string& value : sweep.values) try {
        const std::string one = sweep.key + "=" + value;
        assignments said = a.config.said();
        said.push_back({one, "--sweep"});
        study_result result = run_one(a, swept(base, sweep, value), said, options);
        remark += " (that is the study without a sweep; " + one + " is shown in its place)";
        return result;
      } catch (const error& why) {
        if (!refuses_the_value(why.code_value())) throw;
        last = std::current_exception();
      }
  std::rethrow_exception(last);
}

int run(const arguments& a) {
  put_heap_on_large_pages(computing_heap);
  if (a.presets || a.published || a.calibrate)
    check_alone(a, a.presets ? "--presets" : a.published ? "--published" : "--calibrate");
  if (a.presets) return list_presets(a.json);
  if (a.published) return run_published_figures(a);
  if (a.calibrate) return compare_with_machine(a);
  if (a.config.dump) {
    const configuration config = configured(a);
    return dump_study(config, read_study(config));
  }
  std::vector<study_sweep> wanted;
  for (const std::string& text : a.sweeps) wanted.push_back(parse_sweep(text));
  if (a.config.file.empty()) usage_error("name a file with a [study], for example config/studies/ring.toml");
  const configuration base = configured(a);
  std::vector<std::string> read = files_of(base);
  for (const study_sweep& sweep : wanted) read.insert(read.end(), sweep.values.begin(), sweep.values.end());
  check_outputs({{"--json", a.json}, {"--csv", a.csv}, {"--trace", a.trace}, {"--report", a.report}}, read);
  std::atomic<bool> interrupted{false};
  const interrupt_guard guard{[&] { interrupted = true; }};
  progress_line progress;
  study_run_options options;
  using recorded = study_run_options::recorded;
  options.record = !a.json.empty() || !a.report.empty() ? recorded::all
                   : !a.trace.empty() || a.path         ? recorded::shown
                                                        : recorded::none;
  if (!a.at.empty()) options.at = parse_size("--at", a.at);
  options.progress = [&](const std::string& text) { progress.show(text); };
  options.go_on = [&] { return !interrupted.load(); };

  for (const study_sweep& sweep : wanted) check_sweep(base, sweep);

  std::string remark;
  const study_result result = run_own_or_swept(a, base, wanted, options, remark);
  progress.clear();
  if (!remark.empty()) std::cerr << "troupe: " << remark << '\n';
  const bool taken =
      a.json == "-" || a.csv == "-" || a.trace == "-" || a.report == "-";  // standard output is for one of them
  std::ostream& table = taken ? std::cerr : std::cout;
  print_study(table, result);
  bool wrong = any_wrong(result);
  options.record = recorded::none;
  options.at.reset();
  std::vector<study_sweep_result> sweeps;
  for (const study_sweep& sweep : wanted) {
    sweeps.push_back(run_sweep(base, sweep, options));
    for (const auto& [value, of] : sweeps.back().points) wrong = wrong || any_wrong(of);
    progress.clear();
    table << '\n';
    print_sweep(table, sweeps.back());
  }
  if (!a.csv.empty()) write_text(a.csv, study_csv(result, sweeps));
  if (!a.json.empty()) write_text(a.json, study_json(result, sweeps));
  if (!a.report.empty()) write_text(a.report, study_page(std::vector{study_json(result, sweeps)}));
  if (!a.trace.empty() && result.on && result.on->nics)
    throw error(errc::unsupported, "there is no trace: what NICs do, and hosts beside them, is not recorded");
  const bool flows = !result.flow_rows.empty(), jobs = !result.jobs.empty();
  if (!a.trace.empty() && !flows && !jobs && !result.shown_row()->recording)
    throw error(errc::unsupported, "the run has too many steps for a trace; take fewer ranks or a smaller size");
  if (!a.trace.empty())
    write_text(a.trace, flows ? flow_trace(result) : jobs ? job_trace(result) : study_trace(result));
  const bool refused = std::ranges::any_of(sweeps, [](const study_sweep_result& s) { return !s.refused.empty(); });
  return wrong ? exit_wrong : refused ? exit_usage : exit_ok;
}

}  // namespace
}  // namespace study_command

std::string in_study(const std::string& assignment) {
  const auto equals = assignment.find('=');
  const std::string key = assignment.substr(0, equals);
  for (const char* table : {"engine.", "workload.", "study."})
    if (key.starts_with(table)) return assignment;
  return "study." + assignment;
}

void add_study(command program, action& chosen) {
  using namespace study_command;
  auto a = std::make_shared<arguments>();
  const command sub = program.add_command("study", "perform a collective in virtual time, on modelled hardware");
  sub.add_option("file", a->config.file, "TOML file with a [study] (docs/config.md)").type_name("FILE");
  a->config.add_to(sub, "");
  sub.add_option("--sweep", a->sweeps, "run once more for every value: key=a,b,c; may be repeated")
      .type_name("KEY=A,B,C")
      .repeated();
  sub.add_option("--at", a->at, "the size that --path, --trace and the page are of (default: the last)")
      .type_name("BYTES");
  sub.add_flag("--path", a->path, "print the critical path of one size");
  sub.add_option("--json", a->json, "write everything as JSON, sizes with their spans; - for standard output")
      .type_name("FILE");
  sub.add_option("--csv", a->csv, "write the rows, sweeps too, refused values with why; - for standard output")
      .type_name("FILE");
  sub.add_option("--trace", a->trace, "write a trace of one size, or of all jobs, for Perfetto or chrome://tracing")
      .type_name("FILE");
  sub.add_option("--report", a->report, "write one HTML page: each size animated, its critical path, curves")
      .type_name("FILE");
  sub.add_flag("--presets", a->presets, "list the machines and their constants, and run nothing");
  const option published =
      sub.add_flag("--published", a->published,
                   "run and print the published figures; FILE then begins their ids: spec1, spec1.fig14");
  const option calibrate =
      sub.add_flag("--calibrate", a->calibrate,
                   "the model of this machine beside measurements; reads [engine] of FILE, if there is one");
  sub.add_option("--ranks", a->ranks, "with --calibrate (default 2,4)")
      .separated_by(',')
      .within(2, most_ranks_of_a_process)
      .needs(calibrate)
      .type_name("N,…");
  sub.add_option("--sizes", a->sizes, "with --calibrate (default 64K,256K,1M,4M)")
      .separated_by(',')
      .needs(calibrate)
      .type_name("BYTES,…");
  a->times.add_to(sub, "--calibrate", calibrate);
  sub.add_option("--studies", a->studies,
                 "with --published: where the studies lie (default: config/studies, here or where the program is from)")
      .type_name("FOLDER")
      .needs(published);
  sub.footer(footer);
  sub.when_named([a, &chosen] { chosen = [a] { return run(*a); }; });
}

}  // namespace troupe::cli
