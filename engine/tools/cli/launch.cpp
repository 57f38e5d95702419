// SPDX-License-Identifier: Apache-2.0
// troupe launch PROGRAM
#include "engine/tools/cli/cli.hpp"

#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>

#include <sys/stat.h>

#include "actors/ports/link/sockets.hpp"
#include "memory/error.hpp"

namespace troupe::cli {

namespace launch_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe launch -n 4 ./app --its --own=options
  troupe launch --hosts hosts.toml ./app           as many processes as the hosts have slots
  troupe launch -n 4 --no-prefix ./app > output
  troupe launch --join invitation ./app            new processes for a running job, which has called grow()

Each process finds in TROUPE_JOIN, TROUPE_RANK and TROUPE_RANKS where it belongs, and in TROUPE_KEY what proves that it does. What it
writes comes line by line, with its number in front. Process 0 has the standard input, unless it is on another host.

When a process fails, the others have --grace seconds to end by themselves, then get SIGTERM, and after as long again SIGKILL.
Interrupts and SIGTERM are passed on to all processes and their process groups; a second one kills them. What a process leaves in its
process group when it ends is killed.

A file of hosts has a table for each:
  [[host]]
  address = "node1"
  slots = 4                             processes, 1 if it says nothing
  command = ["ssh", "node1"]            runs a text in a shell there; this is the default, [] starts processes here
  directory = "/srv/app"                the same as here if it says nothing
  pod = "rack1/leaf2"                   groups of hosts that it is in, from the outside in; TROUPE_POD of its processes
TROUPE_... variables go to the other hosts, too; the key goes over standard input. They need sh and setsid.

Where the processes' engines have certificates (TROUPE_ENGINE_TLS_CERTIFICATE, _KEY, _AUTHORITY), this one needs them as well, in the same
variables: they meet here.

Exit status: that of the first process that failed, 128 + n if signal n ended it; 127 if there is no such program, 126 if it cannot be
executed. After an interrupt or SIGTERM 130, after another signal n 128 + n, unless a process ended with a status of its own, not 0.)";

constexpr int most_processes = 65536;
constexpr double most_grace = 86400;

struct arguments {
  int processes = 0;
  std::string hosts, listen, join;
  double grace = 5;
  bool no_prefix = false, keep_going = false, nicd = false;
  std::vector<std::string> program;
};

void check(const arguments& a) {
  if (a.program.empty()) usage_error("launch: name the program to start, for example troupe launch -n 4 ./app");
  if (!a.join.empty() && !a.listen.empty())
    usage_error("--listen: with --join the processes meet where the invitation says; leave it out");
  if (a.hosts.empty() && a.processes == 0 && a.join.empty())
    usage_error("launch: say how many processes, for example -n 4, or where with --hosts FILE");
  if (a.processes < 0 || a.processes > most_processes)
    usage_error("-n: there can be 1 … " + std::to_string(most_processes) + " processes");
  if (!(a.grace >= 0 && a.grace <= most_grace)) usage_error("--grace: write 0 … 86400 seconds");
}

/// The one word in it. Anybody who can read the file can join.
std::string read_invitation(const std::string& path) {
  std::ifstream file{path};
  struct stat is {};
  if (!file.is_open() || ::stat(path.c_str(), &is) != 0)
    throw error(errc::bad_config, "--join: " + path + " cannot be read: " + actors::text_of_errno(errno));
  if ((is.st_mode & 077U) != 0)
    throw error(errc::bad_config, "--join: the invitation " + path +
                                      " holds a key, and is open to others than its owner; grow again, and write it to "
                                      "a file that is not (umask 077)");
  std::string word;
  file >> word;
  if (word.empty()) throw error(errc::bad_config, "--join: " + path + " is empty");
  return word;
}

int run(const arguments& a) {
  check(a);
  launch_request job{.program = a.program, .processes = a.processes, .hosts = a.hosts, .listen = a.listen};
  if (!a.join.empty()) job.invitation = read_invitation(a.join);
  job.tls = tls_of_environment();
  job.nicd = a.nicd;
  job.how.prefix = !a.no_prefix;
  job.how.keep_going = a.keep_going;
  job.how.grace = std::chrono::milliseconds{std::llround(a.grace * 1000)};
  return start_job(std::move(job));
}

}  // namespace
}  // namespace launch_command

void add_launch(command program, action& chosen) {
  using namespace launch_command;
  auto a = std::make_shared<arguments>();
  const command sub = program.add_command("launch", "start the processes of a job, here or on several hosts");
  sub.add_option("-n,--processes", a->processes,
                 "how many; as many as --hosts has slots, or as are invited, if not given")
      .type_name("N");
  sub.add_option("--hosts", a->hosts, "TOML file of hosts, see below").type_name("FILE");
  sub.add_option(
         "--listen", a->listen,
         "where the processes meet; the default is loopback, or with --hosts this machine's address on the way to them")
      .type_name("ADDRESS");
  sub.add_option("--join", a->join,
                 "file with the invitation of a running job (communicator::grow), whose new processes these are")
      .type_name("FILE");
  sub.add_option("--grace", a->grace, "how long the others have when a process has failed")
      .type_name("SECONDS")
      .shows_default();
  sub.add_flag("--keep-going", a->keep_going, "leave the others alone when a process fails");
  sub.add_flag(
      "--nicd", a->nicd,
      "start a NIC process for them (troupe nicd), which performs what they offload; all of them are started here");
  sub.add_flag("--no-prefix", a->no_prefix, "no [2] before the lines of process 2");
  sub.takes_program();
  sub.footer(footer);
  sub.when_named([a, sub, &chosen] {
    a->program = sub.rest();
    // An option that there is not stops nothing: what looks like one before the program is a mistake.
    if (!a->program.empty() && a->program.front().starts_with('-')) sub.refuse(a->program);
    chosen = [a] { return run(*a); };
  });
}

}  // namespace troupe::cli
