// SPDX-License-Identifier: Apache-2.0
#include "engine/world/launcher_environment.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>

#include <unistd.h>

#include "actors/ports/link/roster.hpp"
#include "engine/world/job_id.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

[[noreturn]] void fail(const std::string& sentence) { throw error(errc::bad_config, sentence); }

/// What is set, and not empty.
class variables {
public:
  explicit variables(const environment_lookup& look) : look_(look) {}

  std::string text(const char* name) const {
    const char* const value = look_(name);
    return value == nullptr ? std::string{} : std::string{value};
  }
  bool has(const char* name) const { return !text(name).empty(); }
  bool have(std::initializer_list<const char*> names) const {
    return std::all_of(names.begin(), names.end(), [&](const char* name) { return has(name); });
  }
  /// @pre has(name)
  int number(const char* name, int least) const {
    const std::string value = text(name);
    int read = 0;
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), read);
    if (problem != std::errc{} || end != value.data() + value.size() || read < least)
      fail(std::string{name} + " is \"" + value + "\"; it must be a whole number from " + std::to_string(least) +
           " on");
    return read;
  }

private:
  const environment_lookup& look_;
};

std::vector<std::string_view> parts_of(std::string_view text, char between) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(between);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

/// Whether a launcher has set both. One alone is a mistake, or a launcher that we do not know.
bool both(const variables& in, const char* rank, const char* ranks) {
  if (in.has(rank) == in.has(ranks)) return in.has(rank);
  fail(std::string{in.has(rank) ? rank : ranks} + " is set, and " + (in.has(rank) ? ranks : rank) +
       " is not; set TROUPE_JOIN, TROUPE_RANK and TROUPE_RANKS where a launcher sets only one of them");
}

launched place_from(const variables& in, std::string by, const char* rank, const char* ranks) {
  launched here;
  here.by = std::move(by);
  here.process = in.number(rank, 0);
  here.processes = in.number(ranks, 1);
  if (here.process >= here.processes)
    fail(std::string{rank} + " is " + std::to_string(here.process) + " of " + ranks + " " +
         std::to_string(here.processes) + "; of " + std::to_string(here.processes) +
         (here.processes == 1 ? " process the only one is 0" : " processes the last is ") +
         (here.processes == 1 ? "" : std::to_string(here.processes - 1)));
  return here;
}

// -- addresses --

void check_port(const std::string& name, const std::string& address, std::string_view port) {
  int read = 0;
  const auto [end, problem] = std::from_chars(port.data(), port.data() + port.size(), read);
  if (problem != std::errc{} || end != port.data() + port.size() || read < 1 || read > 65535)
    fail(name + " is \"" + address + "\"; its port must be 1 … 65535, as in tcp://node1:7000");
}

/// @param name of the variable, for messages
void check_address(const std::string& name, const std::string& address) {
  constexpr std::string_view tcp = "tcp://", local = "unix:@";
  const std::string hint = name + " is \"" + address + "\"; write tcp://host:port, or tcp://[address]:port for IPv6";
  // A socket's name has 107 characters at most.
  if (address.starts_with(local) && address.size() > local.size() && address.size() <= local.size() + 107) return;
  if (!address.starts_with(tcp)) fail(hint);
  const std::string_view rest = std::string_view{address}.substr(tcp.size());
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) fail(hint);
  std::string_view host = rest.substr(0, colon);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') fail(hint);
    host = host.substr(1, host.size() - 2);
    if (host.find_first_of("[]") != std::string_view::npos) fail(hint);
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    fail(hint);
  }
  if (host.find_first_of("/ \t\r\n@") != std::string_view::npos) fail(hint);
  check_port(name, address, rest.substr(colon + 1));
}

/// FNV-1a: the same number in every process and build.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string tcp(const std::string& host, std::uint64_t port) {
  return "tcp://" + (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

std::uint64_t port_of(const std::string& identity) { return 20000 + hash_of(identity) % 10000; }

/// A socket's name is short, and a launcher's identity may have any length and any characters.
std::string name_on_host(const process_facts& facts, std::string_view launcher, const std::string& identity) {
  const bool plain = identity.size() <= 60 && std::all_of(identity.begin(), identity.end(), [](char c) {
                       return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                              c == '_' || c == '.';
                     });
  return "unix:@troupe-" + std::to_string(facts.user) + "-" + std::string{launcher} + "-" +
         (plain ? identity : "h" + std::to_string(hash_of(identity)));
}

[[noreturn]] void no_meeting_place(const launched& here, const std::string& why, const std::string& how) {
  fail(here.by + " started this process as " + std::to_string(here.process) + " of " + std::to_string(here.processes) +
       ", but " + why + "; say where process 0 listens: " + how);
}

// -- launchers --

std::optional<launched> by_open_mpi(const variables& in, const process_facts& facts) {
  if (!both(in, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) return std::nullopt;
  launched here = place_from(in, "mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (here.processes == 1 || in.has("TROUPE_JOIN")) return here;
  std::string identity = in.text("OMPI_MCA_orte_precondition_transports");
  if (identity.empty()) identity = in.text("PMIX_NAMESPACE");
  const char* const how = "mpirun -x TROUPE_JOIN=tcp://HOST:PORT";
  if (identity.empty()) no_meeting_place(here, "set nothing that names the job", how);
  if (in.has("OMPI_COMM_WORLD_LOCAL_SIZE") && in.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1) == here.processes) {
    here.rendezvous = name_on_host(facts, "openmpi", identity);
    return here;
  }
  // "29163520.0;tcp://192.0.2.2,198.51.100.7:53523;tcp6://[fd00::2]:54895"
  const std::string uri = in.text("OMPI_MCA_orte_hnp_uri");
  constexpr std::string_view scheme = ";tcp://";
  const auto at = uri.find(scheme);
  const std::string host =
      at == std::string::npos
          ? std::string{}
          : uri.substr(at + scheme.size(), uri.find_first_of(",:;", at + scheme.size()) - at - scheme.size());
  if (host.empty()) no_meeting_place(here, "not on which host the first process is", how);
  here.rendezvous = tcp(host, port_of(identity));
  return here;
}

/// srun --mpi=pmi2 sets PMI_RANK as well; Slurm says more.
bool is_slurms(const variables& in) {
  return !in.has("MPI_LOCALNRANKS") && in.have({"SLURM_STEP_ID", "SLURM_PROCID"}) &&
         in.text("SLURM_PROCID") == in.text("PMI_RANK");
}

std::optional<launched> by_mpich(const variables& in, const process_facts& facts) {
  if (is_slurms(in) || !both(in, "PMI_RANK", "PMI_SIZE")) return std::nullopt;
  launched here = place_from(in, "mpirun (MPICH)", "PMI_RANK", "PMI_SIZE");
  if (here.processes == 1 || in.has("TROUPE_JOIN")) return here;
  const char* const how = "mpirun -genv TROUPE_JOIN tcp://HOST:PORT";
  if (!in.has("MPI_LOCALNRANKS") || in.number("MPI_LOCALNRANKS", 1) != here.processes)
    no_meeting_place(here, "not on which host the first process is", how);
  if (facts.starter.empty()) no_meeting_place(here, "set nothing that names the job", how);
  here.rendezvous = name_on_host(facts, "mpich", facts.starter);
  return here;
}

/// Of Slurm's "n[01-03,7]-ib,other": "n01-ib".
std::string first_host(std::string_view list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const auto close = list.find(']', at);
    if (close == std::string_view::npos) return {};
    const std::string_view range = list.substr(at + 1, close - at - 1);
    host += range.substr(0, range.find_first_of("-,"));
    at = close;
  }
  return host;
}

std::optional<launched> by_slurm(const variables& in, const process_facts& facts) {
  if (!in.have({"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_JOB_ID"})) return std::nullopt;
  // A step may have fewer tasks than its job.
  const char* const tasks = in.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (!in.has(tasks)) fail("srun has set SLURM_PROCID, but neither SLURM_STEP_NUM_TASKS nor SLURM_NTASKS");
  launched here = place_from(in, "srun (Slurm)", "SLURM_PROCID", tasks);
  if (here.processes == 1 || in.has("TROUPE_JOIN")) return here;
  const std::string identity = in.text("SLURM_JOB_ID") + "." + in.text("SLURM_STEP_ID");
  const std::string hosts = in.text("SLURM_STEP_NODELIST");
  const std::string first = first_host(hosts);
  if (first.empty())
    no_meeting_place(here, "SLURM_STEP_NODELIST is \"" + hosts + "\", which names no first host",
                     "TROUPE_JOIN=tcp://HOST:PORT srun …");
  here.rendezvous = first == hosts ? name_on_host(facts, "slurm", identity) : tcp(first, port_of(identity));
  return here;
}

std::optional<launched> by_torchrun(const variables& in, const process_facts& facts) {
  // RANK alone may be anybody's.
  if (!in.have({"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})) return std::nullopt;
  launched here = place_from(in, "torchrun", "RANK", "WORLD_SIZE");
  if (here.processes == 1 || in.has("TROUPE_JOIN")) return here;
  const int port = in.number("MASTER_PORT", 1);
  if (port > 65535) fail("MASTER_PORT is " + std::to_string(port) + "; it must be 1 … 65535");
  if (in.has("LOCAL_WORLD_SIZE") && in.number("LOCAL_WORLD_SIZE", 1) == here.processes) {
    here.rendezvous = name_on_host(facts, "torchrun",
                                   std::to_string(port) + "-" + in.text("TORCHELASTIC_RUN_ID") + "-" +
                                       in.text("TORCHELASTIC_RESTART_COUNT"));
    return here;
  }
  here.rendezvous = tcp(in.text("MASTER_ADDR"), static_cast<std::uint64_t>(port == 65535 ? port - 1 : port + 1));
  return here;
}

std::optional<launched> by_hand(const variables& in) {
  if (!both(in, "TROUPE_RANK", "TROUPE_RANKS")) return std::nullopt;
  launched here = place_from(in, "TROUPE_JOIN", "TROUPE_RANK", "TROUPE_RANKS");
  if (!in.has("TROUPE_JOIN") && here.processes > 1)
    fail("TROUPE_RANK and TROUPE_RANKS are set, and TROUPE_JOIN is not; say where the processes meet, for example "
         "TROUPE_JOIN=tcp://node1:7000");
  return here;
}

// -- /proc --

/// The fields of /proc/<process>/stat behind the name, which may itself contain anything: state first.
std::string stat_of(pid_t process) {
  std::ifstream file{"/proc/" + std::to_string(process) + "/stat"};
  std::string line;
  std::getline(file, line);
  const auto end_of_name = line.rfind(')');
  return end_of_name == std::string::npos ? std::string{} : line.substr(end_of_name + 1);
}

std::string field(const std::string& stat, int number) {
  std::istringstream fields{stat};
  std::string text;
  for (int i = 0; i <= number; ++i)
    if (!(fields >> text)) return {};
  return text;
}

constexpr int parent_field = 1, begin_field = 19;

}  // namespace

process_facts facts_of_this_process() {
  process_facts facts;
  facts.user = geteuid();
  // A wrapper may stand between the launcher and us; its session is ours. A session whose first process has ended says nothing.
  const std::string parent = field(stat_of(getsid(0)), parent_field);
  if (parent.empty() || parent == "0") return facts;
  const std::string begin = field(stat_of(static_cast<pid_t>(std::stol(parent))), begin_field);
  if (!begin.empty()) facts.starter = parent + "-" + begin;
  return facts;
}

std::optional<launched> launched_by(const environment_lookup& environment, const process_facts& facts) {
  const variables in{environment};
  const std::string join = in.text("TROUPE_JOIN");
  const bool invited = is_invitation(join);
  if (!join.empty() && !invited) check_address("TROUPE_JOIN", join);
  std::optional<launched> here = by_hand(in);
  // The program that starts one process more may itself have been started by a launcher, whose numbers that process inherits.
  if (!here && invited && meeting_of_invitation(join).fresh == 1)
    here = launched{.by = "TROUPE_JOIN", .rendezvous = join};
  if (!here) here = by_open_mpi(in, facts);
  if (!here) here = by_mpich(in, facts);
  if (!here) here = by_slurm(in, facts);
  if (!here) here = by_torchrun(in, facts);
  if (!here && !join.empty())
    fail("TROUPE_JOIN is set, and nothing says which process this is; set TROUPE_RANK and TROUPE_RANKS, too");
  if (!here) return here;
  if (!join.empty()) here->rendezvous = join;
  here->key = in.text("TROUPE_KEY");
  here->key_file = in.text("TROUPE_KEY_FILE");
  if (!here->key.empty() && !here->key_file.empty())
    fail("TROUPE_KEY and TROUPE_KEY_FILE are both set; one of them is enough");
  return here;
}

actors::job_key key_of(const launched& where) {
  if (!where.key_file.empty()) return actors::job_key::from_file(where.key_file);
  if (where.key.empty()) return {};
  try {
    return actors::job_key::from_hex(where.key);
  } catch (const error& failure) {
    fail(std::string{"TROUPE_KEY is wrong: "} + failure.what());
  }
}

std::vector<std::string> groups_of_pod(std::string_view pod, const std::string& who) {
  constexpr std::size_t longest_name = 63;
  std::vector<std::string> groups;
  if (pod.empty() || pod == "/") return groups;
  const auto refuse = [&](const std::string& why) {
    fail(who + " is \"" + std::string{pod} + "\"; " + why +
         "; write the groups that the host is in, from the outside in, "
         "as in rack1/leaf2");
  };
  for (std::string_view name : parts_of(pod, '/')) {
    if (name.empty() || name.size() > longest_name)
      refuse("a group's name has 1 … " + std::to_string(longest_name) + " bytes");
    if (std::any_of(name.begin(), name.end(), [](char c) { return c >= 0 && c <= ' '; }))
      refuse("a group's name has no spaces in it");
    groups.emplace_back(name);
  }
  if (groups.size() > actors::most_groups)
    refuse("there can be " + std::to_string(actors::most_groups) + " levels of groups");
  return groups;
}

/// What a launcher inside a job of Slurm starts here inherits the variables of that launcher's own step, if it has any, and elsewhere none
/// or those of a daemon: they say nothing of such a process.
named_pod pod_by(const environment_lookup& environment) {
  const variables in{environment};
  if (in.has("TROUPE_POD")) return {groups_of_pod(in.text("TROUPE_POD"), "TROUPE_POD"), true};
  if (!in.have({"SLURM_PROCID", "SLURM_STEP_ID"}) || in.has("TROUPE_RANK") || in.has("OMPI_COMM_WORLD_RANK") ||
      in.has("MPI_LOCALNRANKS"))
    return {};
  const std::string address = in.text("SLURM_TOPOLOGY_ADDR"), pattern = in.text("SLURM_TOPOLOGY_ADDR_PATTERN");
  std::vector<std::string> groups;
  const auto names = parts_of(address, '.');
  const auto kinds = parts_of(pattern, '.');
  // Of more switches than a layout has levels the nearest count.
  for (std::size_t i = 0; i < kinds.size() && kinds[i] != "node" && i < names.size(); ++i)
    groups.emplace_back(names[i]);
  if (groups.size() > actors::most_groups)
    groups.erase(groups.begin(), groups.end() - static_cast<std::ptrdiff_t>(actors::most_groups));
  return {std::move(groups), false};
}

bool concerns_launchers(std::string_view variable) {
  static constexpr std::array<std::string_view, 8> ours{"TROUPE_JOIN", "TROUPE_RANK",     "TROUPE_RANKS",
                                                        "TROUPE_KEY",  "TROUPE_KEY_FILE", "TROUPE_INTERFACE",
                                                        "TROUPE_HOST", "TROUPE_POD"};
  return std::find(ours.begin(), ours.end(), variable) != ours.end();
}

}  // namespace troupe
