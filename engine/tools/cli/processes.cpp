// SPDX-License-Identifier: Apache-2.0
// Commands whose ranks live in several processes: `bench` and `run` start themselves once for each, or were started so by a launcher.
#include "engine/tools/cli/cli.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <unistd.h>

#include "actors/ports/link/rendezvous.hpp"
#include "engine/tools/launch/hosts.hpp"
#include "engine/tools/launch/meeting_place.hpp"
#include "engine/tools/launch/nic_process.hpp"
#include "engine/tools/launch/supervisor.hpp"
#include "engine/tools/process_copies.hpp"
#include "engine/world/job_id.hpp"
#include "engine/world/join.hpp"
#include "engine/world/launcher_environment.hpp"
#include "memory/error.hpp"

namespace troupe::cli {

namespace {

job_place& noted_place() {
  static job_place place;
  return place;
}

std::string own_program() {
  std::error_code problem;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", problem);
  if (problem) throw error(errc::io, "/proc/self/exe: " + problem.message());
  return path.string();
}

}  // namespace

job_place join_place() {
  const auto found = launched_by(
      [](const char* name) -> const char* {
        return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody here changes it
      },
      facts_of_this_process());
  if (!found) return {};
  return noted_place() = {found->process, found->processes, found->by};
}

const job_place& place_in_job() { return noted_place(); }

bool others_say(const error& failure) {
  // What ends one process alone reaches the others as the reason why their communicator ended.
  return noted_place().process != 0 && failure.code_value() != errc::io;
}

int processes_of(const std::string& option, int asked) {
  const job_place place = join_place();
  if (!place.started()) return std::max(asked, 1);
  if (asked > 0 && asked != place.processes)
    usage_error(option + " " + std::to_string(asked) + ": this is one of " + std::to_string(place.processes) +
                " processes already, by " + place.by + "; leave it out");
  return place.processes;
}

void check_job_options(const engine_options& options) {
  if (!layout::leaves_places_open(options.layout))
    usage_error("engine.layout is \"" + options.layout +
                "\", but processes find their layout themselves: leave it out, or say behind a colon alone which "
                "switches reduce, as in \":inside\"");
  if (options.faults.any()) usage_error("engine.faults happen inside one process; leave them out");
  if (options.trace_routes)
    usage_error("routes go through a layout's elements, which processes do not have: leave trace_routes out");
}

namespace {

/// As many as are invited, neither more nor less.
int invited_processes(const launch_request& what) {
  const auto fresh = static_cast<int>(meeting_of_invitation(what.invitation).fresh);
  if (what.processes != 0 && what.processes != fresh)
    throw error(errc::bad_config, "-n " + std::to_string(what.processes) + ": the invitation is for " +
                                      std::to_string(fresh) + " new process" + (fresh == 1 ? "" : "es"));
  return fresh;
}

}  // namespace

int start_job(launch_request what) {
  const std::vector<launch::host> hosts =
      what.hosts.empty() ? std::vector<launch::host>{} : launch::read_hosts(what.hosts);
  const bool invited = !what.invitation.empty();
  launch::job job{.program = std::move(what.program),
                  .processes = invited               ? invited_processes(what)
                               : what.processes == 0 ? launch::slots_of(hosts)
                                                     : what.processes,
                  .rendezvous = what.invitation,
                  .invited = invited};
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    job.environment.emplace_back(*variable);
  if (what.nicd && !std::ranges::all_of(hosts, [](const launch::host& h) { return h.here(); }))
    usage_error("--nicd: it starts one here, and a file of hosts names others: start `troupe nicd` on each of them, "
                "and set TROUPE_ENGINE_NIC=host");
  const launch::held_signals signals;
  const launch::guardian guard;
  std::optional<launch::nic_process> nic;
  if (what.nicd) {
    nic.emplace(own_program(), signals);
    constexpr std::string_view variable = "TROUPE_ENGINE_NIC=";
    std::erase_if(job.environment, [&](const std::string& each) { return each.starts_with(variable); });
    job.environment.push_back(std::string{variable} + nic->address());
  }
  const actors::job_key key = actors::job_key::random();
  if (!invited) job.key = key.to_hex();
  const std::string directory = std::filesystem::current_path().string();
  const auto places = hosts.empty() ? std::vector<std::size_t>{} : place_processes(hosts, job.processes, what.hosts);
  const auto commands_of = [&] {
    std::vector<launch::command> made;
    for (int rank = 0; rank < job.processes; ++rank) {
      const launch::host* const on = hosts.empty() ? nullptr : &hosts[places[static_cast<std::size_t>(rank)]];
      made.push_back(on == nullptr || on->here()
                         ? on == nullptr ? command_here(job, rank, {}) : command_here(job, rank, on->directory, on->pod)
                         : command_there(job, rank, *on, directory));
      made.back().has_our_streams = what.own && rank == 0 && !made.back().remote();
    }
    return made;
  };
  std::vector<launch::command> commands = commands_of();  // for its errors: nobody listens before
  if (invited) return supervise(commands, what.how, signals, guard);
  const actors::rendezvous_service place{what.listen.empty() ? launch::listen_for(hosts) : what.listen,
                                         static_cast<std::uint32_t>(job.processes), key, build_of_links(), what.tls};
  job.rendezvous = place.address();
  commands = commands_of();
  return supervise(commands, what.how, signals, guard);
}

int start_processes(int processes, const std::string& hosts, const engine_options& options) {
  launch_request self{.processes = processes, .hosts = hosts, .own = true, .tls = tls_of(options)};
  self.program = command_line();
  self.program.front() = own_program();
  self.how.prefix = false;
  self.how.speaker = "troupe";
  self.how.say_status = false;
  const int status = start_job(std::move(self));
  if (status == 128 + SIGTERM) return exit_interrupted;
  // A process that was killed has failed while running. If nobody reads its output any more, that is no failure of ours.
  const bool own = status <= exit_failed || status == exit_interrupted || status == 128 + SIGPIPE;
  return own ? status : exit_failed;
}

layout placement_in_processes(const std::string& text, int ranks) {
  const auto wrong = [&](const std::string& sentence) { usage_error("--processes \"" + text + "\": " + sentence); };
  constexpr int most = 65536;
  std::vector<int> extents;
  long long all = 1;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    int number = 0;
    const auto [end, problem] = std::from_chars(text.data() + at, text.data() + text.size(), number);
    at = static_cast<std::size_t>(end - text.data());
    if (problem != std::errc{} || number < 1 || (at < text.size() && text[at] != 'x'))
      wrong("write how many there are on this host, such as 4, hosts x processes of each, such as 2x4, or with pods of "
            "hosts in front, such as 2x4x1");
    extents.push_back(number);
    if (all *= number; all > most) wrong("a job has at most " + std::to_string(most) + " processes");
  }
  if (extents.size() > actors::most_groups + 2)
    wrong("there can be " + std::to_string(actors::most_groups) + " levels of pods");
  const int each = extents.back(), processes = static_cast<int>(all);
  if (ranks == 0) ranks = processes;
  if (ranks % processes != 0)
    wrong("the " + plural(static_cast<std::size_t>(ranks), "rank") + " cannot be shared alike by " +
          std::to_string(processes) + "; take a multiple");
  actors::roster job;
  for (int p = 0; p < processes; ++p) {
    job.processes.emplace_back();
    job.processes.back().host_key = static_cast<std::uint64_t>(p / each);
    job.processes.back().ranks = static_cast<std::uint32_t>(ranks / processes);
    int inside = processes;
    for (std::size_t level = 0; level + 2 < extents.size(); ++level)
      job.processes.back().groups.push_back(std::to_string(p / (inside /= extents[level])));
  }
  layout placement = layout_of(job);
  placement.copies = processes_may_copy();
  return placement;
}

}  // namespace troupe::cli
