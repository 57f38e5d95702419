// SPDX-License-Identifier: Apache-2.0
#include "engine/world/join.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>

#include <sys/stat.h>
#include <unistd.h>

#include <spdlog/spdlog.h>

#include "actors/caf/job_links.hpp"
#include "actors/ports/link/core_share.hpp"
#include "actors/ports/link/idle_cores.hpp"
#include "actors/ports/link/rendezvous.hpp"
#include "actors/ports/link/ucx/ucx_transport.hpp"
#include "actors/ports/segment/copy_costs.hpp"
#include "actors/waiting/napping.hpp"
#include "engine/config/configuration.hpp"
#include "engine/planning/hccl_selection.hpp"
#include "engine/planning/nccl_selection.hpp"
#include "engine/planning/tuning.hpp"
#include "engine/world/launcher_environment.hpp"
#include "engine/world/tls.hpp"
#include "engine/world/whereabouts.hpp"
#include "memory/error.hpp"
#include "memory/word_hash.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

/// Of what travels between processes: changes with every frame, and with every release, whose planners may choose otherwise.
constexpr std::string_view build_name = "troupe " TROUPE_VERSION ", link 10";

std::uint64_t hash_of(std::string_view text) {
  word_hash h;
  h.add(text);
  return h.state;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody here changes it
  return value == nullptr ? std::string{} : value;
}

/// The host as processes see it that could share memory: the running system, and its view of the network, by which tests make hosts of one.
std::uint64_t key_of_host(const std::string& told) {
  struct stat network {};
  if (::stat("/proc/self/ns/net", &network) != 0) network.st_ino = 0;
  return hash_of(boot_id() + " " + std::to_string(network.st_ino) + " " + told);
}

std::string name_of_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

std::string text_of(const nccl_options& o) {
  return std::string{name(o.version)} + ' ' + std::string{name(o.device)} + ' ' + std::string{name(o.host)} + ' ' +
         (o.nvlink ? "nvlink " : "") + (o.ll128 ? "ll128 " : "") + (o.nvls ? "nvls " : "") +
         (o.collnet ? "collnet " : "") + std::to_string(o.channels) + ' ' + std::to_string(o.inside) + ' ' +
         std::to_string(o.between);
}

/// Where the host's NIC process listens; empty: each process has its own NIC, or none.
std::string nic_address_of(const engine_options& o) {
  if (o.offload == "never" || o.nic == "process") return {};
  return o.nic == "host" ? actors::usual_nic_address() : o.nic;
}

/// The options that must be alike in every process.
std::string settings_of(const engine_options& o) {
  std::string text = "layout = " + o.layout + "\nchoreography = " + o.choreography + "\nplanner = " + o.planner +
                     "\nhccl = " + std::string{name(o.hccl.device)} + ' ' + std::to_string(o.hccl.buffer) + ' ' +
                     (o.hccl.super_pod ? "super_pod " : "") + (o.hccl.aiv ? "aiv " : "") +
                     (o.hccl.aicpu_unfolded ? "aicpu_unfolded " : "") + (o.hccl.one_level ? "one_level " : "") +
                     std::string{name(o.hccl.level0)} + ' ' + std::string{name(o.hccl.level1)} +
                     "\nnccl = " + text_of(o.nccl) + "\nprotocol = " + o.protocol +
                     "\nchannels = " + std::to_string(o.channels) + "\nchunk_bytes = " + std::to_string(o.chunk_bytes) +
                     "\nslices_per_step = " + std::to_string(o.slices_per_step) +
                     "\ncredits = " + std::to_string(o.credits) + "\nstreams = " + std::to_string(o.streams) +
                     "\nthrough_scratch = " + (o.through_scratch ? "true" : "false") +
                     "\nscratch_bytes = " + std::to_string(o.scratch_bytes) +
                     "\nlevel = " + std::string{name(o.level)} + "\nagreement = " + std::string{name(o.agreement)} +
                     "\noffload = " + o.offload + "\nnic = " + (nic_address_of(o).empty() ? "process" : "host") +
                     "\ntls = " + (o.tls_certificate.empty() ? "no" : "yes") + "\ntransport = " + o.transport + "\n";
  for (const auto& [what, how] : o.choreography_of) text += "choreography." + what + " = " + how + "\n";
  for (const auto& [what, file] : o.score_files) text += "score_files." + what + " = " + file + "\n";
  return text;
}

std::string host_told(const join_options& options) {
  return options.host.empty() ? variable("TROUPE_HOST") : options.host;
}

/// The groups of hosts that this one is in, and whether somebody has told us.
named_pod pod_of(const join_options& options) {
  if (!options.pod.empty()) return {groups_of_pod(options.pod, "join_options::pod"), true};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody here changes it
  return pod_by([](const char* name) -> const char* { return std::getenv(name); });
}

/// Process 0 serves, unless troupe launch or somebody else does. @param why_not it does not, though it should
std::unique_ptr<actors::rendezvous_service> serve(const whereabouts& w, std::uint64_t build,
                                                  std::shared_ptr<const actors::tls_identity> tls,
                                                  std::string& why_not) {
  if (w.process != 0 || w.served) return nullptr;
  try {
    return std::make_unique<actors::rendezvous_service>(w.rendezvous, w.processes, w.key, build, std::move(tls));
  } catch (const error& e) {
    if (e.code_value() == errc::bad_config) throw;
    why_not = e.what();
    return nullptr;  // somebody listens there already, or it is on another host: then it is there
  }
}

struct door {
  std::vector<actors::descriptor> listeners;
  std::vector<std::string> addresses;
};

/// A name that nobody else has, and that ends with the process.
std::string name_of_door() {
  std::uint64_t number = 0;
  actors::fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return "unix:@troupe-" + std::to_string(::getpid()) + "-" + std::to_string(number);
}

/// Where the others reach this process: those of this host at a Unix socket, and if all are on it, nowhere else.
door open_door(const whereabouts& w, const std::string& interfaces) {
  door d;
  d.addresses.push_back(name_of_door());
  d.listeners.push_back(actors::listen_at(actors::socket_address::resolve(d.addresses.front()).front()));
  if (w.one_host) return d;
  if (!w.key.present())
    throw error(
        errc::bad_config,
        "join: a job over several hosts (" + w.rendezvous +
            ") needs a key, so that nobody else can join: set TROUPE_KEY or TROUPE_KEY_FILE alike in every process");
  const auto reachable = actors::addresses_of_host(interfaces);
  if (reachable.empty())
    throw error(errc::io, "join: host " + name_of_host() +
                              " has no network interface but loopback, and the rendezvous " + w.rendezvous +
                              " is beyond it");
  const bool v6 = std::any_of(reachable.begin(), reachable.end(), [](const auto& a) { return a.family() == AF_INET6; });
  d.listeners.push_back(
      actors::listen_at(actors::socket_address::resolve(v6 ? "tcp://[::]:0" : "tcp://0.0.0.0:0").front()));
  const std::uint16_t port = actors::socket_address::own(d.listeners.back().get()).port();
  for (const actors::socket_address& a : reachable) d.addresses.push_back(a.with_port(port).to_string());
  return d;
}

/// Pieces side by side, as every process of the job has them.
int channels_for(const actors::roster& job) {
  std::map<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>> hosts;  // cores, ranks
  for (const actors::process_place& p : job.processes) {
    auto& [cores, ranks] = hosts[p.host_key];
    cores = std::max(cores, p.cores);
    ranks += p.ranks;
  }
  std::uint32_t least = 16;
  for (const auto& [host, has] : hosts) least = std::min(least, has.first / std::max(1u, has.second));
  return static_cast<int>(std::max(1u, least));
}

/// It is the first of several processes on its host.
bool leads_a_host(const actors::roster& job, std::uint32_t process) {
  const std::uint64_t host = job.processes[process].host_key;
  return actors::first_of_host(job, process) == process &&
         std::ranges::count(job.processes, host, &actors::process_place::host_key) > 1;
}

}  // namespace

std::uint64_t build_of_links() { return hash_of(build_name); }

namespace {

/// Where hosts stand among groups of hosts, by numbers in the order in which the job's processes name them.
class host_numbers {
public:
  explicit host_numbers(const actors::roster& job) {
    if (names_groups(job))
      for (const actors::process_place& p : job.processes) depth_ = std::max(depth_, p.groups.size());
  }

  /// Its groups, outermost first, and its number in the innermost. A process that names fewer levels than others is alone with those that name as few.
  std::vector<int> path_of(const actors::process_place& p) {
    if (const auto known = paths_.find(p.host_key); known != paths_.end()) return known->second;
    std::vector<int> path;
    std::vector<std::string> names;  // of the groups so far
    for (std::size_t level = 0; level < depth_; ++level) {
      auto& here = groups_in_[names];
      names.push_back(level < p.groups.size() ? p.groups[level] : std::string{});
      path.push_back(here.try_emplace(names.back(), static_cast<int>(here.size())).first->second);
    }
    path.push_back(hosts_in_[names]++);
    return paths_.try_emplace(p.host_key, std::move(path)).first->second;
  }
  std::size_t hosts() const { return paths_.size(); }

private:
  std::size_t depth_ = 0;
  std::map<std::uint64_t, std::vector<int>> paths_;
  std::map<std::vector<std::string>, std::map<std::string, int>> groups_in_;
  std::map<std::vector<std::string>, int> hosts_in_;
};

}  // namespace

layout layout_of(const actors::roster& job) {
  host_numbers hosts{job};
  std::vector<std::vector<int>> paths;
  std::map<std::uint64_t, int> on_host, computers;
  std::vector<residence> homes;
  for (std::size_t p = 0; p < job.processes.size(); ++p) {
    const actors::process_place& process = job.processes[p];
    const std::vector<int> host = hosts.path_of(process);
    // A process that does not know its running system has one of its own.
    const std::uint64_t system = process.machine_key != 0 ? process.machine_key : process.host_key;
    const int computer = computers.try_emplace(system, static_cast<int>(computers.size())).first->second;
    for (std::uint32_t r = 0; r < process.ranks; ++r) {
      paths.push_back(host);
      paths.back().insert(paths.back().end(), {0, on_host[process.host_key]++});
      homes.push_back({0, static_cast<int>(p), computer});
    }
  }
  layout all = hosts.hosts() == 1 ? layout::flat(static_cast<int>(paths.size())) : layout::placed_in_groups(paths);
  for (std::size_t r = 0; r < homes.size(); ++r) homes[r].host = all.server_of(static_cast<int>(r));
  all.homes = std::move(homes);
  return all;
}

std::string interfaces_of_environment() { return variable("TROUPE_INTERFACE"); }

namespace {

void check_join(const engine_core& core, const join_options& options, int ranks_here) {
  if (core.runtime->job() != nullptr)
    throw error(errc::invalid_argument, "this engine has joined its job already; a process needs one engine a job");
  if (core.has_layout)
    throw error(errc::bad_config,
                "engine.layout is \"" + core.options.layout +
                    "\", but a join finds the layout itself: leave it out, or say behind a colon alone which switches "
                    "reduce, as in \":inside\"");
  if (core.options.faults.any())
    throw error(errc::bad_config, "engine.faults happen inside one process; a job of several has none");
  if (ranks_here < 1)
    throw error(errc::invalid_argument, "join: a process needs at least one rank, not " + std::to_string(ranks_here));
  if (ranks_here > most_ranks_of_a_process)
    throw error(errc::invalid_argument, "join: one process performs at most " +
                                            std::to_string(most_ranks_of_a_process) + " ranks, not " +
                                            std::to_string(ranks_here));
  if (options.silence < std::chrono::milliseconds{100})
    throw error(errc::bad_config, "join: a silence of " + std::to_string(options.silence.count()) +
                                      " ms would take busy processes for lost; 100 is the least");
  if (options.silence > std::chrono::hours{1})
    throw error(errc::bad_config, "join: a silence of " + std::to_string(options.silence.count()) +
                                      " ms would leave the others waiting; 3600000 is the most");
}

std::function<bool()> cancel_of(const join_options& options) {
  return [flag = options.cancel] { return flag != nullptr && flag->load(); };
}

/// The transport of this process's data to other hosts; null: sockets.
std::shared_ptr<actors::transport> carrier_of(const engine_options& o, bool with_tls, bool one_host) {
  if (o.transport == "sockets") return nullptr;
  if (with_tls)
    throw error(errc::bad_config,
                "engine.transport is \"ucx\", which neither encrypts what it sends nor proves who sends it, and "
                "engine.tls_certificate asks for both: leave out one of them");
  if (o.lanes > 1)
    throw error(errc::bad_config, "engine.lanes is " + std::to_string(o.lanes) +
                                      ", which are connections of sockets, but engine.transport is \"ucx\", which "
                                      "divides data itself (UCX_MAX_EAGER_RAILS): leave out one of them");
  return one_host ? nullptr : actors::make_ucx_transport();
}

/// By which this host's processes decide what they stage.
copy_costs costs_of_copies(const engine_core& core, const actors::roster& job, std::uint32_t here) {
  if (core.options.stages == "always") return copy_costs{};
  if (core.options.stages == "never") return copy_costs::never_worth_staging();
  const std::vector<int> cpus = actors::cpus_of_host(job, here);
  // A process that may use less than it sees is limited in time, and so are, we suppose, the others of its host.
  const host& seen = discover();
  const bool limited = seen.usable_cpus() < static_cast<int>(seen.allowed_cpus.size());
  copy_costs found = costs_of(time_copies(cpus), limited ? seen.usable_cpus() : static_cast<int>(cpus.size()));
  found.tries = true;
  core.log->debug(
      "between the processes of this host, a copy to a staging buffer costs {:.0f} ns a KiB, past the caches {:.0f}; a "
      "copy by the system {:.0f} ns, and "
      "{:.0f} a KiB, more than one by a core; they have {} cores",
      found.staging, found.past, found.call, found.system, found.cores);
  return found;
}

void join_there(engine_core& core, whereabouts where, const join_options& options, int ranks_here,
                std::function<bool()> give_up) {
  const std::uint64_t build = build_of_links();
  const auto tls = tls_of(core.options);
  std::string unserved;
  const auto service = serve(where, build, tls, unserved);
  const std::string told = host_told(options);
  where.one_host = where.one_host && told.empty();
  const auto carrier = carrier_of(core.options, tls != nullptr, where.one_host);
  door d = open_door(where, options.interfaces.empty() ? interfaces_of_environment() : options.interfaces);
  actors::enrolment mine;
  mine.process = where.process;
  mine.processes = where.processes;
  mine.place.host = name_of_host() + (told.empty() ? "" : " (" + told + ")");
  mine.place.host_key = key_of_host(told);
  if (const std::string system = boot_id(); !system.empty()) mine.place.machine_key = hash_of(system);
  mine.place.pid = ::getpid();
  mine.place.ranks = static_cast<std::uint32_t>(ranks_here);
  mine.place.cores = static_cast<std::uint32_t>(core.runtime->cores());
  mine.place.cpus = actors::bits_of_cpus(discover().allowed_cpus);
  mine.place.addresses = std::move(d.addresses);
  named_pod pod = pod_of(options);
  mine.place.groups = std::move(pod.groups);
  mine.place.told_groups = pod.told;
  if (carrier) mine.place.carrier = carrier->address();
  mine.settings = settings_of(core.options);
  mine.costs = costs_of(core.plans.machine());
  constexpr std::chrono::hours longest{24 * 365};  // more would not fit into a clock
  actors::join_limits limits{clock::now() + std::min<std::chrono::milliseconds>(options.deadline, longest),
                             std::move(give_up)};
  limits.unserved = std::move(unserved);
  limits.overdue = [&core](const std::string& text) { core.log->warn("waiting for more than 5 s: {}", text); };
  if (where.first_new > 0) {
    limits.served = true;
    limits.first_new = where.first_new;
  }
  const std::string rendezvous = service ? service->address() : where.rendezvous;
  actors::roster all = actors::enrol(rendezvous, where.key, build, mine, limits, tls);
  actors::mesh_options links;
  links.silence = options.silence;
  links.build = build;
  links.tls = tls;
  links.carrier = carrier;
  if (carrier) core.log->debug("data to other hosts goes by UCX {}", actors::ucx_version());
  links.lanes = core.options.lanes;
  core.joined_by = options;
  core.has_grown = where.first_new > 0;
  core.channels_of_job = channels_for(all);
  core.plans.agree_on(all.costs, actors::idle_cores(all));
  std::shared_ptr<actors::host_segment> boards;
  if (leads_a_host(all, where.process)) {
    boards = actors::host_segment::make(costs_of_copies(core, all, where.process));
    links.to_share = boards->get();
  }
  auto joined = std::make_unique<actors::job_links>(links, std::move(all), where.process, where.key,
                                                    std::move(d.listeners), core.runtime->memory(), core.log);
  joined->share_boards(std::move(boards), limits.until, nic_address_of(core.options), build, options.silence);
  if (joined->copies()) core.memory->lie_in(joined->boards());
  core.runtime->join(std::move(joined));
  // The others may still be reading their rosters.
  nap_until([&] { return !service || service->done() || clock::now() >= limits.until; }, std::chrono::milliseconds{1});
}

}  // namespace

void join_job(engine_core& core, const join_options& options, int ranks_here) {
  check_join(core, options, ranks_here);
  join_there(core, find_job(options), options, ranks_here, cancel_of(options));
}

void join_job(engine_core& core, const job_id& which, int ranks, int rank, const join_options& options) {
  check_join(core, options, 1);
  join_there(core, find_job(which, ranks, rank), options, 1, cancel_of(options));
}

void join_grown(engine_core& core, const job_id& which, std::uint32_t process, int ranks_here,
                const join_options& options, std::function<bool()> give_up) {
  check_join(core, options, ranks_here);
  join_there(core, find_grown(meeting_of(which), process), options, ranks_here, std::move(give_up));
}

std::shared_ptr<communicator_state> found_job_world(engine_core& core, std::shared_ptr<actors::run_threads> run) {
  const actors::roster& all = core.runtime->job()->all();
  actors::job_part part;
  word_hash id;
  id.add(all.job);
  id.add("world");
  part.id = id.state;
  std::vector<int> places;
  for (std::size_t p = 0; p < all.processes.size(); ++p)
    for (std::uint32_t r = 0; r < all.processes[p].ranks; ++r) {
      part.process_of.push_back(static_cast<std::uint32_t>(p));
      places.push_back(static_cast<int>(places.size()));
    }
  layout placement = layout_of(all);
  placement.copies = core.runtime->job()->copies();
  placement.reduces = core.machine_layout.reduces;
  auto world =
      core.found(core.has_grown ? "grown" : "world", std::move(placement), std::move(places), std::move(run), &part);
  world->part_has_name = core.has_grown;
  return world;
}

}  // namespace troupe
