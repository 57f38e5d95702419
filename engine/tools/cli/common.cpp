// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/cli/cli.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <new>
#include <optional>
#include <sstream>
#include <thread>

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "engine/planning/choreography_wish.hpp"
#include "engine/tools/bench_runner.hpp"
#include "engine/tools/report.hpp"
#include "engine/tools/study/useless_keys.hpp"
#include "memory/error.hpp"

namespace troupe::cli {

std::vector<std::string>& command_line() {
  static std::vector<std::string> words;
  return words;
}

void usage_error(const std::string& sentence) { throw error(errc::bad_config, sentence); }

namespace {

void check_read(const assignment& said, std::initializer_list<std::string_view> read) {
  const std::string key = configuration::full_key(said.text.substr(0, said.text.find('=')));
  std::string tables;
  for (const std::string_view part : read) {
    if (key.starts_with(part)) return;
    if (part.ends_with('.'))
      tables += (tables.empty() ? "[" : " and [") + std::string{part.substr(0, part.size() - 1)} + "]";
  }
  usage_error(said.option + " " + key + " would do nothing: this command reads " + tables + " only" +
              (key.starts_with("workload.") ? "; its flags say what is run" : ""));
}

void set_checked(configuration& config, const assignment& said, std::initializer_list<std::string_view> read) {
  config.set_from_command_line(said.text, said.option);  // first: a key that there is not has its own message
  check_read(said, read);
}

}  // namespace

assignments said_by(const std::string& option, const std::vector<std::string>& texts) {
  assignments all;
  for (const std::string& text : texts) all.push_back({text, option});
  return all;
}

configuration read_configuration(const std::string& file, const assignments& said,
                                 std::initializer_list<std::string_view> read) {
  configuration config;
  const std::string path = file.empty() ? config_file_of_environment() : file;
  if (!path.empty()) config.add_file(path);
  config.add_environment();
  for (const assignment& one : said) set_checked(config, one, read);
  return config;
}

namespace {

/// this_machine has the constants that an engine would load.
const std::initializer_list<std::string_view> read_by_studies{"study.", "engine.score_files.",
                                                              "engine.choreography_libraries.", "engine.tuning"};

assignment of_study(const assignment& said) { return {in_study(said.text), said.option}; }

}  // namespace

configuration read_study_configuration(const std::string& file, const assignments& said) {
  assignments all;
  for (const assignment& one : said) all.push_back(of_study(one));
  return read_configuration(file, all, read_by_studies);
}

configuration with_study_value(configuration base, const assignment& said) {
  set_checked(base, of_study(said), read_by_studies);
  return base;
}

study_scenario read_titled_study(const configuration& config, const assignments& said) {
  study_scenario study = read_study(config);
  if (study.title.empty() || config.at("study.title").origin.from != config_origin::source::file) return study;
  constexpr std::string_view table = "study.";
  const configuration named = with_names_of_machine(config);
  for (const auto& [key, entry] : named.values())
    if (key.starts_with(table) && entry.origin.from == config_origin::source::environment)
      study.title += ", " + key.substr(table.size()) + "=" + study_value_text(entry.value);
  for (const assignment& one : said)
    if (const std::string text = in_study(one.text); text.starts_with(table))
      study.title += ", " + text.substr(table.size());
  return study;
}

void check_choreographies_of(const configuration& config, const std::vector<job_group>& jobs) {
  const auto asks = [&](std::string_view what) {
    for (const job_group& group : jobs)
      for (const job& one : group.jobs)
        if (!one.kind.send_recv && name(one.kind.what) == what && one.choreography.empty()) return true;
    return false;
  };
  for (const auto& [what, entry] : config.under("engine.choreography_of"))
    if (entry.origin.from == config_origin::source::command_line && !asks(what))
      usage_error(place_of(entry.origin) + ": engine.choreography_of." + what + " would do nothing: no " + what +
                  " is performed that leaves its choreography to the engine");
}

namespace {

/// Devices may be written as often as one likes.
bool same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(a, ignored) || fs::exists(b, ignored))
    return fs::is_regular_file(a, ignored) && fs::equivalent(a, b, ignored);
  return fs::weakly_canonical(fs::absolute(a), ignored) == fs::weakly_canonical(fs::absolute(b), ignored);
}

}  // namespace

void check_outputs(std::initializer_list<output_file> outputs, const std::vector<std::string>& inputs) {
  for (auto one = outputs.begin(); one != outputs.end(); ++one) {
    if (one->path.empty()) continue;
    for (auto before = outputs.begin(); before != one; ++before) {
      if (before->path.empty()) continue;
      const std::string both =
          std::string{before->option} + " " + before->path + " and " + one->option + " " + one->path;
      if (one->path == "-" && before->path == "-") usage_error(both + ": standard output is for one of them");
      if (one->path != "-" && before->path != "-" && same_file(before->path, one->path))
        usage_error(both + " are one file, in which the second would be all; name two");
    }
    if (one->path == "-") continue;
    for (const std::string& read : inputs)
      if (same_file(read, one->path))
        usage_error(std::string{one->option} + " " + one->path + " would overwrite " + read +
                    ", which this command reads; name another file");
    check_writable(one->path);
  }
}

std::vector<std::string> files_of(const configuration& config) {
  std::vector<std::string> all = config.files();
  for (const auto& [key, entry] : config.values())
    if (const auto* text = std::get_if<std::string>(&entry.value); text != nullptr && !text->empty())
      if (std::error_code ignored; std::filesystem::is_regular_file(*text, ignored)) all.push_back(*text);
  return all;
}

void check_performed_elsewhere(const configuration& from, const std::string& who) {
  const auto refuse = [&](const std::string& what) {
    throw error(errc::bad_config, what + " would do nothing here: " + who);
  };
  if (!from.jobs().empty() || !from.nodes().empty()) refuse(from.jobs().empty() ? "[[study.node]]" : "[[study.job]]");
  static constexpr std::string_view keys[] = {"collective", "sizes",   "counts",         "unit",
                                              "type",       "op",      "root",           "in_place",
                                              "payload",    "compute", "compute_blocks", "compute_dma_bytes",
                                              "overlap",    "seed",    "skew_spread"};
  for (const auto& [key, entry] : from.values()) {
    if (entry.origin.from != config_origin::source::command_line || !key.starts_with("study.")) continue;
    const std::string_view name = std::string_view{key}.substr(6);
    if (std::ranges::find(keys, name) != std::end(keys) || name.starts_with("skew."))
      refuse(place_of(entry.origin) + ": " + key);
  }
}

int dump(const configuration& config) {
  static_cast<void>(config.engine());  // for its errors
  std::cout << config.dump();
  return exit_ok;
}

int dump_study(const configuration& config, const study_scenario& scenario) {
  static_cast<void>(study_machine_of(scenario));  // for its errors
  return dump(without_useless_keys(with_names_of_machine(config), scenario, study_use::itself));
}

void configuration_options::add_to(command to, const char* file_help) {
  if (*file_help != '\0') to.add_option("--config", file, file_help).type_name("FILE");
  to.add_option("--set", assignments, "override a value: key=value; may be repeated").type_name("KEY=VALUE").repeated();
  to.add_flag("--dump-config", dump, "print every value and where it came from, and do nothing else");
}

assignments on_machine(const std::string& machine, const configuration_options& config) {
  assignments all;
  if (!machine.empty()) all.push_back({"study.preset=" + machine, "--on"});
  for (assignment& one : config.said()) all.push_back(std::move(one));
  return all;
}

void repetition_options::add_to(command to, const std::string& of, option measures) {
  to.add_option("--rounds", rounds, "of " + of + ": interleaved repetitions, the median counts (default 5)")
      .within(1, 1000)
      .needs(measures);
  to.add_option("--budget-ms", budget_ms, "of " + of + ": timed part of a repetition (default 20)")
      .within(0.1, 10000.0)
      .needs(measures);
}

std::vector<int> parse_ranks(const std::string& text) {
  const auto number = [&](const std::string& digits) {
    if (digits.empty() || digits.size() > 5 || digits.find_first_not_of("0123456789") != std::string::npos ||
        std::stoi(digits) < 1)
      usage_error("--ranks \"" + text + "\": \"" + digits + "\" is no number of ranks; write, for example, 1-17,24,31");
    if (std::stoi(digits) > most_ranks_of_a_score)
      usage_error("--ranks \"" + text + "\": scores are for at most " + std::to_string(most_ranks_of_a_score) +
                  " ranks");
    return std::stoi(digits);
  };
  std::vector<int> list;
  std::istringstream items{text};
  for (std::string item; std::getline(items, item, ',');) {
    const auto dash = item.find('-');
    const int first = number(item.substr(0, dash));
    const int last = dash == std::string::npos ? first : number(item.substr(dash + 1));
    if (last < first) usage_error("--ranks \"" + text + "\": " + item + " counts down; write the smaller number first");
    for (int n = first; n <= last; ++n) list.push_back(n);
  }
  return list;
}

std::size_t parse_size(const std::string& option, const std::string& text) {
  const std::int64_t bytes = parse_bytes(text);
  if (bytes < 0) usage_error(option + " \"" + text + "\" is no size; write bytes such as 8, 64K or 1M");
  return static_cast<std::size_t>(bytes);
}

layout placement_of(const std::string& option, int ranks, const std::string& layout_text, int otherwise, int most) {
  const int places = layout::leaves_places_open(layout_text) ? 0 : layout::parse(layout_text).size();
  if (places > 0 && ranks > places)
    usage_error(option + " " + std::to_string(ranks) + ": layout \"" + layout_text + "\" places " +
                plural(static_cast<std::size_t>(places), "rank") + "; take at most so many, or leave " + option +
                " out");
  const int wanted = ranks > 0 ? ranks : places > 0 ? places : otherwise;
  const std::string limit = std::to_string(most) + " ranks";
  if (wanted > most)
    usage_error((ranks > 0 ? option + " " + std::to_string(ranks)
                           : "layout \"" + layout_text + "\" places " + std::to_string(places) + " ranks") +
                (most == most_ranks_of_a_process ? "; one process performs at most " : "; scores are for at most ") +
                limit);
  return first_places(layout_text, wanted);
}

collective parse_collective_option(const std::string& text) {
  if (const auto what = parse_collective(text)) return *what;
  std::vector<std::string_view> names;
  for (const collective c : all_collectives) names.push_back(name(c));
  std::string list;
  for (const auto n : names) list += (list.empty() ? "" : ", ") + std::string{n};
  const auto near = closest(text, names);
  usage_error("there is no collective \"" + text + "\"; " +
              (near.empty() ? "there are " + list : "did you mean " + std::string{near} + "?"));
}

// -- progress_line ----------------------------------------------------------------------------------------------------

progress_line::progress_line() : on_terminal_(place_in_job().process == 0 && isatty(STDERR_FILENO) != 0) {}

void progress_line::show(const std::string& text) {
  if (!on_terminal_) return;
  std::cout.flush();
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void progress_line::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

// -- interrupt_guard --------------------------------------------------------------------------------------------------

namespace {

constexpr unsigned seconds_to_end_orderly = 4;
constexpr std::int64_t one_interrupt_ns = 100'000'000;

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

/// SIGUSR2: the guard's own, to end.
sigset_t listened_signals() { return set_of({SIGINT, SIGTERM, SIGUSR2}); }

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::atomic<std::int64_t> first_interrupt_ns{0};

/// Async-signal-safe.
void say(std::string_view text) {
  [[maybe_unused]] const auto ignored = write(STDERR_FILENO, text.data(), text.size());
}

/// Signal handler, of whatever comes after the first interrupt.
void end_at_once(int signal) {
  // timeout(1) signals a process and its group, one right behind the other, and means one interrupt.
  if (signal != SIGALRM && now_ns() - first_interrupt_ns < one_interrupt_ns) return;
  say("troupe: interrupted\n");
  _exit(exit_interrupted);
}

/// Signal handler, where no guard is.
void end_as_interrupted(int) { end_at_once(SIGALRM); }

/// std::new_handler. Not an exception: it could come in code that must not throw, of CAF's too, and the libraries' C code does not look
/// whether it got its memory.
[[noreturn]] void end_without_memory() {
  say("troupe: out of memory; use fewer ranks or smaller sizes\n");
  _exit(exit_failed);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction how {};
  sigaction(signal, nullptr, &how);
  if (how.sa_handler == SIG_IGN) return;  // nohup, or a shell's &
  how = {};
  how.sa_handler = handler;
  how.sa_flags = SA_RESTART;
  sigaction(signal, &how, nullptr);
}

}  // namespace

namespace {

/// Under `ulimit -v` there may be no room for the 64 MiB of address space that glibc takes for each thread's heap; then it would map every block
/// by itself, a thousand times as slow.
void keep_heap_in_limits() {
#ifdef __GLIBC__
  rlimit room{};
  if (getrlimit(RLIMIT_AS, &room) == 0 && room.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace

void prepare_process() {
  for (const int signal : {SIGINT, SIGTERM}) handle(signal, end_as_interrupted);
  std::set_new_handler(end_without_memory);
  keep_heap_in_limits();
}

interrupt_guard::interrupt_guard() : interrupt_guard([] { end_at_once(SIGALRM); }) {}

interrupt_guard::interrupt_guard(std::function<void()> then) {
  const sigset_t set = listened_signals();
  // Threads inherit the mask, so the signals come to the listener alone.
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  listener_ = std::thread{[set, then = std::move(then)] {
    int signal = 0;
    sigwait(&set, &signal);
    if (signal == SIGUSR2) return;
    // From here on handlers, since `then` may have to wait for what does not end.
    first_interrupt_ns = now_ns();
    for (const int later : {SIGINT, SIGTERM, SIGALRM}) handle(later, end_at_once);
    alarm(seconds_to_end_orderly);
    const sigset_t again = set_of({SIGINT, SIGTERM});
    pthread_sigmask(SIG_UNBLOCK, &again, nullptr);
    then();
    const sigset_t end = set_of({SIGUSR2});
    sigwait(&end, &signal);
  }};
}

interrupt_guard::~interrupt_guard() {
  pthread_kill(listener_.native_handle(), SIGUSR2);
  listener_.join();
  alarm(0);
  const sigset_t set = listened_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

// -- run_table --------------------------------------------------------------------------------------------------------

namespace {

std::string ranks_text(const workload& work) {
  const auto many = [](int n, const char* what) { return plural(static_cast<std::size_t>(n), what); };
  const std::string ranks = many(work.ranks, "rank");
  if (work.processes == 1) return ranks + (work.one_thread ? ", all driven by one thread" : ", a thread each");
  if (work.ranks_here() == 1) return ranks + ", a process each";
  return ranks + ", " + many(work.ranks_here(), "thread") + " in each of " + std::to_string(work.processes) +
         " processes";
}

void print_settings(std::ostream& to, const engine_options& options, const workload& work, const std::string& layout) {
  to << "# troupe " << ranks_text(work) << "; layout " << layout << "; choreography " << options.choreography
     << "; determinism " << name(options.level) << "; credits " << options.credits << "\n# warm-up " << work.warmup
     << ", iterations " << work.iterations << (work.check ? ", results checked" : ", results not checked") << '\n';
}

table_columns columns_of(const workload& work, const table_style& style) {
  return {style.choreography_column, style.spread_columns, work.cpu_time};
}

/// Empty where some collectives have one of their own.
std::string wished_of_all(const engine_options& options) {
  return options.choreography_of.empty() ? std::string{choreography_wish{options.choreography}.name} : std::string{};
}

class table_run {
public:
  /// @param keep the rows are wanted afterwards
  /// @param wish see report_footer
  table_run(const workload& work, const table_style& style, bench_runner& runner, std::ostream& to, bool keep,
            std::string wish)
      : footer(std::move(wish)), work_(work), style_(style), runner_(runner), to_(to), keep_(keep) {
    for (const job_group& g : work.groups) total_ += g.jobs.size();
  }

  /// What a forced choreography cannot do, before anything is printed.
  void check() {
    for (const job_group& group : work_.groups) {
      const job* before = nullptr;
      for (const job& j : group.jobs) {
        // Jobs that differ in size alone are neighbours, and can or cannot be performed alike.
        const bool alike = before != nullptr && before->type == j.type && before->reduction.kind == j.reduction.kind &&
                           before->root == j.root;
        before = &j;
        if (!alike) titled(j, [&] { runner_.check(j); });
      }
    }
  }

  void perform() {
    begun_ = 0;
    for (const job_group& group : work_.groups) {
      if (style_.titles) to_ << "# " << group.title << std::endl;
      for (const job& j : group.jobs) perform(j);
    }
  }

  std::vector<job_result> rows;
  report_footer footer;

private:
  void perform(const job& j) {
    line_.show(name(j.kind) + " " + bytes_text(j.bytes) + " (" + std::to_string(++begun_) + " of " +
               std::to_string(total_) + ")");
    job_result row;
    titled(j, [&] { row = runner_.run(j); });
    line_.clear();
    print_row(to_, row, columns_of(work_, style_));
    footer.add(row);
    if (keep_) rows.push_back(std::move(row));
  }

  /// Errors that do not say by themselves which call they are about do then.
  template <class Action>
  void titled(const job& j, Action action) {
    try {
      action();
    } catch (const error& failure) {
      line_.clear();
      const std::string_view text = failure.what();
      if (failure.code_value() == errc::cancelled || text.starts_with(name(j.kind) + "(")) throw;
      throw error(failure.code_value(), name(j.kind) + ", " + bytes_text(j.bytes) + ", " + std::string{name(j.type)} +
                                            (j.kind.reduces() ? ", " + std::string{name(j.reduction.kind)} : "") +
                                            ": " + failure.what());
    }
  }

  const workload& work_;
  const table_style& style_;
  bench_runner& runner_;
  std::ostream& to_;
  progress_line line_;
  std::size_t total_ = 0, begun_ = 0;
  bool keep_;
};

/// Passes an interrupt on to the runner, from when there is one.
class interruption {
public:
  void begin(bench_runner& runner) {
    const std::lock_guard lock{mutex_};
    running_ = &runner;
    if (came_) runner.interrupt();
  }
  void end() {
    const std::lock_guard lock{mutex_};
    running_ = nullptr;
  }
  void come() {
    const std::lock_guard lock{mutex_};
    came_ = true;
    if (running_ != nullptr) running_->interrupt();
  }
  bool came() {
    const std::lock_guard lock{mutex_};
    return came_;
  }
  /// An interrupt comes to all processes of a job, and this one may have heard of it from another first.
  bool comes_soon() {
    for (int i = 0; i < 50 && !came() && place_in_job().processes > 1; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    return came();
  }

private:
  std::mutex mutex_;
  bench_runner* running_ = nullptr;
  bool came_ = false;
};

/// False if it was interrupted.
template <class Action>
bool uninterrupted(bench_runner& runner, interruption& interrupt, Action action) {
  struct ending {
    interruption& of;
    ~ending() { of.end(); }
  } const at_end{interrupt};
  interrupt.begin(runner);
  try {
    action();
    return true;
  } catch (const error&) {
    if (!interrupt.comes_soon()) throw;
    return false;
  }
}

}  // namespace

int run_table(const configuration& config, workload work, const table_style& style, const std::string& json) {
  work.settle = true;
  work.spread = style.spread_columns || !json.empty();
  engine_options options = config.engine();
  options.trace_routes |= style.routes;
  if (place_in_job().process != 0 && options.log_level == "warn")
    options.log_level = "off";  // process 0's says the same
  check_outputs({{"--json", json}}, files_of(config));
  interruption interrupt;
  const interrupt_guard guard{[&] { interrupt.come(); }};
  engine on{options};
  bench_runner runner{on, work};
  const bool speaks = place_in_job().process == 0;
  std::ostream nobody{nullptr};
  std::ostream& to = !speaks ? nobody : json == "-" ? std::cerr : std::cout;  // standard output is for one of them
  table_run table{work, style, runner, to, !json.empty(), wished_of_all(options)};
  bool begun = false;
  const bool complete = uninterrupted(runner, interrupt, [&] {
    runner.join();
    table.check();
    begun = true;
    print_settings(to, options, work, runner.layout_text());
    print_columns(to, columns_of(work, style));
    for (int cycle = 0; style.cycles == 0 || cycle < style.cycles; ++cycle) {
      if (style.cycles != 1) to << "# cycle " << cycle + 1 << std::endl;
      table.perform();
    }
  });
  if (begun) table.footer.print(to);
  std::optional<passed_elements> passed;
  if (options.trace_routes) print(to, passed.emplace(passed_elements{on.traced_routes(), on.traffic()}));
  if (!json.empty() && speaks)
    write_text(json, to_json(work, options, table.rows, config.dump(false), command_line(), complete,
                             passed ? &*passed : nullptr));
  if (complete) return table.footer.ok() ? exit_ok : exit_wrong;
  if (speaks) std::cerr << "troupe: interrupted\n";
  return exit_interrupted;
}

}  // namespace troupe::cli
