// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the subcommands of the program `troupe` share. One file each; main.cpp puts them together.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/config/configuration.hpp"
#include "engine/tools/cli/command.hpp"
#include "engine/tools/launch/supervisor.hpp"
#include "engine/tools/study/study.hpp"
#include "engine/tools/workload.hpp"
#include "engine/world/tls.hpp"
#include "memory/error.hpp"

namespace troupe::cli {

/// What the program tells its caller.
inline constexpr int exit_ok = 0;
inline constexpr int exit_wrong = 1;   ///< wrong results, or a score that does not verify
inline constexpr int exit_usage = 2;   ///< command line, configuration or file that cannot be followed
inline constexpr int exit_failed = 3;  ///< failed while running
inline constexpr int exit_interrupted = 130;

/// Set by the subcommand that was named; main calls it when the whole command line has been read.
using action = std::function<int()>;

void add_run(command program, action& chosen);
void add_list(command program, action& chosen);
void add_show(command program, action& chosen);
void add_verify(command program, action& chosen);
void add_explain(command program, action& chosen);
void add_route(command program, action& chosen);
void add_bench(command program, action& chosen);
void add_study(command program, action& chosen);
void add_compare(command program, action& chosen);
void add_replay(command program, action& chosen);
void add_experts(command program, action& chosen);
void add_tune(command program, action& chosen);
void add_simulate(command program, action& chosen);
void add_launch(command program, action& chosen);
void add_rendezvous(command program, action& chosen);
void add_nicd(command program, action& chosen);
void add_generate(command program, action& chosen);

/// The words that the program was called with, as main set them; for results.
std::vector<std::string>& command_line();

/// A mistake on the command line: error(bad_config) with `sentence`.
[[noreturn]] void usage_error(const std::string& sentence);

/// A value of the configuration, and the option that says it, which messages name.
struct assignment {
  std::string text;  ///< "key=value"
  std::string option = "--set";
};
using assignments = std::vector<assignment>;
assignments said_by(const std::string& option, const std::vector<std::string>& texts);

/// --config FILE and --set key=value; empty file: TROUPE_CONFIG's, else defaults. File, then environment, then the command line.
/// @param read what the command looks at: "engine.", "workload.", or single keys. An assignment to another key is a mistake: it would do
///        nothing.
configuration read_configuration(const std::string& file, const assignments& said,
                                 std::initializer_list<std::string_view> read);

/// The same for commands that study: keys without a table are [study]'s, and of the engine's those are read that say what a machine or a
/// choreography is.
configuration read_study_configuration(const std::string& file, const assignments& said);
/// One more value, checked likewise.
configuration with_study_value(configuration base, const assignment& said);
/// read_study(). A title from a file is that of the file's study: what the environment and `said`, both in `config`, make of it is added, as in
/// "Ring all-reduce on 16 ranks, ranks=128".
study_scenario read_titled_study(const configuration& config, const assignments& said);

/// An engine.choreography_of.X on the command line for which no job asks: none is an X, or each names its own. Throws error(bad_config).
void check_choreographies_of(const configuration& config, const std::vector<job_group>& jobs);

/// A file that a command will write.
struct output_file {
  const char* option;       ///< "--json"
  const std::string& path;  ///< "-": standard output; empty: it is not asked for
};
/// Before the work: one that cannot be written, two that are the same, and one that is read or has been. Throws error(bad_config).
void check_outputs(std::initializer_list<output_file> outputs, const std::vector<std::string>& inputs);
/// The files that a configuration was read from, and those that its values name.
std::vector<std::string> files_of(const configuration& config);

/// Throws error(bad_config) for what says what a study performs, where something else does. Of a file only jobs and flows are, as its collective may
/// be there for `troupe study`. @param who "the trace says what is performed"
void check_performed_elsewhere(const configuration& from, const std::string& who);
/// --dump-config: what a command has read, and where it came from. Returns the exit code.
int dump(const configuration& config);
/// The same of a study; what it says of the machine is checked. @param scenario as it was read from it
int dump_study(const configuration& config, const study_scenario& scenario);
/// Adds --config, --set and --dump-config, as every command has them that reads a configuration.
struct configuration_options {
  std::string file;
  std::vector<std::string> assignments;
  bool dump = false;
  cli::assignments said() const { return said_by("--set", assignments); }
  /// @param file_help empty: FILE is an argument, and there is no --config
  void add_to(command to, const char* file_help);
};

/// What --on MACHINE and --set say, the latter stronger. @param machine empty: nobody has said --on
assignments on_machine(const std::string& machine, const configuration_options& config);

/// Adds --rounds and --budget-ms, as the commands have them that measure something beside what they predict.
struct repetition_options {
  int rounds = 5;         ///< interleaved, of which the median counts
  double budget_ms = 20;  ///< the timed part of each
  /// @param of the option `measures`, without which they do nothing
  void add_to(command to, const std::string& of, option measures);
};

/// "ring=4" on the command line of a study means study.ring there, not the engine's or the workload's key of that name.
std::string in_study(const std::string& assignment);

/// "1-17,24,31" → 1 … 17, 24, 31. Throws usage_error.
std::vector<int> parse_ranks(const std::string& text);
std::size_t parse_size(const std::string& option, const std::string& text);
/// What the verifier goes up to.
inline constexpr int most_ranks_of_a_score = 8192;

/// Where `ranks` ranks sit: on the first places of `layout_text`, on all of them if `ranks` is 0; flat if it is empty.
/// @param option as it was written, for messages: "--ranks"
/// @param otherwise how many if neither says it
layout placement_of(const std::string& option, int ranks, const std::string& layout_text, int otherwise, int most);
/// "4", "2x4" or "2x4x1": as a join would find so many processes, on one host, on several, or in pods of hosts, which
/// may be nested.
/// @param text of --processes @param ranks 0: one in each
layout placement_in_processes(const std::string& text, int ranks);
collective parse_collective_option(const std::string& text);

/// What started this process has made it one of many of a job (troupe launch, mpirun, srun, torchrun).
struct job_place {
  int process = 0;
  int processes = 1;
  std::string by{};  ///< "TROUPE_JOIN", "mpirun (Open MPI)" …; empty: nobody has
  /// It is not to start any itself. (One process of mpirun, srun or torchrun may well do so.)
  bool started() const { return processes > 1 || by == "TROUPE_JOIN"; }
};
/// For commands that join: asks once, and from then on process 0 alone says what all know. Throws error(bad_config) where what is set cannot be
/// followed.
job_place join_place();
/// As join_place() has found it; of none before.
const job_place& place_in_job();
/// Whether process 0 tells this failure, so that this process has nothing to say about it.
bool others_say(const error& failure);

/// A job to start; `troupe launch` says what means what.
struct launch_request {
  std::vector<std::string> program{};
  int processes = 0;    ///< 0: as many as the hosts have slots, or are invited
  std::string hosts{};  ///< a file; empty: here
  std::string listen{};
  std::string
      invitation{};  ///< of communicator::grow(): of a running job they become new processes; empty: their job begins
  launch::supervision how{};
  bool nicd = false;                                  ///< a NIC process for the job, which all start here
  bool own = false;                                   ///< the program is this one: its process 0 writes for all
  std::shared_ptr<const actors::tls_identity> tls{};  ///< who this process is where they meet; null: without TLS
};
int start_job(launch_request what);
/// This very command once more in each of `processes` processes, which join one job; here, or on the hosts of a file. Its exit status.
/// Before any other thread is made. @param options of their engines
int start_processes(int processes, const std::string& hosts, const engine_options& options);

/// How many processes there are to be: as many as the job has that this one is of, else those that are asked for (0: 1).
/// @param option as it was written, for messages
int processes_of(const std::string& option, int asked);
inline constexpr int most_processes_here = 1024;
/// What an engine that joins cannot have, as a mistake of the user.
void check_job_options(const engine_options& options);

/// Runs the groups of `work` on an engine, prints a row each, and writes JSON if `json` is not empty. Returns the exit code.
struct table_style {
  bool choreography_column = false;
  bool titles = false;
  bool routes = false;  ///< afterwards, the ways that messages took, and what passed each element
  bool spread_columns = false;
  int cycles = 1;  ///< how often all rows are run; 0: until an interrupt
};
int run_table(const configuration& config, workload work, const table_style& style, const std::string& json);

/// A line on standard error that replaces itself; nothing at all unless that is a terminal.
class progress_line {
public:
  progress_line();
  ~progress_line() { clear(); }
  void show(const std::string& text);
  void clear();

private:
  bool on_terminal_;
  bool shown_ = false;
};

/// What every process of the program begins with, before main: an interrupt ends it as the exit codes say, also where no interrupt_guard is,
/// and so does memory that runs out.
void prepare_process();

/// Of commands that compute, print and end: what they keep is made piece by piece, and a run of many ranks would else wait for pages.
inline constexpr std::size_t computing_heap = std::size_t{1} << 30;

/// While alive, an interrupt (Ctrl-C, SIGTERM) calls `then` on a thread of its own, once. If the guard is still there two seconds later
/// (`then` is looked at between plans and scores, and one can take long), or at a second interrupt, the process ends as interrupted.
/// One at a time. Make it before any other thread, which would otherwise get the signal.
class interrupt_guard {
public:
  /// Nothing to bring to an end: the first interrupt ends the process.
  interrupt_guard();
  explicit interrupt_guard(std::function<void()> then);
  ~interrupt_guard();
  interrupt_guard(const interrupt_guard&) = delete;
  interrupt_guard& operator=(const interrupt_guard&) = delete;

private:
  std::thread listener_;
};

}  // namespace troupe::cli
