// SPDX-License-Identifier: Apache-2.0
// troupe tune
#include "engine/tools/tune.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "actors/ports/link/rendezvous.hpp"
#include "engine/tools/cli/cli.hpp"
#include "engine/tools/report.hpp"
#include "engine/tools/tune_choices.hpp"
#include "engine/tools/tune_links.hpp"
#include "engine/world/join.hpp"
#include "memory/error.hpp"

namespace troupe::cli {

namespace tune_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe tune                          measure (about a minute; leave the machine alone), write the file that engines load
  troupe tune --output mine.toml       … to another place; TROUPE_TUNING=mine.toml or engine.tuning = "mine.toml" loads it
  troupe tune --quick --output -       a look: print the file, write nothing
  troupe tune --choices --ranks 2,4    also who is the fastest for 2 and 4 threads, size by size: for engine.planner = "measured"
  troupe launch --hosts hosts.toml -n 2 troupe tune    the same, with frames between these two hosts instead of two processes here
  troupe explain all_reduce --ranks 4 --bytes 64K --measure    how far predictions are from measurements

docs/tuning.md describes the file.)";

constexpr int most_threads_chosen = 256;

struct arguments {
  std::string output;
  std::string json;
  bool quick = false;
  bool choices = false;
  std::vector<int> ranks{2, 4, 8};  ///< of the choices
  bool peer = false;                ///< the other process, which `tune` starts itself
};

// -- frames between processes -----------------------------------------------------------------------------------------

constexpr std::chrono::seconds deadline_here{20}, deadline_of_job{600};

/// This program once more, as process 1 of the job.
class peer_process {
public:
  peer_process(const std::string& rendezvous, const std::string& key, bool apart, bool quick) {
    std::vector<std::string> words{"troupe", "tune", "--peer"},
        variables{"TROUPE_JOIN=" + rendezvous, "TROUPE_RANK=1", "TROUPE_RANKS=2", "TROUPE_KEY=" + key};
    if (quick) words.emplace_back("--quick");
    if (apart) variables.insert(variables.end(), {"TROUPE_HOST=tune, process 1", "TROUPE_INTERFACE=lo"});
    for (char** v = environ; v != nullptr && *v != nullptr; ++v)
      if (!std::string_view{*v}.starts_with("TROUPE_")) variables.emplace_back(*v);
    const auto pointers = [](std::vector<std::string>& of) {
      std::vector<char*> all;
      for (std::string& each : of) all.push_back(each.data());
      all.push_back(nullptr);
      return all;
    };
    if (const int bad = ::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, pointers(words).data(),
                                      pointers(variables).data());
        bad != 0)
      throw error(errc::io, "a second process cannot be started: " + std::string{std::strerror(bad)});
  }
  ~peer_process() {
    // It ends by itself: without its peer, by peer_lost or its deadline.
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {}
  }
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;

private:
  pid_t pid_ = -1;
};

/// Another process of this computer: by the ring that it shares with this one, or as if it were on another host, by TCP over loopback.
std::vector<calibration> measure_here(reach between, bool quick) {
  const bool apart = between == reach::network;
  const actors::job_key key = actors::job_key::random();
  const actors::rendezvous_service place{"tcp://127.0.0.1:0", 2, key, build_of_links()};
  const peer_process other{place.address(), key.to_hex(), apart, quick};
  join_options how;
  how.rendezvous = place.address();
  how.process = 0;
  how.processes = 2;
  how.key = key.to_hex();
  how.deadline = deadline_here;
  if (apart) how.interfaces = "lo", how.host = "tune, process 0";
  engine_options options = options_to_measure_links();
  options.environment = false;  // the other one has none
  engine on{options};
  communicator world = on.join(how);
  return measure_link(world, between, quick);
}

/// The other process of a job of two, which a launcher has started.
struct launched_pair {
  reach between = reach::segment;
  std::vector<calibration> measured;
};
launched_pair measure_in_job(bool quick) {
  join_options how;
  how.deadline = deadline_of_job;
  engine on{options_to_measure_links()};
  communicator world = on.join(how);
  launched_pair pair;
  pair.between = reach_map{layout_of_job(on)}.farthest();
  pair.measured = measure_link(world, pair.between, quick);
  return pair;
}

/// Constants that cannot be measured stay assumed, and the reason is printed.
void measure_links(tuning& t, bool in_job, bool quick, progress_line& line) {
  launched_pair pair;
  if (in_job) {
    line.show("links: the other process of the job");
    pair = measure_in_job(quick);
    fit_link(t, pair.measured,
             pair.between == reach::segment ? "ring between two processes of the job"
                                            : "TCP between two hosts of the job");
  }
  for (const reach between : {reach::segment, reach::network}) {
    if (in_job && pair.between == between) continue;
    const bool apart = between == reach::network;
    line.show(apart ? "links: TCP" : "links: ring");
    try {
      fit_link(t, measure_here(between, quick), apart ? "TCP over loopback" : "ring between processes");
    } catch (const error& failure) {
      line.clear();
      std::cerr << "troupe: frames by " << (apart ? "TCP" : "the shared ring")
                << " are not measured, but assumed: " << failure.what() << '\n';
    }
  }
}

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
  to << "frames between processes: " << (t.links.empty() ? "assumed" : "measured by " + t.links) << '\n';
  for (const tuning_key& k : tuning_schema()) row(std::string{k.key}, value_of(t, k), k.unit, k.how);
  char text[32];
  for (const datatype type : tuned_datatypes) {
    std::snprintf(text, sizeof text, "%.1f", t.type_rate[static_cast<std::size_t>(type)]);
    row("types." + std::string{name(type)}, text, "GB/s", "sum of two in the first-level cache");
  }
  for (const measured_choice& c : t.choices)
    to << name(c.what) << ", " << plural(static_cast<std::size_t>(c.ranks), "rank") << ", "
       << (c.up_to == measured_choice::no_limit ? "above" : "up to " + bytes_text(c.up_to)) << ": " << c.choreography
       << " (" << name(c.protocol) << ")\n";
}

/// {machine {cpu, cores}, links, constants {key: number, or [[bytes, rate]]}, types {name: GB/s}, choices [{collective, ranks, up_to: bytes or null, choreography, protocol}]}
std::string json_text(const tuning& t) {
  using json = nlohmann::ordered_json;
  json constants = json::object(), types = json::object();
  for (const tuning_key& k : tuning_schema()) {
    json& value = constants[std::string{k.key}];
    if (k.number != nullptr) {
      value = t.*k.number;
      continue;
    }
    value = json::array();
    for (const auto& p : (t.*k.curve).points()) value.push_back({p.bytes, p.rate});
  }
  for (const datatype type : tuned_datatypes)
    types[std::string{name(type)}] = t.type_rate[static_cast<std::size_t>(type)];
  json choices = json::array();
  for (const measured_choice& c : t.choices)
    choices.push_back({{"collective", name(c.what)},
                       {"ranks", c.ranks},
                       {"up_to", c.up_to == measured_choice::no_limit ? json() : json(c.up_to)},
                       {"choreography", c.choreography},
                       {"protocol", name(c.protocol)}});
  const json document{{"machine", {{"cpu", t.machine.cpu}, {"cores", t.machine.cores}}},
                      {"links", t.links},
                      {"constants", std::move(constants)},
                      {"types", std::move(types)},
                      {"choices", std::move(choices)}};
  return document.dump(2) + "\n";
}

/// Nobody measures what is between groups of hosts, nor, if not asked to, choices: what the file has said of them stays.
void keep_what_is_not_measured(tuning& t, const std::string& file, bool choices_too) {
  std::error_code none;
  if (file == "-" || !std::filesystem::exists(file, none)) return;
  try {
    const tuning before = read_tuning(file);
    t.outer_message_ns = before.outer_message_ns;
    t.outer_kilobyte_ns = before.outer_kilobyte_ns;
    if (choices_too) t.choices = before.choices;
  } catch (const error& e) {  // it is written anew
    std::cerr << "troupe tune: " << e.what()
              << ": what it says of links.outer_message, links.outer_kilobyte and choices is not kept\n";
    return;
  }
  for (double& ns : t.outer_message_ns) ns = std::max(ns, t.socket_message_ns);
  for (double& ns : t.outer_kilobyte_ns) ns = std::max(ns, t.socket_kilobyte_ns);
}

int tune(const arguments& a) {
  if (a.peer) return measure_in_job(a.quick), exit_ok;
  const job_place place = join_place();
  if (place.processes > 2)
    usage_error("tune measures a machine that is left alone, and frames between two processes, and this is one of " +
                std::to_string(place.processes) + " (by " + place.by + "); start it by itself, or in two processes");
  if (place.process == 1) return measure_in_job(a.quick), exit_ok;
  for (const int ranks : a.ranks)
    if (ranks < 2 || ranks > most_threads_chosen)
      usage_error("--ranks " + std::to_string(ranks) + ": choices are measured for 2 to " +
                  std::to_string(most_threads_chosen) + " threads");
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
  check_outputs({{"--output", output}, {"--json", a.json}}, {});
  const interrupt_guard guard;
  progress_line line;
  tuning t = measure_machine({a.quick, [&](const std::string& text) { line.show(text); }});
  measure_links(t, place.processes == 2, a.quick, line);
  keep_what_is_not_measured(t, output, !a.choices);
  if (a.choices) {
    std::set<int> ranks(a.ranks.begin(), a.ranks.end());
    choices_options how{
        {ranks.begin(), ranks.end()}, a.quick, "none", [&](const std::string& text) { line.show(text); }};
    // Whatever becomes of the minutes that follow, the constants are there; and the choices are measured by them.
    if (output != "-") {
      write_text(output, to_toml(t));
      how.tuning = output;
    }
    t.choices = measure_choices(how);
  }
  line.clear();
  std::ostream& words = output == "-" || a.json == "-" ? std::cerr : std::cout;
  print_table(words, t);
  write_text(output, to_toml(t));
  if (!a.json.empty()) write_text(a.json, json_text(t));
  if (output != "-") words << "written to " << output << (a.output.empty() ? "; engines load it from there\n" : "\n");
  return exit_ok;
}

}  // namespace
}  // namespace tune_command

void add_tune(command program, action& chosen) {
  using namespace tune_command;
  auto a = std::make_shared<arguments>();
  const command sub = program.add_command(
      "tune", "measure what this machine costs, for the planner; writes the file that engines load");
  sub.add_option("--output", a->output,
                 "write the file there instead of $XDG_CONFIG_HOME/troupe/tuning.toml; -: standard output")
      .type_name("FILE");
  sub.add_option("--json", a->json, "write the constants as JSON, too; - for standard output").type_name("FILE");
  sub.add_flag("--quick", a->quick, "some seconds: a look rather than a measurement");
  const option choices =
      sub.add_flag("--choices", a->choices,
                   "measure, too, who is the fastest at which sizes, for engine.planner = measured; some minutes more");
  sub.add_option("--ranks", a->ranks, "of the choices: threads of a process (default 2,4,8)")
      .separated_by(',')
      .needs(choices)
      .type_name("N,M");
  sub.add_flag("--peer", a->peer).hidden();  // of `tune` itself
  sub.footer(footer);
  sub.when_named([a, &chosen] { chosen = [a] { return tune(*a); }; });
}

}  // namespace troupe::cli
