// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/core_share.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace troupe::actors {

namespace {
constexpr int cpus_a_word = 64;

/// A process that names no CPUs may use all.
bool share_a_cpu(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
  if (a.empty() || b.empty()) return true;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if ((a[i] & b[i]) != 0) return true;
  return false;
}

void add_cpus(std::vector<std::uint64_t>& to, const std::vector<std::uint64_t>& more) {
  to.resize(std::max(to.size(), more.size()));
  for (std::size_t i = 0; i < more.size(); ++i) to[i] |= more[i];
}

int count_cpus(const std::vector<std::uint64_t>& of) {
  int all = 0;
  for (const std::uint64_t word : of) all += std::popcount(word);
  return all;
}
}  // namespace

core_share cores_shared(const roster& in, std::uint32_t here, std::span<const std::uint32_t> process_of, int usable) {
  const process_place& mine = in.processes[here];
  core_share host{0, usable}, machine{0, usable};
  std::vector<std::uint64_t> cpus = mine.cpus;
  for (const std::uint32_t process : process_of) {
    const process_place& other = in.processes[process];
    const bool same_host = other.host_key == mine.host_key;
    const bool same_machine = same_host || (mine.machine_key != 0 && other.machine_key == mine.machine_key);
    if (process == here || !same_machine || !share_a_cpu(mine.cpus, other.cpus)) continue;
    ++machine.neighbours;
    if (same_host) ++host.neighbours;
    add_cpus(cpus, other.cpus);
  }
  machine.cores = std::max(machine.cores, count_cpus(cpus));
  return machine.neighbours - machine.cores > host.neighbours - host.cores ? machine : host;
}

std::vector<int> cpus_of_host(const roster& in, std::uint32_t here) {
  std::vector<std::uint64_t> all;
  for (const process_place& p : in.processes)
    if (p.host_key == in.processes[here].host_key) add_cpus(all, p.cpus);
  std::vector<int> found;
  for (std::size_t word = 0; word < all.size(); ++word)
    for (std::uint64_t left = all[word]; left != 0; left &= left - 1)
      found.push_back(static_cast<int>(word) * cpus_a_word + std::countr_zero(left));
  return found;
}

std::vector<std::uint64_t> bits_of_cpus(std::span<const int> cpus) {
  std::vector<std::uint64_t> all;
  for (const int cpu : cpus) {
    const auto word = static_cast<std::size_t>(cpu / cpus_a_word);
    if (all.size() <= word) all.resize(word + 1);
    all[word] |= std::uint64_t{1} << (cpu % cpus_a_word);
  }
  return all;
}

}  // namespace troupe::actors
