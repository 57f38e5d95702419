// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/discovery.hpp"

#include "memory/error.hpp"

#include <hwloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <type_traits>

namespace troupe {

namespace {

// -- affinity and cgroup, which need no hwloc --------------------------------------------------------------------

std::vector<int> affinity_of_process() {
  // The kernel refuses a mask smaller than its own; grow until it fits.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 4) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set{CPU_ALLOC(static_cast<std::size_t>(cpus)),
                                                               [](cpu_set_t* s) { CPU_FREE(s); }};
    if (!set) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
    CPU_ZERO_S(bytes, set.get());
    // The process's main thread, not the caller, which an earlier binding may have confined to one cpu.
    if (sched_getaffinity(getpid(), bytes, set.get()) == 0) {
      std::vector<int> allowed;
      for (int cpu = 0; cpu < cpus; ++cpu)
        if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get())) allowed.push_back(cpu);
      return allowed;
    }
    if (errno != EINVAL) break;
  }
  return {};
}

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// This process's directory of `controller` ("" : the v2 hierarchy), without a trailing slash.
std::optional<std::string> own_cgroup(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "id:controller,controller:/path"
    const auto a = line.find(':');
    const auto b = a == std::string::npos ? a : line.find(':', a + 1);
    if (b == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(a + 1, b - a - 1) + ',';
    const bool match =
        controller.empty() ? controllers == ",," : controllers.find(',' + controller + ',') != std::string::npos;
    if (!match) continue;
    std::string path = line.substr(b + 1);
    while (!path.empty() && path.back() == '/') path.pop_back();
    return path;
  }
  return std::nullopt;
}

// Calls visit(directory) for the process's cgroup and all its parents: the tightest limit on the way up counts. In a
// container the path may be the host's, which is not visible here; missing files are simply skipped.
template <class Visit>
void walk_up(const std::string& mount, std::string path, Visit visit) {
  for (;;) {
    visit(mount + path);
    if (path.empty()) return;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

double quota_of_cgroup() {
  double tightest = 0;
  const auto consider = [&](double quota, double period) {
    if (quota > 0 && period > 0 && (tightest == 0 || quota / period < tightest)) tightest = quota / period;
  };
  if (const auto path = own_cgroup(""))
    walk_up("/sys/fs/cgroup", *path, [&](const std::string& directory) {
      double quota = 0, period = 0;  // "max 100000" fails to read as a number: no limit
      if (const auto line = first_line(directory + "/cpu.max"); line && std::istringstream(*line) >> quota >> period)
        consider(quota, period);
    });
  if (const auto path = own_cgroup("cpu"))
    walk_up("/sys/fs/cgroup/cpu", *path, [&](const std::string& directory) {
      const auto quota = first_line(directory + "/cpu.cfs_quota_us"),
                 period = first_line(directory + "/cpu.cfs_period_us");
      if (quota && period) consider(std::strtod(quota->c_str(), nullptr), std::strtod(period->c_str(), nullptr));
    });
  return tightest;
}

std::uint64_t memory_limit(std::uint64_t installed) {
  std::uint64_t limit = installed;
  const auto consider = [&](const std::string& file) {
    std::uint64_t value = 0;  // "max" fails to read as a number: no limit
    if (const auto line = first_line(file); line && std::istringstream(*line) >> value && value > 0)
      limit = limit == 0 ? value : std::min(limit, value);
  };
  if (const auto path = own_cgroup(""))
    walk_up("/sys/fs/cgroup", *path, [&](const std::string& directory) { consider(directory + "/memory.max"); });
  if (const auto path = own_cgroup("memory"))
    walk_up("/sys/fs/cgroup/memory", *path,
            [&](const std::string& directory) { consider(directory + "/memory.limit_in_bytes"); });
  rlimit address_space{};  // ulimit -v
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY)
    limit = limit == 0 ? address_space.rlim_cur : std::min<std::uint64_t>(limit, address_space.rlim_cur);
  return limit;
}

std::uint64_t installed_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) : 0;
}

// -- hwloc -------------------------------------------------------------------------------------------------------

struct topology_deleter {
  void operator()(hwloc_topology_t t) const noexcept { hwloc_topology_destroy(t); }
};
using topology_handle = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, topology_deleter>;

struct bitmap_deleter {
  void operator()(hwloc_bitmap_t b) const noexcept { hwloc_bitmap_free(b); }
};
using bitmap_handle = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, bitmap_deleter>;

// Null if hwloc cannot load it. `synthetic` null: this computer, also the parts this process may not use.
topology_handle load(const char* synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {};
  topology_handle topology{raw};
  if (synthetic != nullptr && hwloc_topology_set_synthetic(raw, synthetic) != 0) return {};
  if (synthetic == nullptr) hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(raw) != 0) return {};
  return topology;
}

int count(hwloc_topology_t topology, hwloc_obj_type_t type) {
  return std::max(0, hwloc_get_nbobjs_by_type(topology, type));  // −1: on several levels
}

std::uint64_t cache_size(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
  return cache != nullptr && cache->attr != nullptr ? cache->attr->cache.size : 0;
}

std::vector<int> indices(hwloc_const_bitmap_t set) {
  std::vector<int> result;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) result.push_back(i);
  return result;
}

// Parts that a container hides count as 0; there is always at least one of each.
void read_structure(hwloc_topology_t topology, host& h) {
  h.from_hwloc = true;
  h.packages = std::max(1, count(topology, HWLOC_OBJ_PACKAGE));
  h.processing_units = std::max(1, count(topology, HWLOC_OBJ_PU));
  h.cores = count(topology, HWLOC_OBJ_CORE);
  if (h.cores == 0) h.cores = h.processing_units;
  h.numa_nodes = std::max(1, count(topology, HWLOC_OBJ_NUMANODE));
  h.l1_bytes = cache_size(topology, HWLOC_OBJ_L1CACHE);
  h.l2_bytes = cache_size(topology, HWLOC_OBJ_L2CACHE);
  h.l3_bytes = cache_size(topology, HWLOC_OBJ_L3CACHE);
  h.l3_instances = count(topology, HWLOC_OBJ_L3CACHE);
  if (const hwloc_obj_t root = hwloc_get_root_obj(topology); root != nullptr) h.memory_bytes = root->total_memory;
}

void read_allowed(hwloc_topology_t topology, hwloc_const_bitmap_t allowed, host& h) {
  h.allowed_cpus = indices(allowed);
  const int cores = count(topology, HWLOC_OBJ_CORE);
  h.allowed_cores = 0;
  for (int i = 0; i < cores; ++i) {
    const hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
    if (core != nullptr && core->cpuset != nullptr && hwloc_bitmap_intersects(core->cpuset, allowed)) ++h.allowed_cores;
  }
  if (h.allowed_cores == 0) h.allowed_cores = std::max(1, static_cast<int>(h.allowed_cpus.size()));
}

std::string size_text(std::uint64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  std::ostringstream text;
  text.precision(value < 10 ? 2 : value < 100 ? 3 : 4);
  text << value << ' ' << units[unit];
  return text.str();
}

std::string counted(int n, const std::string& what, const char* plural = "s") {
  return std::to_string(n) + ' ' + what + (n == 1 ? "" : plural);
}

}  // namespace

int host::usable_cpus() const noexcept {
  const int allowed = std::max(1, static_cast<int>(allowed_cpus.size()));
  if (!(cpu_quota > 0)) return allowed;
  return cpu_quota >= allowed ? allowed : std::max(1, static_cast<int>(std::ceil(cpu_quota)));
}

std::string host::describe() const {
  std::ostringstream text;
  if (from_hwloc)
    text << counted(packages, "package") << ", " << counted(cores, "core") << ", "
         << counted(processing_units, "hardware thread") << ", " << counted(numa_nodes, "NUMA node");
  else
    text << counted(processing_units, "hardware thread") << " (no hwloc: " << note
         << "; cores, caches and NUMA unknown)";
  if (memory_bytes != 0) text << "; " << size_text(memory_bytes) << " of memory";
  if (memory_limit_bytes != 0 && memory_limit_bytes < memory_bytes)
    text << " of which this process may use " << size_text(memory_limit_bytes);
  if (l1_bytes != 0) text << "; L1 " << size_text(l1_bytes);
  if (l2_bytes != 0) text << ", L2 " << size_text(l2_bytes);
  if (l3_bytes != 0)
    text << ", L3 " << (l3_instances > 1 ? std::to_string(l3_instances) + " x " : "") << size_text(l3_bytes);
  text << ". This process may use " << counted(static_cast<int>(allowed_cpus.size()), "hardware thread");
  if (from_hwloc) text << " on " << counted(allowed_cores, "core");
  if (cpu_quota > 0) text << ", limited by its cgroup to " << cpu_quota << " CPUs";
  text << ": " << counted(usable_cpus(), "thread") << " can run at once.";
  return text.str();
}

host discover_without_hwloc() {
  host h;
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  h.processing_units =
      online > 0 ? static_cast<int>(online) : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  h.cores = h.processing_units;
  h.allowed_cpus = affinity_of_process();
  if (h.allowed_cpus.empty())  // not even the mask: assume everything that is online
    for (int cpu = 0; cpu < h.processing_units; ++cpu) h.allowed_cpus.push_back(cpu);
  h.processing_units = std::max(h.processing_units, static_cast<int>(h.allowed_cpus.size()));
  h.allowed_cores = static_cast<int>(h.allowed_cpus.size());
  h.cpu_quota = quota_of_cgroup();
  h.memory_bytes = installed_memory();
  h.memory_limit_bytes = memory_limit(h.memory_bytes);
  h.note = "not asked";
  return h;
}

host discover_again() {
  host h = discover_without_hwloc();
  const topology_handle topology = load(nullptr);
  const bitmap_handle allowed{topology ? hwloc_bitmap_alloc() : nullptr};
  if (!topology || !allowed) {
    h.note = "hwloc could not read this computer's topology";
    return h;
  }
  for (int cpu : h.allowed_cpus) hwloc_bitmap_set(allowed.get(), static_cast<unsigned>(cpu));
  // The affinity mask already lies within the cgroup's cpuset; the intersection drops what hwloc knows to be offline.
  hwloc_bitmap_and(allowed.get(), allowed.get(), hwloc_topology_get_allowed_cpuset(topology.get()));
  if (hwloc_bitmap_iszero(allowed.get())) {
    h.note = "hwloc's topology contains none of the processors this process may use";
    return h;
  }
  h.note.clear();
  const std::uint64_t memory_from_system = h.memory_bytes;
  read_structure(topology.get(), h);
  if (h.memory_bytes == 0) h.memory_bytes = memory_from_system;
  h.memory_limit_bytes = memory_limit(h.memory_bytes);
  read_allowed(topology.get(), allowed.get(), h);
  return h;
}

const host& discover() {
  static const host kept = discover_again();
  return kept;
}

std::string boot_id() { return first_line("/proc/sys/kernel/random/boot_id").value_or(""); }

std::uint64_t usable_memory() { return memory_limit(installed_memory()); }

host describe_synthetic(const std::string& description) {
  const topology_handle topology = load(description.c_str());
  if (!topology)
    throw error(errc::bad_config, "discovery: hwloc does not understand the synthetic topology '" + description +
                                      "'; write e.g. \"package:2 l3:1 core:4 pu:2\"");
  host h;
  read_structure(topology.get(), h);
  h.memory_limit_bytes = h.memory_bytes;
  read_allowed(topology.get(), hwloc_topology_get_allowed_cpuset(topology.get()), h);
  return h;
}

}  // namespace troupe
